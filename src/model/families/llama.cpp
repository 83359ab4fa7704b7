// Llama 1, 2 and 3.x, and the many models with its architecture. transformers: models/llama.
// InternLM3: the same under other keys. transformers: models/internlm3.
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
