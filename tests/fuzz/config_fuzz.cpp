// Any bytes as config.json, as an index and as generation_config.json: an Error, or settings within their limits.
#include "checkpoint/checkpoint.h"
#include "generate/sampler.h"
#include "model/families/table.h"
#include "quant/formats.h"
#include "tests/fuzz/support.h"

using qgen::fuzz::expect_model_error;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 256, 4 << 20);
  const std::string_view text = qgen::fuzz::text_of(data, size);
  expect_model_error([&] {
    const auto document = qgen::JsonDocument::parse(text, "config.json");
    const qgen::Description model = qgen::describe(document->root());
    if (model.layers < 1 || model.window.size() != size_t(model.layers) || model.heads % model.kv_heads != 0)
      std::abort();
    if (qgen::inverse_frequencies(model.rope, model.head_dim, 100).size() != size_t(model.head_dim / 2)) std::abort();
  });
  expect_model_error([&] {
    const auto document = qgen::JsonDocument::parse(text, "config.json");
    qgen::QuantConfig::read(document->root());
    qgen::Declaration::read(document->root(), nullptr).scheme_of("model.layers.0.self_attn.q_proj");
  });
  expect_model_error([&] {
    for (const auto& path : qgen::parse_index(text, "index.json", "/folder").paths) {
      if (path.parent_path() != "/folder") std::abort();
    }
  });
  expect_model_error([&] {
    const auto document = qgen::JsonDocument::parse(text, "generation_config.json");
    const qgen::SamplingSettings settings = qgen::resolve_sampling({}, {document->root()}, 1);
    qgen::read_end_tokens(document->root());
    qgen::Sampler sampler(settings);
    const std::vector<float> scores{0.5f, -1, 3.25f, 3, -20, 2.5f};
    sampler.see_prompt(std::vector<qgen::TokenId>{1, 2, 2});
    for (int i = 0; i < 3; ++i) {
      const qgen::TokenId token = sampler.choose(scores);
      if (token < 0 || size_t(token) >= scores.size()) std::abort();
      sampler.see_generated(token);
    }
  });
  return 0;
}
