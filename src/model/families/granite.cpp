// Granite 3 and 4, dense: Llama with factors on the embedding, the scores, the branches and the logits.
// transformers: models/granite.
// HyperCLOVA X SEED: the same with norms behind the branches, and logits that are multiplied. transformers:
// models/hyperclovax.
// Granite 3 mixtures: the same with experts, some with a network beside them. transformers: models/granitemoe,
// models/granitemoeshared.
// Granite SWA: either of them with sinks, windows on three of four layers, and rotations by layer. transformers:
// models/granite_swa, models/granitemoe_swa.
// Granite 4 hybrids: Mamba-2 on most layers, attention without rotation on the others, and behind both a feed-forward
// network, with a mixture beside it in the larger ones. transformers: models/granitemoehybrid.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mamba.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

MambaSpec read_granite_mamba(const Json& config, const DecoderParts& parts) {
  const int64_t inner = read_size(config, "mamba_expand", 1, 64, 2) * parts.model.hidden;
  MambaSpec out = read_inner_mamba(config, inner, "mamba_expand times hidden_size");
  out.norm = parts.norm;
  return out;
}

void set_factors(const Json& config, Description& model) {
  model.embed_scale = read_number(config, "embedding_multiplier", 1);
  model.logit_scale = 1 / read_number(config, "logits_scaling", 1);
  const double branch_scale = read_number(config, "residual_multiplier", 1);
  for (auto& layer : model.layers) {
    for (BlockSpec& block : layer) block.scale = branch_scale;
  }
}

MixtureSpec read_granite_mixture(const Json& config, int64_t layers) {
  MixtureSpec out =
      read_mixture(config, layers, {.experts = "num_local_experts", .width = "intermediate_size", .default_chosen = 2});
  out.normalized = true;
  out.only_stacked = true;
  return out;
}

// The mixture beside the network of each layer.
void add_mixtures(Description& model, const MixtureSpec& mixture) {
  for (auto& layer : model.layers) {
    layer.push_back({std::nullopt, std::nullopt, mixture});
    layer.back().parallel = true;
  }
  model.gguf_names = {{Role::kFfnGate, "blk.#.ffn_gate_shexp"},
                      {Role::kFfnUp, "blk.#.ffn_up_shexp"},
                      {Role::kFfnDown, "blk.#.ffn_down_shexp"}};
}

void name_mixtures(Description& model) {
  model.names.set({{Role::kFfnGateUp, "@layers.#.shared_mlp.input_linear"},
                   {Role::kFfnDown, "@layers.#.shared_mlp.output_linear"},
                   {Role::kRouter, "@layers.#.block_sparse_moe.router.layer"},
                   {Role::kExpertGate, "@layers.#.block_sparse_moe.experts.*.gate_proj"},
                   {Role::kExpertUp, "@layers.#.block_sparse_moe.experts.*.up_proj"},
                   {Role::kExpertDown, "@layers.#.block_sparse_moe.experts.*.down_proj"},
                   {Role::kExpertGateUps, "@layers.#.block_sparse_moe.input_linear"},
                   {Role::kExpertDowns, "@layers.#.block_sparse_moe.output_linear"}});
  // As transformers calls them in memory, and writes those with windows.
  model.other_names = {{{Role::kRouter, "@layers.#.block_sparse_moe.router"},
                        {Role::kExpertGateUps, "@layers.#.block_sparse_moe.experts.gate_up_proj"},
                        {Role::kExpertDowns, "@layers.#.block_sparse_moe.experts.down_proj"}}};
}

Description describe_dense(const Json& config, std::string_view family, const DecoderDefaults& defaults) {
  DecoderParts parts = read_decoder(config, family, defaults);
  read_biases(config, parts);
  parts.attention.scale = read_number(config, "attention_multiplier", 1);
  Description model = finish_decoder(std::move(parts));
  set_factors(config, model);
  return model;
}

Description describe_mixture(const Json& config, std::string_view family) {
  DecoderParts parts = read_decoder(config, family);
  read_biases(config, parts);
  parts.attention.scale = read_number(config, "attention_multiplier", 1);
  const int64_t layers = parts.layers, shared = read_size(config, "shared_intermediate_size", 0, kMaxWidth, 0);
  const MixtureSpec mixture = read_granite_mixture(config, layers);
  parts.feed_forward.width = shared;
  parts.feed_forward.fused = !is_from_gguf(config);
  Description model = finish_decoder(std::move(parts));
  if (shared > 0) {
    add_mixtures(model, mixture);
  } else {
    set_mixtures(model, mixture, std::vector<bool>(size_t(layers), true));
  }
  set_factors(config, model);
  name_mixtures(model);
  return model;
}

