// Gemma 4 (text): Gemma 3's block with norms that are not stored less one, normalized values, scores that are not
// scaled, layers that see everything with heads of their own size, whose values are their keys, and a number that each
// layer's result is multiplied by. 26B-A4B has a mixture beside each network; E2B and E4B have inputs of each layer,
// and last layers that read the keys and values of earlier ones. transformers: models/gemma4.
#include <cmath>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// Of each layer, whether it has a window. The last has none.
std::vector<int64_t> read_gemma4_windows(const Json& config, int64_t layers) {
  std::vector<int64_t> out = read_windows(config, layers, 512, 6);
  out.back() = 0;
  return out;
}

void add_ropes(const Json& config, Description& model, int64_t head_dim, int64_t global_dim) {
  const auto parameters = config.get("rope_parameters");
  const auto of = [&](std::string_view layers) { return parameters ? parameters->get(layers) : std::optional<Json>(); };
  Rope local = plain_rope(model.context, head_dim);
  if (const auto sliding = of("sliding_attention")) local = read_rope_parameters(*sliding, model.context, head_dim);
  Rope global = plain_rope(model.context, global_dim, 1e6);
  global.pairs_turned = global_dim / 8;
  if (const auto full = of("full_attention")) global = read_rope_parameters(*full, model.context, global_dim, 1e6);
  model.ropes = {global, local};
}

DoubleFeedForwardSpec read_experts(const Json& config, const DecoderParts& parts) {
  DoubleFeedForwardSpec out{parts.feed_forward, {}, parts.norm};
  const bool old_width = !config.get("moe_intermediate_size") && config.get("expert_intermediate_size");
  out.mixture = read_mixture(
      config, parts.layers,
      {.chosen = "top_k_experts", .width = old_width ? "expert_intermediate_size" : "moe_intermediate_size"});
  out.mixture.activation = parts.feed_forward.activation;
  out.mixture.normalized = true;
  out.mixture.logit_scale = 1 / std::sqrt(double(parts.model.hidden));
  out.mixture.expert_scale = true;
  return out;
}

// Layers from `first` on read what the last layer of their kind before it keeps.
void share_caches(const Json& config, Description& model, int64_t first) {
  for (size_t i = size_t(first); i < model.layers.size(); ++i) {
    AttentionSpec& attention = attention_of(model.layers[i]);
    for (int64_t j = first - 1; j >= 0 && attention.shares_layer < 0; --j) {
      if ((attention_of(model.layers[size_t(j)]).window > 0) == (attention.window > 0)) attention.shares_layer = j;
    }
    if (attention.shares_layer < 0)
      config.fail(fmt::format("num_kv_shared_layers: layer {} finds none of its kind before layer {}", i, first));
  }
}

// What layers without a window have of their own, as transformers 5 writes it: per_layer_config by the layer's number,
// which must say the same for all of them.
std::optional<Json> read_global_config(const Json& config, const std::vector<int64_t>& windows) {
  const auto layers = config.get("per_layer_config");
  if (!layers) return {};
  std::optional<Json> out;
  for (const auto& [layer, value] : layers->members()) {
    for (const auto& [key, number] : value.members()) {
      if (key != "head_dim" && key != "num_key_value_heads") number.fail("is not supported for single layers");
    }
    const size_t index = size_t(std::strtoull(std::string(layer).c_str(), nullptr, 10));
    if (index >= windows.size() || windows[index] > 0) value.fail("a layer with a window, or none of the model");
    if (!out) out = value;
    for (const std::string_view key : {"head_dim", "num_key_value_heads"}) {
      if (read_size(value, key, 1, kMaxWidth, 0) != read_size(*out, key, 1, kMaxWidth, 0))
        value.fail("differs from other layers without a window, which is not supported");
    }
  }
  return out;
}

}  // namespace

