// Qwen3-Next, Qwen3.5, 3.6 and 3.8, dense and mixtures: three layers of gated delta nets to one of attention, whose
// output is gated and whose heads are rotated in part; norms stored less one. transformers: models/qwen3_next,
// models/qwen3_5, models/qwen3_5_moe.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

DeltaSpec read_delta(const Json& config, const NormSpec& norm) {
  DeltaSpec out;
  out.key_heads = read_size(config, "linear_num_key_heads", 1, kMaxWidth, 16);
  out.value_heads = read_size(config, "linear_num_value_heads", 1, kMaxWidth, 32);
  out.key_dim = read_size(config, "linear_key_head_dim", 1, kMaxWidth, 128);
  out.value_dim = read_size(config, "linear_value_head_dim", 1, kMaxWidth, 128);
  out.taps = read_size(config, "linear_conv_kernel_dim", 1, 64, 4);
  if (out.value_heads % out.key_heads != 0) {
    config.fail(
        fmt::format("linear_num_key_heads: {} does not divide the {} value heads", out.key_heads, out.value_heads));
  }
  if (out.key_heads * out.key_dim > kMaxWidth || out.value_heads * out.value_dim > kMaxWidth ||
      out.value_heads * out.key_dim * out.value_dim > int64_t{kMaxWidth} * 64)
    config.fail("linear_num_value_heads: heads of these sizes are absurdly many");
  out.norm = norm;
  out.norm.plus_one = false;
  return out;
}

// Which layers are linear: layer_types, or all but every full_attention_interval-th.
std::vector<bool> read_linear_layers(const Json& config, int64_t layers) {
  std::vector<bool> out;
  if (const auto types = config.get("layer_types")) {
    const auto list = types->elements();
    if (int64_t(list.size()) != layers) types->fail(fmt::format("names {} layers (expected {})", list.size(), layers));
    for (const Json& type : list) {
      const std::string_view name = type.as_string();
      if (name != "linear_attention" && name != "full_attention")
        type.fail(fmt::format("'{}' is not supported", name), "supported: linear_attention, full_attention");
      out.push_back(name == "linear_attention");
    }
    return out;
  }
  const auto interval = config.get("full_attention_interval");
  const int64_t every = interval ? interval->as_integer(1, kMaxLayers) : 4;
  for (int64_t i = 0; i < layers; ++i) out.push_back((i + 1) % every != 0);
  return out;
}

Description describe_hybrid(const Json& config, std::string_view family, const MixtureSpec* mixture,
                            const std::vector<bool>& mixture_layers, bool by_key_head) {
  DecoderParts parts = read_decoder(config, family,
                                    {.head_dim = 256,
                                     .intermediate = mixture != nullptr ? mixture->width : 0,
                                     .context = 32768,
                                     .partial_rotary = 0.25});
  expect_silu(config, "hidden_act");  // the convolution's too
  const std::vector<bool> linear = read_linear_layers(config, parts.layers);
  parts.norm.plus_one = true;
  DeltaSpec delta = read_delta(config, parts.norm);
  delta.by_key_head = by_key_head;
  if (is_from_gguf(config)) {
    // The converter splits Qwen3-Next's first matrix, and lets the value heads of a key head of the others lie apart.
    delta.by_key_head = false;
    delta.rates_by_key_head = by_key_head;
    delta.key_heads_repeat = !by_key_head;
    delta.folded_decay = true;
  }
  AttentionSpec& attention = parts.attention;
  attention.q_norm = attention.k_norm = parts.norm;
  const auto gate = config.get("attn_output_gate");
  if (!gate || gate->as_bool()) attention.gate = AttentionSpec::Gate::kInQueries;
  if (const auto bias = config.get("attention_bias")) attention.qkv_bias = attention.out_bias = bias->as_bool();
  const NormSpec norm = parts.norm;
  Description model = finish_decoder(std::move(parts));
  if (config.flag_or("mtp_use_dedicated_embeddings", false)) {
    model.no_draft = "mtp_use_dedicated_embeddings is not supported";
  } else {
    set_draft(model, config, "mtp_num_hidden_layers", {model.layers.back(), norm, "mtp."}, true);
  }
  if (model.draft && mixture != nullptr) model.draft->blocks.back().mixer = *mixture;
  model.names.set({{Role::kDraftEmbedNorm, "@pre_fc_norm_embedding"},
                   {Role::kDraftHiddenNorm, "@pre_fc_norm_hidden"},
                   {Role::kDraftJoin, "@fc"},
                   {Role::kDraftNorm, "@norm"}});
  for (size_t i = 0; i < linear.size(); ++i) {
    if (linear[i]) model.layers[i][0].mixer = delta;
  }
  if (mixture != nullptr) set_mixtures(model, *mixture, mixture_layers);
  model.gguf_names = {{Role::kFfnNorm, "blk.#.post_attention_norm"}};
  return model;
}

Description describe_hybrid_mixture(const Json& config, std::string_view family, bool by_key_head) {
  const int64_t layers = config.at("num_hidden_layers").as_integer(1, kMaxLayers);
  MixtureSpec mixture = read_mixture(config, layers);
  mixture.normalized = read_normalized(config, true);
  mixture.shared_width = config.at("shared_expert_intermediate_size").as_integer(0, kMaxWidth);
  mixture.shared_score = true;
  return describe_hybrid(config, family, &mixture, read_mixture_layers(config, layers), by_key_head);
}

}  // namespace

Description describe_qwen3_next(const Json& config) { return describe_hybrid_mixture(config, "qwen3_next", true); }
Description describe_qwen3_5(const Json& config) { return describe_hybrid(config, "qwen3_5", nullptr, {}, false); }
Description describe_qwen3_5_moe(const Json& config) { return describe_hybrid_mixture(config, "qwen3_5_moe", false); }

}  // namespace qgen
