// Llama 1, 2 and 3.x, and the many models with its architecture. transformers: models/llama.
#include "model/families/table.h"

namespace qgen {

Description describe_llama(const Json& config) {
  Description model = describe_decoder(config, "llama");
  if (const auto value = config.get("attention_bias")) model.qkv_bias = model.o_bias = value->as_bool();
  if (const auto value = config.get("mlp_bias")) model.mlp_bias = value->as_bool();
  return model;
}

}  // namespace qgen
