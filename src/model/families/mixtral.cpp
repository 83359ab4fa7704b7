// Mixtral, OLMoE and MiniMax-M2: plain attention and, in every layer, a mixture. transformers: models/mixtral,
// models/olmoe, models/minimax_m2.
#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// The names of Mixtral's mixtures, which others took over. transformers 5 has names of its own for what it loads, which
// ModelOpt writes; AutoRound names the projections as it does.
void name_block_sparse_moe(Description& model) {
  Names& names = model.names;
  names.set(Role::kRouter, "@layers.#.block_sparse_moe.gate");
  names.set(Role::kRouterBias, "@layers.#.block_sparse_moe.e_score_correction_bias");
  names.set(Role::kExpertGate, "@layers.#.block_sparse_moe.experts.*.w1");
  names.set(Role::kExpertUp, "@layers.#.block_sparse_moe.experts.*.w3");
  names.set(Role::kExpertDown, "@layers.#.block_sparse_moe.experts.*.w2");
  model.other_names = {{{Role::kRouter, "@layers.#.mlp.gate"},
                        {Role::kRouterBias, "@layers.#.mlp.e_score_correction_bias"},
                        {Role::kExpertGate, "@layers.#.mlp.experts.*.gate_proj"},
                        {Role::kExpertUp, "@layers.#.mlp.experts.*.up_proj"},
                        {Role::kExpertDown, "@layers.#.mlp.experts.*.down_proj"}},
                       {{Role::kExpertGate, "@layers.#.block_sparse_moe.experts.*.gate_proj"},
                        {Role::kExpertUp, "@layers.#.block_sparse_moe.experts.*.up_proj"},
                        {Role::kExpertDown, "@layers.#.block_sparse_moe.experts.*.down_proj"}}};
}

Description finish_mixture(DecoderParts parts, const MixtureSpec& mixture) {
  const std::vector<bool> layers(size_t(parts.layers), true);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, layers);
  return model;
}

}  // namespace

Description describe_mixtral(const Json& config) {
  DecoderParts parts = read_decoder(config, "mixtral", {.context = 131072, .rope_theta = 1e6, .epsilon = 1e-5});
  if (const auto window = config.get("sliding_window"))
    parts.windows.assign(parts.windows.size(), window->as_integer(1));
  MixtureSpec mixture = read_mixture(
      config, parts.layers, {.experts = "num_local_experts", .width = "intermediate_size", .default_chosen = 2});
  mixture.normalized = true;
  Description model = finish_mixture(std::move(parts), mixture);
  name_block_sparse_moe(model);
  return model;
}

Description describe_olmoe(const Json& config) {
  DecoderParts parts = read_decoder(config, "olmoe", {.context = 4096, .epsilon = 1e-5});
  if (const auto clip = config.get("clip_qkv")) clip->fail("is not supported (expected null)");
  if (const auto bias = config.get("attention_bias"))
    parts.attention.qkv_bias = parts.attention.out_bias = bias->as_bool();
  NormSpec norm = parts.norm;
  norm.whole_row = true;
  parts.attention.q_norm = parts.attention.k_norm = norm;
  MixtureSpec mixture = read_mixture(config, parts.layers, {.width = "intermediate_size", .default_chosen = 8});
  mixture.normalized = read_normalized(config, false);
  return finish_mixture(std::move(parts), mixture);
}

Description describe_minimax_m2(const Json& config) {
  const auto rotary = config.get("rotary_dim"), head = config.get("head_dim");
  const double partial =
      rotary && head ? double(rotary->as_integer(2, kMaxWidth)) / double(head->as_integer(2, kMaxWidth)) : 0.5;
  DecoderParts parts = read_decoder(config, "minimax_m2",
                                    {.head_dim = 128, .context = 196608, .rope_theta = 5e6, .partial_rotary = partial});
  const auto use = config.get("use_qk_norm");
  if (!use || use->as_bool()) {
    NormSpec norm = parts.norm;
    norm.whole_row = true;
    parts.attention.q_norm = parts.attention.k_norm = norm;
  }
  MixtureSpec mixture = read_mixture(
      config, parts.layers, {.experts = "num_local_experts", .width = "intermediate_size", .default_chosen = 8});
  mixture.score = RouteStep::Score::kSigmoid;
  mixture.ranking_bias = true;
  mixture.normalized = true;
  Description model = finish_mixture(std::move(parts), mixture);
  name_block_sparse_moe(model);
  return model;
}

}  // namespace qgen
