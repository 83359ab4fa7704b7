// EXAONE 3 and 3.5: Llama under other names. transformers: models/exaone.
// EXAONE 4: norms behind the branches instead of before them, norms of the heads of q and k; where some layers have a
// window, the others have no rotation. transformers: models/exaone4.
// K-EXAONE: the same attention, norms before the branches, and mixtures chosen by sigmoids and a bias. transformers:
// models/exaone_moe.
#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// The attention of all layers, and whether those without a window rotate nothing.
bool read_attention(const Json& config, DecoderParts& parts) {
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  // GGUF files of models without windows have no key.
  const int64_t window = is_from_gguf(config) ? 0 : 4096;
  parts.windows = read_windows(config, parts.layers, window, 4);
  const auto own_window = config.find("sliding_window");
  return own_window ? !own_window->is_null() : window > 0;
}

void stop_rotation(Description& model) {
  for (auto& layer : model.layers) attention_of(layer).rope = attention_of(layer).window == 0 ? -1 : 0;
}

}  // namespace

Description describe_exaone(const Json& config) {
  const DecoderKeys keys = {
      .layers = "num_layers", .activation = "activation_function", .epsilon = "layer_norm_epsilon"};
  DecoderParts parts = read_decoder(
      config, "exaone", {.kv_heads = 8, .context = 4096, .rope_theta = 500000, .epsilon = 1e-5, .keys = keys});
  read_biases(config, parts);
  Description model = finish_decoder(std::move(parts));
  if (is_from_gguf(config)) return model;
  model.names.set_prefix("transformer.");
  model.names.set({{Role::kEmbed, "@wte"},
                   {Role::kFinalNorm, "@ln_f"},
                   {Role::kAttnNorm, "@h.#.ln_1"},
                   {Role::kAttnQ, "@h.#.attn.attention.q_proj"},
                   {Role::kAttnK, "@h.#.attn.attention.k_proj"},
                   {Role::kAttnV, "@h.#.attn.attention.v_proj"},
                   {Role::kAttnOut, "@h.#.attn.attention.out_proj"},
                   {Role::kFfnNorm, "@h.#.ln_2"},
                   {Role::kFfnGate, "@h.#.mlp.c_fc_0"},
                   {Role::kFfnUp, "@h.#.mlp.c_fc_1"},
                   {Role::kFfnDown, "@h.#.mlp.c_proj"}});
  return model;
}

Description describe_exaone4(const Json& config) {
  DecoderParts parts = read_decoder(config, "exaone4", {.epsilon = 1e-5});
  const bool windows = read_attention(config, parts);
  Description model = finish_decoder(std::move(parts));
  add_post_norms(model, /*instead=*/true);
  if (windows) stop_rotation(model);
  return model;
}

Description describe_exaone_moe(const Json& config) {
  DecoderParts parts = read_decoder(config, "exaone_moe", {.epsilon = 1e-5});
  const bool windows = read_attention(config, parts);
  MixtureSpec mixture = read_mixture(config, parts.layers, {.default_chosen = 8});
  mixture.scale = 2.5;
  read_sigmoid_choice(config, mixture);
  read_shared_experts(config, mixture, 1);
  const std::vector<bool> sparse = read_sparse_layers(config, parts.layers, is_from_gguf(config) ? 0 : 1);
  Description model = finish_decoder(std::move(parts));
  if (windows) stop_rotation(model);
  set_mixtures(model, mixture, sparse);
  name_shared_experts(model.names);
  model.names.set(Role::kRouterBias, "@layers.#.mlp.e_score_correction_bias");
  // Of GGUF files; elsewhere their tensors are no layers' by name.
  if (is_from_gguf(config)) model.drafting_layers = {int64_t(sparse.size()), int64_t(sparse.size()) + 1};
  return model;
}

}  // namespace qgen
