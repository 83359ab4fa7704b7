// Phi-1, 1.5 and 2: attention and a network without gate side by side behind one LayerNorm, biases everywhere, a
// rotation of part of each head. transformers: models/phi. Phi-3, 3.5 and 4: Llama with q, k and v as one matrix, gate
// and up as another, a window, and in the long forms rotations whose divisors depend on the context (longrope).
// transformers: models/phi3.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_phi(const Json& config) {
  DecoderParts parts = read_decoder(config, "phi",
                                    {.epsilon = 1e-5,
                                     .partial_rotary = 0.5,
                                     .activation = Activation::kGeluTanh,
                                     .keys = {.epsilon = "layer_norm_eps"}});
  use_layer_norm(parts, true);
  parts.attention.qkv_bias = parts.attention.out_bias = parts.feed_forward.bias = true;
  parts.feed_forward.gated = false;
  if (config.flag_or("qk_layernorm", false)) parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  Description model = finish_decoder(std::move(parts));
  make_parallel(model);
  model.names.set({{Role::kFinalNorm, "@final_layernorm"},
                   {Role::kAttnQNorm, "@layers.#.self_attn.q_layernorm"},
                   {Role::kAttnKNorm, "@layers.#.self_attn.k_layernorm"},
                   {Role::kAttnOut, "@layers.#.self_attn.dense"},
                   {Role::kFfnUp, "@layers.#.mlp.fc1"},
                   {Role::kFfnDown, "@layers.#.mlp.fc2"}});
  return model;
}

Description describe_phi3(const Json& config) {
  DecoderParts parts = read_decoder(config, "phi3", {.context = 4096, .epsilon = 1e-5, .partial_rotary = 1});
  parts.attention.fused = parts.feed_forward.fused = true;
  parts.windows = read_windows(config, parts.layers, 0, 0);
  return finish_decoder(std::move(parts));
}

}  // namespace qgen
