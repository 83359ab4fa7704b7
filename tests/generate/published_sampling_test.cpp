#include "generate/published_sampling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "generate/sampling_settings.h"
#include "model/families/table.h"

using namespace qgen;

namespace {

std::string row_of(std::string_view family, std::string_view name) {
  const PublishedSampling* row = find_published_sampling(family, name);
  return row == nullptr ? "" : std::string(row->name);
}

}  // namespace

TEST_CASE("published sampling: rows by family and name, however that is spelled") {
  CHECK(row_of("qwen3", "Qwen3-0.6B-Q8_0.gguf") == "Qwen3");
  CHECK(row_of("qwen3", "my own tune") == "Qwen3");
  CHECK(row_of("qwen3", "Qwen3 4B Instruct 2507") == "Qwen3 Instruct 2507");
  CHECK(row_of("qwen2", "qwen2.5-7b-instruct-q8_0.gguf") == "Qwen2 and Qwen2.5 Instruct");
  CHECK(row_of("qwen2", "Qwen2.5 0.5B Instruct") == "Qwen2 and Qwen2.5 Instruct, 0.5B");
  CHECK(row_of("qwen2", "DeepSeek R1 Distill Qwen 7B") == "DeepSeek-R1-Distill");
  CHECK(row_of("llama", "DeepSeek-R1-Distill-Llama-8B") == "DeepSeek-R1-Distill");
  CHECK(row_of("llama", "Llama 3.2 1B Instruct") == "Llama 3.x Instruct");
  CHECK(row_of("llama", "Meta-Llama-3.1-8B-Instruct-Q8_0.gguf") == "Llama 3.x Instruct");
  CHECK(row_of("llama", "SmolLM2-135M-Instruct") == "SmolLM2 Instruct");
  CHECK(row_of("llama", "Mistral-Nemo-Instruct-2407") == "Mistral Nemo Instruct");
  CHECK(row_of("qwen3_moe", "Qwen3-30B-A3B-Q8_0.gguf") == "Qwen3");
  CHECK(row_of("qwen3_moe", "Qwen3 Coder 30B A3B Instruct") == "Qwen3-Coder");
  CHECK(row_of("qwen3_next", "Qwen3-Coder-Next-Q8_0.gguf") == "Qwen3-Coder-Next");
  CHECK(row_of("qwen3_next", "Qwen3-Next-80B-A3B-Thinking") == "Qwen3-Next Thinking");
  CHECK(row_of("qwen3_5_text", "Qwen3.6-27B") == "Qwen3.6");
  CHECK(row_of("gemma3_text", "gemma-3-4b-it.gguf") == "Gemma 3 IT");
  CHECK(row_of("gemma3_text", "gemma-3-4b-it-Q8_0.gguf") == "Gemma 3 IT");
  CHECK(row_of("gemma4_text", "Gemma 4 31B It") == "Gemma 4 IT");
  CHECK(row_of("deepseek_v3", "DeepSeek-R1-0528") == "DeepSeek-R1");
  CHECK(row_of("deepseek_v32", "DeepSeek-V3.2-Q8_0.gguf") == "DeepSeek-V3.2");
  CHECK(row_of("deepseek_v3", "Kimi K2 Instruct 0905") == "Kimi-K2-Instruct");
  CHECK(row_of("deepseek_v3", "GLM-4.7-Flash-Q8_0.gguf") == "GLM-4.7-Flash");
  CHECK(row_of("glm4_moe", "GLM 4.7") == "GLM-4.7");
  CHECK(row_of("lfm2", "LFM2 1.2B") == "LFM2");
  CHECK(row_of("lfm2_moe", "LFM2 8B A1B") == "LFM2");
  CHECK(row_of("phi3", "Phi-4-reasoning-plus") == "Phi-4-reasoning");
  CHECK(row_of("gpt_oss", "gpt-oss-20b") == "gpt-oss");
  CHECK(row_of("smollm3", "SmolLM3-3B") == "SmolLM3");
}

