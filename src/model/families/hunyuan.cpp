// Hunyuan, dense: Llama with norms of the heads of q and k behind the rotation, whose base a fixed factor raises.
// transformers: models/hunyuan_v1_dense.
#include <cmath>

#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// "dynamic" with an alpha is a fixed base: theta alpha^(d / (d - 2)).
void apply_alpha(const Json& config, Rope& rope) {
  if (rope.scaling != Rope::Scaling::kDynamic) return;
  auto scaling = config.get("rope_scaling");
  if (!scaling) scaling = config.get("rope_parameters");
  if (!scaling->get("alpha")) return;
  const double alpha = read_number(*scaling, "alpha", 1), dim = double(rope.dim);
  rope.scaling = Rope::Scaling::kNone;
  if (dim > 2) rope.theta *= std::pow(alpha, dim / (dim - 2));
}

}  // namespace

Description describe_hunyuan(const Json& config) {
  DecoderParts parts = read_decoder(config, "hunyuan_v1_dense", {.epsilon = 1e-5});
  read_biases(config, parts);
  parts.feed_forward.bias = false;
  apply_alpha(config, parts.model.ropes[0]);
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  parts.attention.norm_after_rotation = true;
  Description model = finish_decoder(std::move(parts));
  model.names.set(Role::kAttnQNorm, "@layers.#.self_attn.query_layernorm");
  model.names.set(Role::kAttnKNorm, "@layers.#.self_attn.key_layernorm");
  return model;
}

}  // namespace qgen
