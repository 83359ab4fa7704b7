// Hunyuan: Llama with norms of the heads of q and k behind the rotation, whose base a fixed factor raises; dense, or
// all layers mixtures with a shared expert. transformers: models/hunyuan_v1_dense, models/hunyuan_v1_moe.
// Hy3: the norms before the rotation, and mixtures that are chosen by sigmoids and a bias. transformers: models/hy_v3.
#include <algorithm>
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

void name_shared_mlp(Names& names) {
  names.set({{Role::kSharedGate, "@layers.#.mlp.shared_mlp.gate_proj"},
             {Role::kSharedUp, "@layers.#.mlp.shared_mlp.up_proj"},
             {Role::kSharedDown, "@layers.#.mlp.shared_mlp.down_proj"}});
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
  name_shared_mlp(model.names);
  return model;
}

Description describe_hy_v3(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "hy_v3", {.head_dim = 128, .context = 131072, .rope_theta = 11158840, .epsilon = 1e-5});
  read_biases(config, parts);
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  MixtureSpec mixture = read_mixture(config, parts.layers, {.default_chosen = 8});
  read_sigmoid_choice(config, mixture);
  mixture.scale = read_number(config, "router_scaling_factor", 2.826);
  read_shared_experts(config, mixture, 1);
  const std::vector<bool> sparse = read_sparse_layers(config, parts.layers, 1);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, sparse);
  name_shared_mlp(model.names);
  model.names.set(Role::kRouter, "@layers.#.mlp.router.gate");
  model.names.set(Role::kRouterBias, "@layers.#.mlp.expert_bias");
  model.gguf_names = {{Role::kRouterBias, "blk.#.exp_probs_b"}};
  const int64_t layers = int64_t(model.layers.size());
  const int64_t drafting = read_size(config, "num_nextn_predict_layers", 0, 64, 1);
  model.drafting_layers = {layers, layers + std::max<int64_t>(1, drafting)};
  return model;
}

}  // namespace qgen
