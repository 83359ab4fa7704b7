// GLM-4-9B in the form of transformers, and GLM-4-0414, which has norms behind its branches too: biases on q, k and v,
// gate and up as one matrix, a rotation of adjacent pairs in the first half of each head.
// transformers: models/glm, models/glm4. The text part of GLM-4.1V is the latter: its positions are one number for
// text.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

Description describe_any_glm(const Json& config, std::string_view family, const DecoderDefaults& defaults) {
  DecoderParts parts = read_decoder(config, family, defaults);
  parts.attention.qkv_bias = config.flag_or("attention_bias", true);
  parts.feed_forward.fused = true;
  if (!is_from_gguf(config)) parts.model.ropes[0].pairs = Rope::Pairs::kAdjacent;
  return finish_decoder(std::move(parts));
}

constexpr DecoderDefaults kGlm = {
    .kv_heads = 2, .head_dim = 128, .context = 131072, .epsilon = 1.5625e-7, .partial_rotary = 0.5};

Description describe_any_glm4(const Json& config, std::string_view family, const DecoderDefaults& defaults) {
  Description model = describe_any_glm(config, family, defaults);
  model.names.set(Role::kAttnPostNorm, "@layers.#.post_self_attn_layernorm");
  model.names.set(Role::kFfnPostNorm, "@layers.#.post_mlp_layernorm");
  add_post_norms(model);
  return model;
}

}  // namespace

Description describe_glm(const Json& config) { return describe_any_glm(config, "glm", kGlm); }

Description describe_glm4(const Json& config) { return describe_any_glm4(config, "glm4", kGlm); }

Description describe_glm4v(const Json& config) {
  return describe_any_glm4(config, "glm4v", {.kv_heads = 2, .context = 32768, .epsilon = 1e-5, .partial_rotary = 1});
}

}  // namespace qgen
