// ERNIE 4.5, dense: Llama with a rotation of adjacent pairs. transformers: models/ernie4_5.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_ernie4_5(const Json& config) {
  DecoderParts parts = read_decoder(
      config, "ernie4_5", {.kv_heads = 2, .head_dim = 128, .context = 131072, .rope_theta = 500000, .epsilon = 1e-5});
  const bool biases = config.flag_or("use_bias", false);
  parts.attention.qkv_bias = parts.attention.out_bias = parts.feed_forward.bias = biases;
  parts.model.ropes[0].pairs = Rope::Pairs::kAdjacent;
  if (!parts.model.tied_head) parts.model.tied_head = true;
  return finish_decoder(std::move(parts));
}

}  // namespace qgen
