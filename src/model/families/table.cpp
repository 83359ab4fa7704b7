#include "model/families/table.h"

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {
namespace {

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", "Llama 1, 2, 3.x, SmolLM2, TinyLlama", describe_llama},
    {"mistral", "MistralForCausalLM", "Mistral 7B, Mistral Nemo", describe_mistral},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2, Qwen2.5", describe_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3 dense", describe_qwen3},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

Description describe(const Json& config) {
  std::string_view type, architecture;
  if (const auto value = config.get("model_type")) type = value->as_string();
  if (const auto value = config.get("architectures")) {
    const auto list = value->elements();
    if (!list.empty()) architecture = list.front().as_string();
  }
  for (const Family& family : kFamilies) {
    if (!type.empty() ? family.name == type : family.architecture == architecture) return family.describe(config);
  }
  std::string known;
  for (const Family& family : kFamilies) known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
  if (type.empty() && architecture.empty()) {
    config.fail("says no model_type", fmt::format("a Hugging Face config.json names one; supported: {}", known));
  }
  config.fail(fmt::format("model_type '{}' is not supported", type.empty() ? architecture : type),
              "supported: " + known);
}

}  // namespace qgen
