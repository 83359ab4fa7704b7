// GLM-4.5, 4.6 and 4.7: half of each head is rotated; after a few dense layers mixtures that are chosen by sigmoids and
// a bias, with a shared expert; one more layer that drafts. transformers: models/glm4_moe. Solar Open has mixtures on
// all layers and rotates whole heads: models/solar_open. dots.llm1 has norms of the heads of q and k: models/dots1.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {

namespace {

// All but the first `dense` layers, where nothing is said.
Description finish_mixtures(const Json& config, DecoderParts parts, const MixtureSpec& mixture, int64_t dense) {
  const std::vector<bool> layers = read_sparse_layers(config, parts.layers, dense);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, layers);
  name_shared_experts(model.names);
  return model;
}

}  // namespace

Description describe_glm4_moe(const Json& config) {
  DecoderParts parts = read_decoder(config, "glm4_moe", {.context = 131072, .epsilon = 1e-5, .partial_rotary = 0.5});
  if (config.flag_or("use_qk_norm", false)) parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  parts.attention.qkv_bias = config.flag_or("attention_bias", false);
  MixtureSpec mixture = read_mixture(config, parts.layers, {.experts = "n_routed_experts", .default_chosen = 8});
  read_sigmoid_choice(config, mixture);
  Description model = finish_mixtures(config, std::move(parts), mixture, is_from_gguf(config) ? 0 : 1);
  set_draft(model, config, "num_nextn_predict_layers", {model.layers.back(), model.final_norm});
  model.gguf_names = {{Role::kFfnNorm, "blk.#.post_attention_norm"}};
  return model;
}

Description describe_solar_open(const Json& config) {
  constexpr int64_t kUnusedWidth = 10240;  // no layer has a network alone
  DecoderParts parts = read_decoder(config, "solar_open",
                                    {.kv_heads = 8,
                                     .head_dim = 128,
                                     .intermediate = kUnusedWidth,
                                     .context = 131072,
                                     .rope_theta = 1e6,
                                     .epsilon = 1e-5,
                                     .partial_rotary = 1});
  parts.attention.qkv_bias = config.flag_or("attention_bias", false);
  MixtureSpec mixture = read_mixture(config, parts.layers, {.experts = "n_routed_experts", .default_chosen = 8});
  read_sigmoid_choice(config, mixture);
  return finish_mixtures(config, std::move(parts), mixture, 0);
}

Description describe_dots1(const Json& config) {
  DecoderParts parts = read_decoder(config, "dots1");
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  read_biases(config, parts);
  parts.windows = read_last_windows(config, parts.layers, 62);
  MixtureSpec mixture = read_mixture(config, parts.layers, {.experts = "n_routed_experts"});
  read_sigmoid_choice(config, mixture);
  mixture.normalized = read_normalized(config, false);
  return finish_mixtures(config, std::move(parts), mixture, 0);
}

}  // namespace qgen
