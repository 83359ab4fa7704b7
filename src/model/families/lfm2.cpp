// LFM2: gated short convolutions on most layers, attention with norms of q and k on the others; mixtures behind all but
// the first layers of the larger ones. transformers: models/lfm2, models/lfm2_moe.
// LFM3: norms behind the branches too, windows on some of the attentions, a gate for each head, and two rotations.
// transformers: models/lfm3.
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

// layer_types, each of them in `known`.
std::vector<std::string_view> read_layer_types(const Json& types, int64_t layers,
                                               const std::vector<std::string_view>& known) {
  const auto list = types.elements();
  if (int64_t(list.size()) != layers) types.fail(fmt::format("names {} layers (expected {})", list.size(), layers));
  std::vector<std::string_view> out;
  for (const Json& type : list) {
    out.push_back(type.as_string());
    if (std::ranges::find(known, out.back()) == known.end())
      type.fail(fmt::format("'{}' is not supported", out.back()), fmt::format("supported: {}", fmt::join(known, ", ")));
  }
  return out;
}

// Whether each layer is an attention: layer_types, or full_attn_idxs, or all.
std::vector<bool> read_attention_layers(const Json& config, int64_t layers) {
  std::vector<bool> out(size_t(layers), true);
  if (const auto types = config.get("layer_types")) {
    const auto names = read_layer_types(*types, layers, {"conv", "full_attention"});
    for (size_t i = 0; i < names.size(); ++i) out[i] = names[i] == "full_attention";
  } else if (const auto indices = config.get("full_attn_idxs")) {
    out.assign(size_t(layers), false);
    for (const Json& index : indices->elements()) out[size_t(index.as_integer(0, layers - 1))] = true;
  }
  return out;
}

// The layers: an attention or a convolution before each network.
Description finish_layers(const Json& config, DecoderParts parts, const std::vector<bool>& attention, int64_t taps) {
  if (const auto tied = config.get("tie_embedding")) parts.model.tied_head = tied->as_bool();
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  const ShortConvSpec conv{read_size(config, "conv_L_cache", 1, 64, taps), config.flag_or("conv_bias", false)};
  Description model = finish_decoder(std::move(parts));
  for (size_t i = 0; i < attention.size(); ++i) {
    if (!attention[i]) model.layers[i][0].mixer = conv;
  }
  model.names.set({{Role::kFinalNorm, "@embedding_norm"},
                   {Role::kAttnNorm, "@layers.#.operator_norm"},
                   {Role::kFfnNorm, "@layers.#.ffn_norm"},
                   {Role::kFfnGate, "@layers.#.feed_forward.w1"},
                   {Role::kFfnUp, "@layers.#.feed_forward.w3"},
                   {Role::kFfnDown, "@layers.#.feed_forward.w2"}});
  return model;
}

Description finish_lfm2(const Json& config, DecoderParts parts) {
  const std::vector<bool> attention = read_attention_layers(config, parts.layers);
  Description model = finish_layers(config, std::move(parts), attention, 3);
  model.names.set({{Role::kAttnQNorm, "@layers.#.self_attn.q_layernorm"},
                   {Role::kAttnKNorm, "@layers.#.self_attn.k_layernorm"},
                   {Role::kAttnOut, "@layers.#.self_attn.out_proj"}});
  model.gguf_names = {{Role::kFinalNorm, "token_embd_norm"}};
  return model;
}

// Of layers that see everything, and of those with a window.
std::vector<Rope> read_lfm3_ropes(const Json& config, int64_t context, int64_t head_dim) {
  std::vector<Rope> ropes = read_layer_ropes(config, context, head_dim, 1e6, 1e4);
  if (!ropes.empty()) return ropes;
  ropes = {plain_rope(context, head_dim, 1e6), plain_rope(context, head_dim)};
  ropes.front().pairs_turned = head_dim / 4;
  return ropes;
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

Description describe_lfm3(const Json& config) {
  DecoderParts parts = read_decoder(config, "lfm3",
                                    {.layers = 24,
                                     .hidden = 2048,
                                     .heads = 16,
                                     .kv_heads = 4,
                                     .head_dim = 128,
                                     .intermediate = 7680,
                                     .vocab = 128000,
                                     .context = 128000,
                                     .epsilon = 1e-5,
                                     .partial_rotary = kWholeHead,
                                     .keys = {.epsilon = "norm_eps"}});
  parts.attention.qkv_bias = parts.attention.out_bias = config.flag_or("attention_bias", false);
  if (config.flag_or("use_attention_gate", true)) parts.attention.gate = AttentionSpec::Gate::kHeads;
  parts.model.ropes = read_lfm3_ropes(config, parts.model.context, parts.attention.head_dim);
  const auto own_window = config.find("sliding_window");
  const int64_t window =
      own_window && own_window->is_null() ? 0 : read_size(config, "sliding_window", 1, kMaxContext, 256);
  std::vector<std::string_view> types;
  if (const auto named = config.get("layer_types")) {
    types = read_layer_types(*named, parts.layers, {"conv", "sliding_attention", "full_attention"});
  } else {
    for (int64_t i = 0; i < parts.layers; ++i)
      types.push_back(i % 4 == 2 ? "full_attention" : i % 4 == 0 && i > 0 ? "sliding_attention" : "conv");
  }
  std::vector<bool> attention;
  for (const std::string_view type : types) attention.push_back(type != "conv");
  Description model = finish_layers(config, std::move(parts), attention, 7);
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "sliding_attention") continue;
    attention_of(model.layers[i]).window = window;
    attention_of(model.layers[i]).rope = 1;
  }
  if (config.flag_or("use_sandwich_norm", true)) add_post_norms(model);
  model.names.set(
      {{Role::kAttnPostNorm, "@layers.#.post_operator_norm"}, {Role::kFfnPostNorm, "@layers.#.post_ffn_norm"}});
  model.other_names = {{{Role::kAttnGate, "@layers.#.self_attn.g_proj"}}};
  return model;
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
                   {Role::kExpertDown, "@layers.#.feed_forward.experts.*.w2"},
                   {Role::kExpertGateUps, "@layers.#.feed_forward.experts.gate_up_proj"},
                   {Role::kExpertDowns, "@layers.#.feed_forward.experts.down_proj"}});
  // As transformers calls them in memory.
  model.other_names = {{{Role::kExpertDown, "@layers.#.feed_forward.experts.*.down_proj"},
                        {Role::kExpertGate, "@layers.#.feed_forward.experts.*.gate_proj"},
                        {Role::kExpertUp, "@layers.#.feed_forward.experts.*.up_proj"}}};
  return model;
}

}  // namespace qgen
