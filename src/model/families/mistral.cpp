// Mistral: Llama with a sliding window on every layer where the configuration gives one.
// transformers: models/mistral, whose defaults for an absent window and context are kept.
#include <fmt/format.h>

#include "model/families/table.h"

namespace qgen {

Description describe_mistral(const Json& config) {
  Description model = describe_llama(config);
  model.family = "mistral";
  model.qkv_bias = model.o_bias = model.mlp_bias = false;
  if (!config.find("max_position_embeddings")) {
    model.context = 131072;
    model.rope = read_rope(config, model.context);
  }
  int64_t window = 4096;
  if (const auto value = config.find("sliding_window")) window = value->is_null() ? 0 : value->as_integer(1);
  model.window.assign(model.layers, window);
  return model;
}

}  // namespace qgen