Description describe_gemma4(const Json& config) {
  refuse_bidirectional(config);
  DecoderParts parts = read_decoder(config, "gemma4",
                                    {.layers = 30,
                                     .hidden = 2304,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .head_dim = 256,
                                     .intermediate = 9216,
                                     .vocab = 262144,
                                     .context = 131072});
  const int64_t count = parts.layers;
  parts.windows = read_gemma4_windows(config, count);
  parts.feed_forward.activation = read_activation(config, "hidden_activation", Activation::kGeluTanh);
  AttentionSpec& attention = parts.attention;
  attention.qkv_bias = attention.out_bias = config.flag_or("attention_bias", false);
  attention.q_norm = attention.k_norm = attention.v_norm = parts.norm;
  attention.v_norm->weighted = false;
  attention.scale = 1;
  AttentionSpec global = attention;
  const auto own = read_global_config(config, parts.windows);
  // An empty map: all layers are alike.
  const int64_t default_dim = config.get("per_layer_config") ? attention.head_dim : 512;
  if (const int64_t dim = read_size(config, "global_head_dim", 0, kMaxWidth, default_dim); dim > 0)
    global.head_dim = dim;
  if (own) global.head_dim = read_size(*own, "head_dim", 2, kMaxWidth, global.head_dim);
  if (config.flag_or("attention_k_eq_v", false)) {
    global.values_from_keys = true;
    const int64_t heads = own ? read_size(*own, "num_key_value_heads", 1, global.heads, 0)
                              : read_size(config, "num_global_key_value_heads", 0, global.heads, 0);
    if (heads > 0) {
      global.kv_heads = heads;
      if (global.heads % heads != 0)
        config.fail(fmt::format("num_global_key_value_heads: {} does not divide the {} heads", heads, global.heads));
    }
  }
  if (global.head_dim % 2 != 0 || global.heads * global.head_dim > kMaxWidth)
    config.fail(fmt::format("global_head_dim: {} is odd or absurdly large", global.head_dim));
  add_ropes(config, parts.model, attention.head_dim, global.head_dim);
  attention.rope = 1;
  const NormSpec norm = parts.norm;
  const FeedForwardSpec network = parts.feed_forward;
  std::optional<DoubleFeedForwardSpec> experts;
  if (config.flag_or("enable_moe_block", false)) experts = read_experts(config, parts);

  Description model = finish_decoder(std::move(parts));
  if (!model.tied_head) model.tied_head = true;
  model.embed_scale = std::sqrt(double(model.hidden));
  model.logit_softcap = read_number(config, "final_logit_softcapping", model.logit_softcap);
  model.layer_scales = true;
  for (auto& layer : model.layers) {
    if (attention_of(layer).window == 0) layer[0].mixer = global;
    if (experts) layer[1].mixer = *experts;
  }
  add_post_norms(model);
  const int64_t shared = read_size(config, "num_kv_shared_layers", 0, count, 0), first_shared = count - shared;
  if (shared > 0) share_caches(config, model, first_shared);
  if (shared > 0 && !experts && config.flag_or("use_double_wide_mlp", false)) {
    for (size_t i = size_t(first_shared); i < model.layers.size(); ++i)
      std::get<FeedForwardSpec>(model.layers[i][1].mixer).width = 2 * network.width;
  }
  model.per_layer_width = read_size(config, "hidden_size_per_layer_input", 0, kMaxWidth / count, 256);
  if (model.per_layer_width > 0) {
    if (read_size(config, "vocab_size_per_layer_input", 0, kMaxVocab, model.vocab) != model.vocab)
      config.fail("vocab_size_per_layer_input: not supported where it is not vocab_size");
    model.per_layer_norm = norm;
    const PerLayerInputSpec inputs{model.per_layer_width, network.activation};
    for (auto& layer : model.layers)
      layer.push_back({std::nullopt, BlockSpec::NormUse{Role::kPerLayerPostNorm, norm}, inputs});
  }
  model.names.set({{Role::kFfnNorm, "@layers.#.pre_feedforward_layernorm"},
                   {Role::kRouter, "@layers.#.router.proj"},
                   {Role::kExpertGate, "@layers.#.experts.*.gate_proj"},
                   {Role::kExpertUp, "@layers.#.experts.*.up_proj"},
                   {Role::kExpertDown, "@layers.#.experts.*.down_proj"},
                   {Role::kExpertGateUps, "@layers.#.experts.gate_up_proj"},
                   {Role::kExpertDowns, "@layers.#.experts.down_proj"}});
  return model;
}

}  // namespace qgen
