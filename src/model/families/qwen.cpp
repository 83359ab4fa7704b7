// Qwen2 and Qwen2.5: Llama with biases on q, k and v, and a sliding window on the last layers where
// use_sliding_window asks for it. transformers: models/qwen2. The text parts of Qwen2-VL and Qwen2.5-VL are the same.
// Qwen3, dense: without the biases, with an RMS norm on every head of q and k, and a head_dim of its own.
// transformers: models/qwen3. The text part of Qwen3-VL is the same: all three of its position ids agree for text.
// Qwen2-MoE and Qwen3-MoE: the same with mixtures of experts. transformers: models/qwen2_moe, models/qwen3_moe. Of
// Qwen3-VL's the stacks of experts are stored transposed.
// Mellum 2: Qwen3-MoE with windows on some layers and a rotation of their own. transformers: models/mellum.
#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// On the last layers, from `first` on where nothing is said, if use_sliding_window asks for them.
std::vector<int64_t> read_qwen_windows(const Json& config, int64_t layers, int64_t first = 28) {
  if (!config.flag_or("use_sliding_window", false)) return std::vector<int64_t>(size_t(layers), 0);
  return read_last_windows(config, layers, first);
}

}  // namespace

namespace {

// `first_window`: the first layer with a window where nothing is said.
Description describe_any_qwen2(const Json& config, std::string_view family, const DecoderDefaults& defaults,
                               int64_t first_window) {
  DecoderParts parts = read_decoder(config, family, defaults);
  parts.windows = read_qwen_windows(config, parts.layers, first_window);
  parts.attention.qkv_bias = true;
  return finish_decoder(std::move(parts));
}

}  // namespace

Description describe_qwen2(const Json& config) { return describe_any_qwen2(config, "qwen2", {.context = 32768}, 28); }

Description describe_qwen2_vl(const Json& config) {
  return describe_any_qwen2(config, "qwen2_vl", {.kv_heads = 8, .context = 32768, .rope_theta = 1e6, .epsilon = 1e-5},
                            80);
}

namespace {

DecoderParts read_qwen3(const Json& config, std::string_view family, const DecoderDefaults& defaults) {
  DecoderParts parts = read_decoder(config, family, defaults);
  parts.windows = read_qwen_windows(config, parts.layers);
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  if (const auto bias = config.get("attention_bias"))
    parts.attention.qkv_bias = parts.attention.out_bias = bias->as_bool();
  return parts;
}

Description finish_mixture(const Json& config, DecoderParts parts, const MixtureSpec& mixture) {
  const std::vector<bool> layers = read_mixture_layers(config, parts.layers);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, layers);
  return model;
}

}  // namespace

Description describe_qwen3(const Json& config) {
  return finish_decoder(read_qwen3(config, "qwen3", {.head_dim = 128, .context = 32768}));
}

Description describe_qwen3_vl(const Json& config) {
  return finish_decoder(read_qwen3(config, "qwen3_vl", {.head_dim = 128, .context = 128000}));
}

Description describe_qwen2_moe(const Json& config) {
  DecoderParts parts = read_decoder(config, "qwen2_moe", {.context = 32768});
  parts.windows = read_qwen_windows(config, parts.layers);
  const auto bias = config.get("qkv_bias");
  parts.attention.qkv_bias = !bias || bias->as_bool();
  MixtureSpec mixture = read_mixture(config, parts.layers);
  mixture.normalized = read_normalized(config, false);
  mixture.shared_width = config.at("shared_expert_intermediate_size").as_integer(0, kMaxWidth);
  mixture.shared_score = true;
  return finish_mixture(config, std::move(parts), mixture);
}

Description describe_qwen3_moe(const Json& config) {
  DecoderParts parts = read_qwen3(config, "qwen3_moe", {.intermediate = 6144, .context = 32768});
  MixtureSpec mixture = read_mixture(config, parts.layers);
  mixture.normalized = read_normalized(config, false);
  return finish_mixture(config, std::move(parts), mixture);
}

Description describe_qwen3_vl_moe(const Json& config) {
  DecoderParts parts = read_qwen3(config, "qwen3_vl_moe", {.context = 128000});
  MixtureSpec mixture = read_mixture(config, parts.layers, {.default_chosen = 4});
  mixture.normalized = true;
  mixture.transposed = !is_from_gguf(config);
  return finish_mixture(config, std::move(parts), mixture);
}

Description describe_mellum(const Json& config) {
  constexpr double kTheta = 500000, kWindowTheta = 10000;
  DecoderParts parts =
      read_decoder(config, "mellum", {.head_dim = 128, .intermediate = 7168, .context = 131072, .rope_theta = kTheta});
  read_biases(config, parts);
  parts.feed_forward.bias = false;
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  if (config.get("layer_types")) parts.windows = read_windows(config, parts.layers, 1024, 0);
  auto ropes = read_layer_ropes(config, parts.model.context, parts.attention.head_dim, kTheta, kWindowTheta);
  if (ropes.empty()) {
    const double theta = is_from_gguf(config) ? parts.model.ropes[0].theta : kWindowTheta;
    ropes = {parts.model.ropes[0], plain_rope(parts.model.context, parts.attention.head_dim,
                                              read_number(config, "rope_local_base_freq", theta))};
  }
  parts.model.ropes = std::move(ropes);
  MixtureSpec mixture = read_mixture(config, parts.layers, {.default_chosen = 8});
  mixture.normalized = read_normalized(config, true);
  const std::vector<bool> sparse = read_sparse_layers(config, parts.layers, 0);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, sparse);
  for (auto& layer : model.layers) attention_of(layer).rope = attention_of(layer).window > 0 ? 1 : 0;
  return model;
}

}  // namespace qgen
