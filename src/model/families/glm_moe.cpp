// GLM-4.5, 4.6 and 4.7: half of each head is rotated; after a few dense layers mixtures that are chosen by sigmoids and
// a bias, with a shared expert; one more layer that drafts. transformers: models/glm4_moe.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {

Description describe_glm4_moe(const Json& config) {
  DecoderParts parts = read_decoder(config, "glm4_moe", {.context = 131072, .epsilon = 1e-5, .partial_rotary = 0.5});
  if (config.flag_or("use_qk_norm", false)) parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  parts.attention.qkv_bias = config.flag_or("attention_bias", false);
  const int64_t count = parts.layers;
  MixtureSpec mixture = read_mixture(config, count, {.experts = "n_routed_experts", .default_chosen = 8});
  read_sigmoid_choice(config, mixture);
  std::vector<bool> layers(size_t(count), true);
  const auto dense = config.get("first_k_dense_replace");
  std::fill_n(layers.begin(), dense ? dense->as_integer(0, count) : 1, false);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, layers);
  name_shared_experts(model.names);
  set_draft(model, config, "num_nextn_predict_layers", {model.layers.back(), model.final_norm});
  model.gguf_names = {{Role::kFfnNorm, "blk.#.post_attention_norm"}};
  return model;
}

}  // namespace qgen
