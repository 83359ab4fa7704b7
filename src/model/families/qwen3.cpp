// Qwen3, dense: Qwen2 without its biases, with an RMS norm on every head of q and k, and a head_dim of its
// own. transformers: models/qwen3.
#include "model/families/table.h"

namespace qgen {

Description describe_qwen3(const Json& config) {
  Description model = describe_qwen2(config);
  model.family = "qwen3";
  model.qk_norm = true;
  const auto bias = config.get("attention_bias");
  model.qkv_bias = model.o_bias = bias && bias->as_bool();
  if (!config.find("head_dim")) model.head_dim = 128;
  return model;
}

}  // namespace qgen