TEST_CASE("published sampling: a GGUF file of Llama may have a window or experts, which make it another family") {
  for (const char* family : {"llama", "mistral", "mixtral"}) {
    CHECK(row_of(family, "Llama 3.2 1B Instruct") == "Llama 3.x Instruct");
    CHECK(row_of(family, "Mistral-Small-3.2-24B-Instruct-2506-Q8_0.gguf") == "Mistral Small 3 Instruct");
    CHECK(row_of(family, "SmolLM2-135M-Instruct") == "SmolLM2 Instruct");
  }
}

TEST_CASE("published sampling: each family with a GGUF architecture has rows, or there is a word why not") {
  std::set<std::string> found, none;
  for (const PublishedSampling& row : published_sampling()) {
    CHECK_FALSE(row.source.empty());
    CHECK(row.temperature.has_value());
    for (size_t at = 0; at < row.family.size();) {
      const size_t end = std::min(row.family.find(", ", at), row.family.size());
      found.emplace(row.family.substr(at, end - at));
      at = end + 2;
    }
  }
  for (const NonePublished& row : none_published()) {
    CHECK_FALSE(row.reason.empty());
    CHECK(none.emplace(row.family).second);
  }
  std::set<std::string> known;
  for (const Family& family : families()) {
    CAPTURE(family.name);
    const std::string name(family.name);
    known.insert(name);
    CHECK_FALSE((found.contains(name) && none.contains(name)));
    if (!family.gguf.empty()) CHECK((found.contains(name) || none.contains(name)));
  }
  for (const std::string& name : found) CHECK(known.contains(name));
  for (const std::string& name : none) CHECK(known.contains(name));
}

TEST_CASE("published sampling: none for base models, other tunes and other families") {
  CHECK(row_of("qwen3", "Qwen3-0.6B-Base-Q8_0.gguf") == "");
  CHECK(row_of("qwen2", "Qwen2.5-Coder-7B-Instruct") == "");
  CHECK(row_of("qwen2", "Qwen2.5-7B") == "");
  CHECK(row_of("llama", "codellama-34b-instruct") == "");
  CHECK(row_of("llama", "TinyLlama-1.1B-Chat") == "");
  CHECK(row_of("llama", "stories260K") == "");
  CHECK(row_of("gemma3_text", "gemma-3-4b-pt") == "");
  CHECK(row_of("lfm2", "LFM2.5-1.2B-Instruct") == "");
  CHECK(row_of("deepseek_v3", "DeepSeek-V3") == "");
  CHECK(row_of("qwen3_moe", "Qwen3-30B-A3B-Base") == "");
  CHECK(row_of("qwen2", "Qwen2.5-Math-7B-Instruct") == "");
}

TEST_CASE("published sampling: flags win, unpublished values are built in, and each origin is right") {
  ModelSampling model;
  model.published = find_published_sampling("qwen3", "Qwen3");
  SamplingFlags flags;
  flags.top_p = 0.5;
  const SamplingSettings s = resolve_sampling(flags, model, 7);
  CHECK(s.temperature.value == 0.6);
  CHECK(s.temperature.origin == Origin::kPublished);
  CHECK(s.origin_text(s.temperature.origin) == "published for Qwen3");
  CHECK(s.top_k.value == 20);
  CHECK(s.top_p.value == 0.5);
  CHECK(s.top_p.origin == Origin::kFlag);
  CHECK(s.min_p.origin == Origin::kBuiltIn);
  CHECK(s.seed.value == 7);
  CHECK(s.seed.origin == Origin::kRandom);
  model.published = find_published_sampling("lfm2", "LFM2-1.2B");
  CHECK(resolve_sampling(SamplingFlags(), model, 7).min_p.value == 0.15);
  // vLLM's word for all tokens.
  const auto all = JsonDocument::parse(R"({"top_k": -1})", "generation_config.json");
  model.config = all->root();
  CHECK(resolve_sampling(SamplingFlags(), model, 7).top_k.value == 0);
  flags.temperature = 0;
  CHECK(resolve_sampling(flags, model, 7).greedy());
}
