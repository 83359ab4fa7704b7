#include "generate/published_sampling.h"

#include <doctest/doctest.h>

#include <string>

#include "generate/sampling_settings.h"

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
}

TEST_CASE("published sampling: none for base models, other tunes and other families") {
  CHECK(row_of("qwen3", "Qwen3-0.6B-Base-Q8_0.gguf") == "");
  CHECK(row_of("qwen2", "Qwen2.5-Coder-7B-Instruct") == "");
  CHECK(row_of("qwen2", "Qwen2.5-7B") == "");
  CHECK(row_of("llama", "codellama-34b-instruct") == "");
  CHECK(row_of("llama", "TinyLlama-1.1B-Chat") == "");
  CHECK(row_of("llama", "stories260K") == "");
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
  flags.temperature = 0;
  CHECK(resolve_sampling(flags, model, 7).greedy());
}
