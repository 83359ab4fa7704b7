// Llama 1, 2 and 3.x, and the many models with its architecture. transformers: models/llama.
// InternLM3: the same under other keys. transformers: models/internlm3.
// CWM: with a window on three of four layers. transformers: models/cwm. IQuest-Coder: models/iquestcoder.
// Jais 2: with LayerNorm, biases, squared ReLU and no gate. transformers: models/jais2.
// AFM: the same with squared ReLU and no gate. transformers: models/arcee.
// Nemotron, dense: that with LayerNorm, stored less one, and a rotation of half of each head. transformers:
// models/nemotron.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_llama(const Json& config) {
  DecoderDefaults defaults;
  allow_class_sizes(config, defaults, 11008);
  DecoderParts parts = read_decoder(config, "llama", defaults);
  if (const auto value = config.get("attention_bias"))
    parts.attention.qkv_bias = parts.attention.out_bias = value->as_bool();
  if (const auto value = config.get("mlp_bias")) parts.feed_forward.bias = value->as_bool();
  return finish_decoder(std::move(parts));
}

Description describe_internlm3(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "internlm3", {.kv_heads = 2, .head_dim = 128, .context = 32768, .epsilon = 1e-5});
  const bool biases = config.flag_or("attention_bias", false);
  parts.attention.qkv_bias = config.flag_or("qkv_bias", biases);
  parts.attention.out_bias = config.flag_or("bias", biases);
  parts.feed_forward.bias = config.flag_or("bias", config.flag_or("mlp_bias", false));
  return finish_decoder(std::move(parts));
}

Description describe_cwm(const Json& config) {
  constexpr int64_t kOriginalContext = 8192;
  constexpr double kTheta = 1e6;
  DecoderParts parts =
      read_decoder(config, "cwm", {.head_dim = 128, .context = 131072, .rope_theta = kTheta, .epsilon = 1e-5});
  if (!config.get("rope_parameters") && !config.get("rope_scaling")) {
    Rope& rope = parts.model.ropes[0];
    rope.theta = kTheta;  // a rope_theta alone counts for nothing
    rope.scaling = Rope::Scaling::kLlama3;
    rope.factor = 16;
    rope.low_frequency_factor = 1;
    rope.high_frequency_factor = 4;
    rope.original_context = kOriginalContext;
  }
  if (config.get("layer_types")) {
    parts.windows = read_windows(config, parts.layers, 8192, 0);
  } else {
    // The first of four layers sees everything.
    const int64_t window = read_size(config, "sliding_window", 0, kMaxContext, 8192);
    for (size_t i = 0; i < parts.windows.size(); ++i) parts.windows[i] = i % 4 == 0 ? 0 : window;
  }
  return finish_decoder(std::move(parts));
}

Description describe_iquestcoder(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "iquestcoder", {.kv_heads = 8, .head_dim = 128, .context = 131072, .epsilon = 1e-5});
  read_biases(config, parts);
  if (const auto clip = config.get("clip_qkv")) clip->fail("is not supported (expected null)");
  if (config.flag_or("use_sliding_window", false)) config.at("use_sliding_window").fail("true is not supported");
  return finish_decoder(std::move(parts));
}

Description describe_jais2(const Json& config) {
  DecoderParts parts = read_decoder(config, "jais2",
                                    {.context = 8192,
                                     .epsilon = 1e-5,
                                     .activation = Activation::kReluSquared,
                                     .keys = {.epsilon = "layer_norm_eps"}});
  use_layer_norm(parts, true);
  parts.attention.qkv_bias = parts.attention.out_bias = config.flag_or("attention_bias", true);
  parts.feed_forward.bias = config.flag_or("mlp_bias", true);
  parts.feed_forward.gated = false;
  return finish_decoder(std::move(parts));
}

Description describe_arcee(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "arcee", {.context = 4096, .epsilon = 1e-5, .activation = Activation::kReluSquared});
  read_biases(config, parts);
  parts.feed_forward.gated = false;
  return finish_decoder(std::move(parts));
}

Description describe_nemotron(const Json& config) {
  DecoderParts parts = read_decoder(config, "nemotron",
                                    {.context = 4096,
                                     .epsilon = 1e-5,
                                     .partial_rotary = 0.5,
                                     .activation = Activation::kReluSquared,
                                     .keys = {.epsilon = "norm_eps"}});
  use_layer_norm(parts, true);
  parts.norm.plus_one = true;
  read_biases(config, parts);
  parts.feed_forward.gated = false;
  return finish_decoder(std::move(parts));
}

}  // namespace qgen
