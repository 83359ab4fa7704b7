#include "model/families/table.h"

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/common.h"

namespace qgen {
namespace {

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", "llama", true, "Llama 1, 2, 3.x, SmolLM2, TinyLlama", describe_llama},
    {"mistral", "MistralForCausalLM", "", true, "Mistral 7B, Mistral Nemo", describe_mistral},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", false, "Qwen2, Qwen2.5", describe_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", false, "Qwen3 dense", describe_qwen3},
    {"gemma3_text", "Gemma3ForCausalLM", "gemma3", false, "Gemma 3 1B to 27B, their text part", describe_gemma3},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

namespace {

// Multimodal checkpoints keep the language model's part of config.json in text_config, and its tensors deeper.
constexpr Description::NamePlace kNestedPlaces[] = {
    {"model.language_model.", "lm_head"}, {"language_model.model.", "language_model.lm_head"}, {"model.", "lm_head"}};

std::string_view text_or_empty(const Json& config, std::string_view key) {
  const auto value = config.get(key);
  return value ? value->as_string() : std::string_view();
}

std::string_view first_architecture(const Json& config) {
  const auto value = config.get("architectures");
  if (!value) return {};
  const auto list = value->elements();
  return list.empty() ? std::string_view() : list.front().as_string();
}

// By model_type, else by architectures; null where there is none.
const Family* find_family(const Json& config) {
  const std::string_view type = text_or_empty(config, "model_type");
  const std::string_view architecture = type.empty() ? first_architecture(config) : std::string_view();
  for (const Family& family : kFamilies) {
    if (!type.empty() ? family.name == type : !architecture.empty() && family.architecture == architecture)
      return &family;
  }
  return nullptr;
}

Description describe_nested(const Json& config, const Json& text, const Family& family) {
  Description model = family.describe(text);
  model.places.assign(std::begin(kNestedPlaces), std::end(kNestedPlaces));
  model.names.set_prefix(kNestedPlaces[0].prefix);
  // Some keys stand at the top only.
  if (const auto tied = config.get("tie_word_embeddings"); tied && !text.find("tie_word_embeddings"))
    model.tied_head = tied->as_bool();
  if (model.end_tokens.empty()) model.end_tokens = read_end_tokens(config);
  return model;
}

}  // namespace

Description describe(const Json& config) {
  if (const auto text = config.get("text_config"); text && text->is_object()) {
    if (const Family* family = find_family(*text)) return describe_nested(config, *text, *family);
  }
  if (const Family* family = find_family(config)) return family->describe(config);
  std::string known;
  for (const Family& family : kFamilies) known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
  const std::string_view type = text_or_empty(config, "model_type"), architecture = first_architecture(config);
  if (type.empty() && architecture.empty()) {
    config.fail("says no model_type", fmt::format("a Hugging Face config.json names one; supported: {}", known));
  }
  config.fail(fmt::format("model_type '{}' is not supported", type.empty() ? architecture : type),
              "supported: " + known);
}

}  // namespace qgen
