// Trinity (AFMoE): norms before and behind the branches, norms of the heads of q and k, a sigmoid of another product of
// the input that attention's results are multiplied by; windows on three of four layers, the others without rotation;
// after a few dense layers mixtures that are chosen by sigmoids and a bias, with shared experts. transformers:
// models/afmoe.
#include <cmath>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {

Description describe_afmoe(const Json& config) {
  DecoderParts parts = read_decoder(config, "afmoe", {.head_dim = 128, .context = 16384, .epsilon = 1e-5});
  read_biases(config, parts);
  parts.feed_forward.bias = false;
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  parts.attention.gate = AttentionSpec::Gate::kElements;
  const int64_t every = read_size(config, "global_attn_every_n_layers", 1, kMaxLayers, 4);
  parts.windows = read_windows(config, parts.layers, 1024, every);
  MixtureSpec mixture = read_mixture(config, parts.layers, {.default_chosen = 6});
  read_sigmoid_choice(config, mixture);
  mixture.normalized = config.flag_or("route_norm", mixture.normalized);
  mixture.scale = read_number(config, "route_scale", mixture.scale);
  read_shared_experts(config, mixture, 2);
  const int64_t dense = read_size(config, "num_dense_layers", 0, parts.layers, is_from_gguf(config) ? 0 : 1);
  const std::vector<bool> sparse = read_sparse_layers(config, parts.layers, dense);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, sparse);
  add_post_norms(model);
  for (auto& layer : model.layers) attention_of(layer).rope = attention_of(layer).window > 0 ? 0 : -1;
  // GGUF files do not say it, and llama.cpp takes it for granted.
  if (config.flag_or("mup_enabled", is_from_gguf(config))) model.embed_scale = std::sqrt(double(model.hidden));
  name_shared_experts(model.names);
  model.names.set({{Role::kRouter, "@layers.#.mlp.router.gate"},
                   {Role::kRouterBias, "@layers.#.mlp.expert_bias"},
                   {Role::kFfnNorm, "@layers.#.pre_mlp_layernorm"},
                   {Role::kFfnPostNorm, "@layers.#.post_mlp_layernorm"}});
  return model;
}

}  // namespace qgen
