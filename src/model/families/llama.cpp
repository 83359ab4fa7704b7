// Llama 1, 2 and 3.x, and the many models with its architecture. transformers: models/llama.
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

}  // namespace qgen
