// ERNIE 4.5, dense: Llama with a rotation of adjacent pairs. transformers: models/ernie4_5.
// ERNIE 4.5, mixtures: experts by softmax, and a bias for the choice; shared ones. transformers: models/ernie4_5_moe.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

DecoderParts read_ernie(const Json& config, std::string_view family, const DecoderDefaults& defaults) {
  DecoderParts parts = read_decoder(config, family, defaults);
  const bool biases = config.flag_or("use_bias", false);
  parts.attention.qkv_bias = parts.attention.out_bias = parts.feed_forward.bias = biases;
  parts.model.ropes[0].pairs = Rope::Pairs::kAdjacent;
  if (!parts.model.tied_head) parts.model.tied_head = true;
  return parts;
}

}  // namespace

Description describe_ernie4_5(const Json& config) {
  return finish_decoder(read_ernie(
      config, "ernie4_5", {.kv_heads = 2, .head_dim = 128, .context = 131072, .rope_theta = 500000, .epsilon = 1e-5}));
}

Description describe_ernie4_5_moe(const Json& config) {
  DecoderParts parts =
      read_ernie(config, "ernie4_5_moe", {.kv_heads = 4, .context = 131072, .rope_theta = 500000, .epsilon = 1e-5});
  MixtureSpec mixture =
      read_mixture(config, parts.layers, {.experts = "moe_num_experts", .chosen = "moe_k", .default_chosen = 6});
  mixture.ranking_bias = true;
  mixture.normalized = true;
  // At least so much is what the sum counts for; added to it, it changes nothing as long as it is this small.
  constexpr double kMostLeast = 1e-6;
  mixture.least_sum = read_number(config, "moe_norm_min", 1e-12);
  if (mixture.least_sum > kMostLeast)
    config.at("moe_norm_min")
        .fail(fmt::format("{} is not supported (expected at most {})", mixture.least_sum, kMostLeast));
  mixture.shared_width = read_size(config, "moe_num_shared_experts", 0, kMaxWidth / mixture.width, 2) * mixture.width;
  const int64_t last = parts.layers - 1, first_moe = read_size(config, "moe_layer_start_index", 0, last, 1),
                end = read_size(config, "moe_layer_end_index", -1, last, -1), last_moe = end < 0 ? last : end,
                every = read_size(config, "moe_layer_interval", 1, kMaxLayers, 1);
  std::vector<bool> layers;
  for (int64_t i = 0; i <= last; ++i) layers.push_back((i + 1) % every == 0 && i >= first_moe && i <= last_moe);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, layers);
  name_shared_experts(model.names);
  model.names.set(Role::kRouterBias, "@layers.#.mlp.moe_statics.e_score_correction_bias");
  return model;
}

}  // namespace qgen
