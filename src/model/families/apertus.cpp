// Apertus: Llama with norms of the heads of q and k, and networks without a gate whose activation has numbers of its
// own. transformers: models/apertus.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_apertus(const Json& config) {
  if (const auto activation = config.get("hidden_act"); activation && activation->as_string() != "xielu")
    activation->fail("is not supported for this family (expected xielu)");
  DecoderParts parts = read_decoder(
      config, "apertus", {.context = 65536, .rope_theta = 12e6, .epsilon = 1e-5, .activation = Activation::kNone});
  read_biases(config, parts);
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  parts.feed_forward.gated = false;
  parts.feed_forward.bias = false;
  parts.feed_forward.xielu = true;
  Description model = finish_decoder(std::move(parts));
  model.names.set(
      {{Role::kAttnNorm, "@layers.#.attention_layernorm"}, {Role::kFfnNorm, "@layers.#.feedforward_layernorm"}});
  return model;
}

}  // namespace qgen
