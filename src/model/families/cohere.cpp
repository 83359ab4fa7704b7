// Cohere Command R and R+: attention and feed-forward network side by side behind one LayerNorm without bias, a
// rotation of adjacent pairs, scaled logits; R+ has norms of the heads of q and k. transformers: models/cohere. Command
// R7B, A and Aya: a window on three of four layers, and no rotation on the others. transformers: models/cohere2.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

DecoderParts read_cohere(const Json& config, std::string_view family, double theta) {
  DecoderParts parts = read_decoder(
      config, family, {.context = 8192, .rope_theta = theta, .epsilon = 1e-5, .keys = {.epsilon = "layer_norm_eps"}});
  use_layer_norm(parts, false);
  read_biases(config, parts);
  parts.feed_forward.bias = false;
  parts.model.ropes[0].pairs = Rope::Pairs::kAdjacent;
  return parts;
}

Description finish_cohere(const Json& config, DecoderParts parts) {
  Description model = finish_decoder(std::move(parts));
  make_parallel(model);
  model.logit_scale = read_number(config, "logit_scale", 0.0625);
  if (!model.tied_head) model.tied_head = true;
  return model;
}

}  // namespace

Description describe_cohere(const Json& config) {
  DecoderParts parts = read_cohere(config, "cohere", 500000);
  if (config.flag_or("use_qk_norm", false)) {
    parts.attention.q_norm = parts.attention.k_norm = parts.norm;
    parts.attention.q_norm->per_head = parts.attention.k_norm->per_head = true;
  }
  return finish_cohere(config, std::move(parts));
}

Description describe_cohere2(const Json& config) {
  DecoderParts parts = read_cohere(config, "cohere2", 10000);
  parts.windows = read_windows(config, parts.layers, 4096, 4);
  Description model = finish_cohere(config, std::move(parts));
  for (auto& layer : model.layers) attention_of(layer).rope = attention_of(layer).window > 0 ? 0 : -1;
  return model;
}

}  // namespace qgen