// A window on three of four layers, and a rotation for each base that layer_rope_theta has (0: none).
void add_windows(const Json& config, Description& model) {
  const int64_t window = read_size(config, "sliding_window", 1, kMaxContext, 128);
  std::vector<int64_t> windows;
  for (size_t i = 0; i < model.layers.size(); ++i) windows.push_back(i % 4 == 0 ? 0 : window);
  if (const auto types = config.get("layer_types"))
    windows = read_layer_windows(*types, int64_t(windows.size()), window);
  for (size_t i = 0; i < windows.size(); ++i) {
    attention_of(model.layers[i]).window = windows[i];
    attention_of(model.layers[i]).sinks = true;
  }
  const auto bases = config.get("layer_rope_theta");
  if (!bases) return;
  const auto list = bases->elements();
  if (list.size() != windows.size())
    bases->fail(fmt::format("names {} layers (expected {})", list.size(), windows.size()));
  const Rope rope = model.ropes.front();
  model.ropes.clear();
  for (size_t i = 0; i < list.size(); ++i) {
    const double theta = list[i].as_number();
    if (!(theta >= 0)) list[i].fail(fmt::format("{} is out of range (expected 0 or more)", theta));
    const auto known = std::ranges::find(model.ropes, theta, &Rope::theta);
    attention_of(model.layers[i]).rope = theta > 0 ? int32_t(known - model.ropes.begin()) : -1;
    if (theta == 0 || known != model.ropes.end()) continue;
    model.ropes.push_back(rope);
    model.ropes.back().theta = theta;
  }
  if (model.ropes.empty()) model.ropes = {rope};
}

}  // namespace

Description describe_granite(const Json& config) { return describe_dense(config, "granite", {}); }

Description describe_granite_swa(const Json& config) {
  Description model = describe_dense(config, "granite_swa", {.kv_heads = 4, .context = 8192, .epsilon = 1e-5});
  add_windows(config, model);
  return model;
}

Description describe_granite_moe_swa(const Json& config) {
  Description model = describe_mixture(config, "granitemoe_swa");
  add_windows(config, model);
  return model;
}

Description describe_hyperclovax(const Json& config) {
  DecoderParts parts = read_decoder(config, "hyperclovax");
  read_biases(config, parts);
  parts.attention.scale = read_number(config, "attention_multiplier", 1 / std::sqrt(double(parts.attention.head_dim)));
  Description model = finish_decoder(std::move(parts));
  if (config.flag_or("use_post_norm", true)) add_post_norms(model);
  set_factors(config, model);
  model.logit_scale = read_number(config, "logits_scaling", 1);
  model.names.set(Role::kAttnPostNorm, "@layers.#.post_norm1");
  model.names.set(Role::kFfnPostNorm, "@layers.#.post_norm2");
  return model;
}

Description describe_granite_moe(const Json& config) { return describe_mixture(config, "granitemoe"); }

Description describe_granite_hybrid(const Json& config) {
  DecoderParts parts = read_decoder(config, "granitemoehybrid", {.intermediate = 1024});
  expect_silu(config, "hidden_act");  // the convolution's too
  const int64_t count = parts.layers;
  const auto shared = config.get("shared_intermediate_size");
  parts.feed_forward.width = shared ? shared->as_integer(1, kMaxWidth) : 1024;
  parts.feed_forward.fused = !is_from_gguf(config);
  parts.attention.qkv_bias = parts.attention.out_bias = config.flag_or("attention_bias", false);
  parts.attention.scale = read_number(config, "attention_multiplier", 1);
  const auto positions = config.get("position_embedding_type");
  if (!positions || positions->as_string() != "rope") parts.attention.rope = -1;
  const MambaSpec mamba = read_granite_mamba(config, parts);
  Description model = finish_decoder(std::move(parts));

  const auto types = config.get("layer_types") ? config.get("layer_types") : config.get("layers_block_type");
  if (types && int64_t(types->elements().size()) != count)
    types->fail(fmt::format("names {} layers (expected {})", types->elements().size(), count));
  for (size_t i = 0; i < size_t(count); ++i) {
    const std::string_view type = types ? types->elements()[i].as_string() : "mamba";
    if (type == "mamba" || type == "linear_attention") {
      model.layers[i][0].mixer = mamba;
    } else if (type != "attention" && type != "full_attention") {
      types->fail(fmt::format("'{}' is not supported", type), "supported: mamba, attention");
    }
  }
  const auto experts = config.get("num_local_experts");
  if (!experts || experts->as_integer(0) > 0) add_mixtures(model, read_granite_mixture(config, count));
  set_factors(config, model);
  name_mixtures(model);
  return model;
}

}  // namespace qgen
