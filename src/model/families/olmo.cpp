// OLMo 2: norms behind the branches instead of before them, and norms of q and k over all heads together.
// transformers: models/olmo2.
// OLMo 3: a window on three of four layers too; rotary scaling on the others alone. transformers: models/olmo3.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

Description finish_olmo(DecoderParts parts) {
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  parts.attention.q_norm->whole_row = parts.attention.k_norm->whole_row = true;
  Description model = finish_decoder(std::move(parts));
  add_post_norms(model, /*instead=*/true);
  return model;
}

}  // namespace

Description describe_olmo2(const Json& config) {
  DecoderParts parts = read_decoder(config, "olmo2", {.epsilon = 1e-5});
  read_biases(config, parts);
  // OLMo 3 goes by this name in GGUF files.
  if (is_from_gguf(config) && config.get("sliding_window")) return describe_olmo3(config);
  return finish_olmo(std::move(parts));
}

Description describe_olmo3(const Json& config) {
  constexpr double kTheta = 500000;
  DecoderParts parts = read_decoder(config, "olmo3", {.rope_theta = kTheta, .epsilon = 1e-5});
  read_biases(config, parts);
  parts.windows = read_windows(config, parts.layers, 4096, 4);
  const int64_t context = parts.model.context, dim = parts.attention.head_dim;
  std::vector<Rope>& ropes = parts.model.ropes;
  const double theta = read_number(config, "rope_theta", kTheta);
  if (auto of_layers = read_layer_ropes(config, context, dim, theta, theta); !of_layers.empty()) {
    ropes = std::move(of_layers);
  } else {
    Rope plain = plain_rope(context, dim, ropes[0].theta);
    plain.pairs = ropes[0].pairs;
    ropes.push_back(plain);
  }
  Description model = finish_olmo(std::move(parts));
  for (auto& layer : model.layers) attention_of(layer).rope = attention_of(layer).window > 0 ? 1 : 0;
  return model;
}

}  // namespace qgen
