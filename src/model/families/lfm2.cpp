// LFM2: gated short convolutions on most layers, attention with norms of q and k on the others; mixtures behind all but
// the first layers of the larger ones. transformers: models/lfm2, models/lfm2_moe.
#include <algorithm>

#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// The feed-forward width: with block_auto_adjust_ff_dim two thirds of the declared one, scaled and rounded up.
int64_t adjusted_width(const Json& config, int64_t width) {
  if (!config.flag_or("block_auto_adjust_ff_dim", true)) return width;
  const auto multiple = config.get("block_multiple_of");
  const int64_t of = multiple ? multiple->as_integer(1, kMaxWidth) : 256;
  const double part = read_number(config, "block_ffn_dim_multiplier", 1) * double(2 * width / 3);
  if (part > double(kMaxWidth)) config.fail("block_ffn_dim_multiplier: the network would be absurdly wide");
  return (int64_t(part) + of - 1) / of * of;
}

// Whether each layer is an attention: layer_types, or full_attn_idxs, or all.
std::vector<bool> read_attention_layers(const Json& config, int64_t layers) {
  std::vector<bool> out(size_t(layers), true);
  if (const auto types = config.get("layer_types")) {
    const auto list = types->elements();
    if (int64_t(list.size()) != layers) types->fail(fmt::format("names {} layers (expected {})", list.size(), layers));
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string_view type = list[i].as_string();
      if (type != "conv" && type != "full_attention")
        list[i].fail(fmt::format("'{}' is not supported", type), "supported: conv, full_attention");
      out[i] = type == "full_attention";
    }
  } else if (const auto indices = config.get("full_attn_idxs")) {
    out.assign(size_t(layers), false);
    for (const Json& index : indices->elements()) out[size_t(index.as_integer(0, layers - 1))] = true;
  }
  return out;
}

// The layers: `attention` or a convolution before each network.
Description finish_lfm2(const Json& config, DecoderParts parts) {
  if (const auto tied = config.get("tie_embedding")) parts.model.tied_head = tied->as_bool();
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  ShortConvSpec conv;
  const auto taps = config.get("conv_L_cache");
  conv.taps = taps ? taps->as_integer(1, 64) : 3;
  conv.bias = config.flag_or("conv_bias", false);
  const std::vector<bool> attention = read_attention_layers(config, parts.layers);
  Description model = finish_decoder(std::move(parts));
  for (size_t i = 0; i < attention.size(); ++i) {
    if (!attention[i]) model.layers[i][0].mixer = conv;
  }
  model.names.set({{Role::kFinalNorm, "@embedding_norm"},
                   {Role::kAttnNorm, "@layers.#.operator_norm"},
                   {Role::kFfnNorm, "@layers.#.ffn_norm"},
                   {Role::kAttnQNorm, "@layers.#.self_attn.q_layernorm"},
                   {Role::kAttnKNorm, "@layers.#.self_attn.k_layernorm"},
                   {Role::kAttnOut, "@layers.#.self_attn.out_proj"},
                   {Role::kFfnGate, "@layers.#.feed_forward.w1"},
                   {Role::kFfnUp, "@layers.#.feed_forward.w3"},
                   {Role::kFfnDown, "@layers.#.feed_forward.w2"}});
  model.gguf_names = {{Role::kFinalNorm, "token_embd_norm"}};
  return model;
}

}  // namespace

Description describe_lfm2(const Json& config) {
  DecoderKeys keys;
  keys.epsilon = "norm_eps";
  if (config.get("block_ff_dim")) keys.intermediate = "block_ff_dim";
  DecoderParts parts =
      read_decoder(config, "lfm2", {.context = 128000, .rope_theta = 1e6, .epsilon = 1e-5, .keys = keys});
  parts.feed_forward.width = adjusted_width(config, parts.feed_forward.width);
  return finish_lfm2(config, std::move(parts));
}

Description describe_lfm2_moe(const Json& config) {
  DecoderParts parts = read_decoder(config, "lfm2_moe",
                                    {.layers = 32,
                                     .hidden = 2048,
                                     .heads = 32,
                                     .kv_heads = 8,
                                     .intermediate = 7168,
                                     .vocab = 65536,
                                     .context = 128000,
                                     .rope_theta = 1e6,
                                     .epsilon = 1e-5,
                                     .keys = {.epsilon = "norm_eps"}});
  const int64_t layers = parts.layers,
                dense = read_size(config, "num_dense_layers", 0, layers, std::min<int64_t>(2, layers));
  MixtureSpec mixture = read_mixture(config, layers, {.default_chosen = 4});
  mixture.score = RouteStep::Score::kSigmoid;
  mixture.ranking_bias = config.flag_or("use_expert_bias", true);
  // transformers adds 1e-6 to the sum of the weights, which is some tenths at least.
  mixture.normalized = read_normalized(config, true);
  mixture.scale = read_number(config, "routed_scaling_factor", 1);
  Description model = finish_lfm2(config, std::move(parts));
  std::vector<bool> sparse(size_t(layers), true);
  std::fill_n(sparse.begin(), dense, false);
  set_mixtures(model, mixture, sparse);
  model.names.set({{Role::kRouter, "@layers.#.feed_forward.gate"},
                   {Role::kRouterBias, "@layers.#.feed_forward.expert_bias"},
                   {Role::kExpertGate, "@layers.#.feed_forward.experts.*.w1"},
                   {Role::kExpertUp, "@layers.#.feed_forward.experts.*.w3"},
                   {Role::kExpertDown, "@layers.#.feed_forward.experts.*.w2"}});
  return model;
}

}  // namespace qgen
