// Any bytes as config.json, as an index and as generation_config.json: an Error, or settings within their limits.
#include "checkpoint/checkpoint.h"
#include "generate/sampler.h"
#include "model/families/common.h"
#include "model/families/table.h"
#include "quant/formats.h"
#include "tests/fuzz/support.h"

using qgen::fuzz::expect_model_error;

namespace {

// The file beside config.json that says how a model is quantized, if there is one.
enum class Beside : uint8_t { kNothing, kModelOpt, kMsModelSlim };

bool is_rope(const qgen::Description& model, int32_t rope) { return rope < int32_t(model.ropes.size()); }

// What the planner takes for granted.
void check_block(const qgen::Description& model, const qgen::BlockSpec& block) {
  if (const auto* attention = std::get_if<qgen::AttentionSpec>(&block.mixer)) {
    if (attention->heads < 1 || attention->kv_heads < 1 || attention->head_dim < 1) std::abort();
    if (attention->heads % attention->kv_heads != 0 || !is_rope(model, attention->rope)) std::abort();
  } else if (const auto* latent = std::get_if<qgen::LatentSpec>(&block.mixer)) {
    if (latent->heads < 1 || latent->kv_rank < 1 || !is_rope(model, latent->rope)) std::abort();
  } else if (const auto* mixture = std::get_if<qgen::MixtureSpec>(&block.mixer)) {
    if (mixture->chosen < 1 || mixture->chosen > mixture->experts) std::abort();
    if (mixture->groups < 1 || mixture->kept_groups > mixture->groups) std::abort();
  } else if (const auto* delta = std::get_if<qgen::DeltaSpec>(&block.mixer)) {
    if (delta->key_heads < 1 || delta->value_heads % delta->key_heads != 0) std::abort();
  } else if (const auto* mamba = std::get_if<qgen::MambaSpec>(&block.mixer)) {
    if (mamba->groups < 1 || mamba->heads % mamba->groups != 0) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 256, 32 << 20);  // a layer has several descriptions, and there may be 4096
  const std::string_view text = qgen::fuzz::text_of(data, size);
  expect_model_error([&] {
    const auto document = qgen::JsonDocument::parse(text, "config.json");
    const qgen::Description model = qgen::describe(document->root());
    if (model.layers.empty() || model.hidden < 1 || model.vocab < 1) std::abort();
    for (const auto& layer : model.layers) {
      for (const qgen::BlockSpec& block : layer) check_block(model, block);
    }
    for (const qgen::Rope& rope : model.ropes) {
      if (rope.scaling == qgen::Rope::Scaling::kFactors) continue;  // these are bound by the planner
      if (qgen::inverse_frequencies(rope, 100).size() != size_t(rope.dim / 2)) std::abort();
    }
  });
  expect_model_error([&] {
    const auto document = qgen::JsonDocument::parse(text, "config.json");
    qgen::QuantConfig::read(document->root(), qgen::ModelFiles("model", {}));
  });
  for (const Beside beside : {Beside::kNothing, Beside::kModelOpt, Beside::kMsModelSlim}) {
    expect_model_error([&] {
      const auto document = qgen::JsonDocument::parse(text, "config.json");
      const auto declared =
          qgen::Declaration::read(document->root(), beside == Beside::kModelOpt ? document.get() : nullptr,
                                  beside == Beside::kMsModelSlim ? document.get() : nullptr);
      declared.scheme_of("model.layers.0.self_attn.q_proj");
    });
  }
  expect_model_error([&] {
    for (const auto& path : qgen::parse_index(text, "index.json", "/folder").paths) {
      if (path.parent_path() != "/folder") std::abort();
    }
  });
  expect_model_error([&] {
    const auto document = qgen::JsonDocument::parse(text, "generation_config.json");
    const qgen::SamplingSettings settings = qgen::resolve_sampling({}, {document->root()}, 1);
    for (const qgen::TokenId token : qgen::read_end_tokens(document->root())) {
      if (token < 0) std::abort();
    }
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
