// StarCoder2: LayerNorm, biases everywhere, GELU without a gate, a window. transformers: models/starcoder2.
// StableLM: LayerNorm before Llama's branches, or one for both side by side, and a rotation of a quarter of each head;
// StableLM 2 12B has norms of the heads of q and k.
// transformers: models/stablelm.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_starcoder2(const Json& config) {
  DecoderParts parts = read_decoder(config, "starcoder2",
                                    {.kv_heads = 2,
                                     .context = 4096,
                                     .epsilon = 1e-5,
                                     .activation = Activation::kGeluTanh,
                                     .keys = {.epsilon = "norm_epsilon"}});
  use_layer_norm(parts, true);
  const bool biases = config.flag_or("use_bias", true);
  parts.attention.qkv_bias = parts.attention.out_bias = parts.feed_forward.bias = biases;
  parts.feed_forward.gated = false;
  parts.windows = read_windows(config, parts.layers, 0, 0);
  Description model = finish_decoder(std::move(parts));
  if (!model.tied_head) model.tied_head = true;
  model.names.set(Role::kFfnUp, "@layers.#.mlp.c_fc");
  model.names.set(Role::kFfnDown, "@layers.#.mlp.c_proj");
  return model;
}

Description describe_stablelm(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "stablelm",
                   {.context = 4096, .epsilon = 1e-5, .partial_rotary = 0.25, .keys = {.epsilon = "layer_norm_eps"}});
  use_layer_norm(parts, true);
  parts.attention.qkv_bias = config.flag_or("use_qkv_bias", false);
  if (config.flag_or("qk_layernorm", false)) {
    NormSpec of_heads = parts.norm;
    of_heads.biased = false;
    of_heads.per_head = true;
    parts.attention.q_norm = parts.attention.k_norm = of_heads;
  }
  Description model = finish_decoder(std::move(parts));
  model.names.set(Role::kAttnQNorm, "@layers.#.self_attn.q_layernorm.norms.*");
  model.names.set(Role::kAttnKNorm, "@layers.#.self_attn.k_layernorm.norms.*");
  if (config.flag_or("use_parallel_residual", false)) make_parallel(model);
  return model;
}

}  // namespace qgen
