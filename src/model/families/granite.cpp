// Granite 3 and 4, dense: Llama with factors on the embedding, the scores, the branches and the logits.
// transformers: models/granite.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_granite(const Json& config) {
  DecoderParts parts = read_decoder(config, "granite");
  read_biases(config, parts);
  parts.attention.scale = read_number(config, "attention_multiplier", 1);
  Description model = finish_decoder(std::move(parts));
  model.embed_scale = read_number(config, "embedding_multiplier", 1);
  model.logit_scale = 1 / read_number(config, "logits_scaling", 1);
  const double branch_scale = read_number(config, "residual_multiplier", 1);
  for (auto& layer : model.layers) {
    for (BlockSpec& block : layer) block.scale = branch_scale;
  }
  return model;
}

}  // namespace qgen
