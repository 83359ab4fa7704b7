// Falcon-H1: Mamba-2 and attention side by side in every layer, and a factor (muP) at each place where one can stand.
// transformers: models/falcon_h1.
// Bamba: Mamba-2 on most layers, attention with half of each head rotated on the others, and a feed-forward network
// behind both. transformers: models/bamba.
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mamba.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// A list of so many factors, 1 each where it is absent or null.
std::vector<double> read_factors(const Json& config, std::string_view key, size_t count) {
  std::vector<double> out(count, 1);
  const auto value = config.get(key);
  if (!value) return out;
  const auto list = value->elements();
  if (list.size() != count) value->fail(fmt::format("has {} factors (expected {})", list.size(), count));
  for (size_t i = 0; i < count; ++i) out[i] = list[i].as_number();
  return out;
}

double read_factor(const Json& config, std::string_view key) {
  const auto value = config.get(key);
  return value ? value->as_number() : 1;
}

MambaSpec read_falcon_mamba(const Json& config, const DecoderParts& parts) {
  const int64_t expanded = read_size(config, "mamba_expand", 1, 64, 2) * parts.model.hidden;
  const int64_t inner = read_size(config, "mamba_d_ssm", 1, kMaxWidth, expanded);
  MambaSpec out = read_inner_mamba(config, inner, "mamba_d_ssm");
  out.out_bias = config.flag_or("projectors_bias", false);
  out.norm = parts.norm;
  out.normed = config.flag_or("mamba_rms_norm", false);
  out.norm_before_gate = config.flag_or("mamba_norm_before_gate", true);
  const double in = read_factor(config, "ssm_in_multiplier");
  if (out.bias && in != 1) config.fail("ssm_in_multiplier: with mamba_proj_bias it is not supported (expected 1)");
  const std::vector<double> factors = read_factors(config, "ssm_multipliers", out.factors.size());
  for (size_t i = 0; i < factors.size(); ++i) out.factors[i] = in * factors[i];
  return out;
}

void name_networks(Names& names) {
  names.set({{Role::kFinalNorm, "@final_layernorm"},
             {Role::kFfnNorm, "@layers.#.pre_ff_layernorm"},
             {Role::kFfnGate, "@layers.#.feed_forward.gate_proj"},
             {Role::kFfnUp, "@layers.#.feed_forward.up_proj"},
             {Role::kFfnDown, "@layers.#.feed_forward.down_proj"}});
}

}  // namespace

Description describe_falcon_h1(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "falcon_h1", {.kv_heads = 8, .intermediate = 14336, .context = 8192, .epsilon = 1e-5});
  read_biases(config, parts);
  expect_silu(config, "hidden_act");  // the convolution's too
  const double in = read_factor(config, "attention_in_multiplier");
  if (parts.attention.qkv_bias && in != 1)
    config.fail("attention_in_multiplier: with attention_bias it is not supported (expected 1)");
  // The factor of the input goes through to scores and values, that of the keys to scores.
  parts.attention.scale = in * in * read_factor(config, "key_multiplier") / std::sqrt(double(parts.attention.head_dim));
  const std::vector<double> network = read_factors(config, "mlp_multipliers", 2);
  parts.feed_forward.gate_scale = network[0];
  if (parts.feed_forward.bias && network != std::vector<double>{1, 1})
    config.fail("mlp_multipliers: with mlp_bias they are not supported (expected 1)");
  const MambaSpec mamba = read_falcon_mamba(config, parts);
  Description model = finish_decoder(std::move(parts));
  for (auto& layer : model.layers) {
    layer[0].scale = in * read_factor(config, "attention_out_multiplier");
    layer[1].scale = network[1];
    BlockSpec attention = layer[0];
    attention.before = std::nullopt;
    attention.parallel = true;
    layer[0].mixer = mamba;
    layer[0].scale = read_factor(config, "ssm_out_multiplier");
    layer.insert(layer.begin() + 1, std::move(attention));
  }
  model.embed_scale = read_factor(config, "embedding_multiplier");
  model.logit_scale = read_factor(config, "lm_head_multiplier");
  name_networks(model.names);
  return model;
}

Description describe_bamba(const Json& config) {
  DecoderParts parts = read_decoder(
      config, "bamba",
      {.kv_heads = 8, .intermediate = 14336, .context = 262144, .epsilon = 1e-5, .partial_rotary = kWholeHead});
  // The class rotates half, whatever partial_rotary_factor says.
  parts.model.ropes[0].dim = parts.attention.head_dim / 2;
  if (parts.attention.head_dim % 4 != 0)
    config.fail(fmt::format("half of heads of {} elements cannot be rotated in pairs", parts.attention.head_dim));
  read_biases(config, parts);
  expect_silu(config, "hidden_act");  // the convolution's too
  const int64_t count = parts.layers, inner = read_size(config, "mamba_expand", 1, 64, 2) * parts.model.hidden;
  MambaSpec mamba = read_inner_mamba(config, inner, "mamba_expand times hidden_size");
  mamba.norm = parts.norm;
  Description model = finish_decoder(std::move(parts));
  std::vector<bool> attends(size_t(count), false);
  if (const auto layers = config.get("attn_layer_indices")) {
    for (const Json& layer : layers->elements()) attends[size_t(layer.as_integer(0, count - 1))] = true;
  }
  for (size_t i = 0; i < attends.size(); ++i) {
    if (!attends[i]) model.layers[i][0].mixer = mamba;
  }
  name_networks(model.names);
  return model;
}

}  // namespace qgen
