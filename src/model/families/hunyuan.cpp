// Hunyuan: Llama with norms of the heads of q and k behind the rotation, whose base a fixed factor raises; dense, or
// all layers mixtures with a shared expert. transformers: models/hunyuan_v1_dense, models/hunyuan_v1_moe.
#include <cmath>

#include "model/families/common.h"
#include "model/families/mixture.h"
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

Description describe_block(const Json& config, std::string_view family) {
  DecoderParts parts = read_decoder(config, family, {.epsilon = 1e-5});
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

}  // namespace

Description describe_hunyuan(const Json& config) { return describe_block(config, "hunyuan_v1_dense"); }

Description describe_hunyuan_moe(const Json& config) {
  Description model = describe_block(config, "hunyuan_v1_moe");
  const auto layers = int64_t(model.layers.size());
  if (const auto dense = config.get("moe_layer_num_skipped"); dense && dense->as_integer(0, layers) != 0)
    dense->fail("dense layers before the mixtures are not supported (expected 0)");
  const std::string_view width = config.get("moe_intermediate_size") ? "moe_intermediate_size" : "intermediate_size";
  MixtureSpec mixture = read_mixture(
      config, layers, {.chosen = config.get("moe_topk") ? "moe_topk" : "num_experts_per_tok", .width = width});
  mixture.normalized = true;
  const int64_t shared = config.get("num_shared_expert") ? read_same_size(config, "num_shared_expert", 0, 64) : 1;
  mixture.shared_width = shared * read_size(config, "intermediate_size", 1, kMaxWidth, mixture.width);
  set_mixtures(model, mixture, std::vector<bool>(size_t(layers), true));
  model.names.set(Role::kRouter, "@layers.#.mlp.gate.wg");
  model.names.set(Role::kSharedGate, "@layers.#.mlp.shared_mlp.gate_proj");
  model.names.set(Role::kSharedUp, "@layers.#.mlp.shared_mlp.up_proj");
  model.names.set(Role::kSharedDown, "@layers.#.mlp.shared_mlp.down_proj");
  return model;
}

}  // namespace qgen
