#include "generate/published_sampling.h"

#include <algorithm>
#include <string>

namespace qgen {
namespace {

// The first row that fits counts.
constexpr PublishedSampling kPublished[] = {
    {.name = "DeepSeek-R1-Distill",
     .family = "",
     .words = "r1-distill",
     .source = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B, generation_config.json",
     .temperature = 0.6,
     .top_p = 0.95},
    {.name = "Qwen3 Instruct 2507",
     .family = "qwen3",
     .words = "instruct-2507",
     .source = "Qwen/Qwen3-4B-Instruct-2507, generation_config.json",
     .temperature = 0.7,
     .top_p = 0.8,
     .top_k = 20},
    {.name = "Qwen3",
     .family = "qwen3",
     .words = "",
     .source = "Qwen/Qwen3-8B, model card: thinking mode, the default of its generation_config.json",
     .temperature = 0.6,
     .top_p = 0.95,
     .top_k = 20},
    {.name = "Qwen2 and Qwen2.5 Instruct, 0.5B",
     .family = "qwen2",
     .words = "qwen2 0.5b instruct",
     .source = "Qwen/Qwen2-0.5B-Instruct, generation_config.json",
     .temperature = 0.7,
     .top_p = 0.8,
     .top_k = 20,
     .repetition_penalty = 1.1},
    {.name = "Qwen2 and Qwen2.5 Instruct, 1.5B",
     .family = "qwen2",
     .words = "qwen2 1.5b instruct",
     .source = "Qwen/Qwen2-1.5B-Instruct, generation_config.json",
     .temperature = 0.7,
     .top_p = 0.8,
     .top_k = 20,
     .repetition_penalty = 1.1},
    {.name = "Qwen2 and Qwen2.5 Instruct",
     .family = "qwen2",
     .words = "qwen2 instruct",
     .source = "Qwen/Qwen2.5-7B-Instruct, generation_config.json",
     .temperature = 0.7,
     .top_p = 0.8,
     .top_k = 20,
     .repetition_penalty = 1.05},
    {.name = "Llama 3.x Instruct",
     .family = "llama",
     .words = "llama-3. instruct",
     .source = "meta-llama/Llama-3.1-8B-Instruct, generation_config.json",
     .temperature = 0.6,
     .top_p = 0.9},
    {.name = "SmolLM2 Instruct",
     .family = "llama",
     .words = "smollm2 instruct",
     .source = "HuggingFaceTB/SmolLM2-1.7B-Instruct, model card: how to use",
     .temperature = 0.2,
     .top_p = 0.9},
    {.name = "Mistral Nemo Instruct",
     .family = "",
     .words = "mistral-nemo instruct",
     .source = "mistralai/Mistral-Nemo-Instruct-2407, model card",
     .temperature = 0.3},
};

// Words in the names of derived models with other published values, or none, and of base models, which have none.
constexpr std::string_view kOthers[] = {"base", "coder", "math"};

// "Qwen2.5 7B_Instruct" as "-qwen2.5-7b-instruct-".
std::string plain(std::string_view name) {
  std::string out = "-";
  for (const char c : name)
    out += c == ' ' || c == '_' || c == '/' ? '-' : c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out + "-";
}

bool has_all(const std::string& name, std::string_view words) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (name.find(words.substr(0, end)) == name.npos) return false;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return true;
}

}  // namespace

const PublishedSampling* find_published_sampling(std::string_view family, std::string_view model_name) {
  const std::string name = plain(model_name);
  for (const std::string_view other : kOthers) {
    if (name.find("-" + std::string(other)) != name.npos) return nullptr;
  }
  for (const PublishedSampling& row : kPublished) {
    if ((row.family.empty() || row.family == family) && has_all(name, row.words)) return &row;
  }
  return nullptr;
}

}  // namespace qgen
