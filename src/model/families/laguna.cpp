// Laguna: norms of the heads of q and k, a softplus of another product of the input that attention's results are
// multiplied by, as many heads in each layer as config.json says, windows on some layers, two rotations; after a few
// dense layers mixtures that are chosen by sigmoids and a bias, with a shared expert. transformers: models/laguna.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// Of layers that see everything, and of those with a window; each says which part of a head it rotates.
std::vector<Rope> read_ropes(const Json& config, int64_t context, int64_t head_dim) {
  struct Kind {
    std::string_view layers;
    double theta, part;  // where rope_parameters is absent
  };
  const auto parameters = config.get("rope_parameters");
  std::vector<Rope> out;
  for (const Kind& kind : {Kind{"full_attention", 500000, 0.5}, Kind{"sliding_attention", 10000, 1}}) {
    const auto own = parameters ? parameters->get(kind.layers) : std::nullopt;
    const double part = own ? read_number(*own, "partial_rotary_factor", 1) : kind.part;
    const int64_t dim = part > 1 ? 0 : int64_t(part * double(head_dim));
    if (dim < 2 || dim % 2 != 0)
      config.fail(fmt::format("partial_rotary_factor: {} of a head of {} cannot be rotated in pairs", part, head_dim));
    out.push_back(own ? read_rope_parameters(*own, context, dim, kind.theta) : plain_rope(context, dim, kind.theta));
  }
  return out;
}

void read_gate(const Json& config, AttentionSpec& attention) {
  attention.gate = AttentionSpec::Gate::kHeads;
  attention.gate_activation = Activation::kSoftplus;
  const auto gating = config.get("gating");
  if (!gating || (!gating->is_string() && gating->as_bool())) return;
  const std::string_view kind = gating->is_string() ? gating->as_string() : "false";
  if (kind == "per-element") {
    attention.gate = AttentionSpec::Gate::kElements;
  } else if (kind != "per-head") {
    gating->fail(fmt::format("'{}' is not supported", kind), "supported: per-head, per-element");
  }
}

// The heads of each layer that has others than the model.
void read_heads(const Json& config, Description& model) {
  const auto heads = config.get("num_attention_heads_per_layer");
  if (!heads) return;
  const auto list = heads->elements();
  if (list.size() != model.layers.size())
    heads->fail(fmt::format("names {} layers (expected {})", list.size(), model.layers.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    AttentionSpec& attention = attention_of(model.layers[i]);
    attention.heads = list[i].as_integer(1, kMaxWidth / attention.head_dim);
    if (attention.heads % attention.kv_heads != 0)
      list[i].fail(fmt::format("{} is not a multiple of the {} heads of keys", attention.heads, attention.kv_heads));
  }
}

}  // namespace

Description describe_laguna(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "laguna", {.kv_heads = 8, .head_dim = 128, .context = 131072, .partial_rotary = kWholeHead});
  read_biases(config, parts);
  parts.feed_forward.bias = false;
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  read_gate(config, parts.attention);
  parts.model.ropes = read_ropes(config, parts.model.context, parts.attention.head_dim);
  if (const auto types = config.get("layer_types"))
    parts.windows = read_layer_windows(*types, parts.layers, read_size(config, "sliding_window", 1, kMaxContext, 512));
  MixtureSpec mixture = read_mixture(config, parts.layers, {.default_chosen = 8});
  read_sigmoid_choice(config, mixture);
  mixture.normalized = true;
  mixture.least_sum = 0;
  mixture.scale = read_number(config, "moe_routed_scaling_factor", 1);
  if (const auto cap = config.get("moe_router_logit_softcapping")) {  // 0: none
    mixture.logit_softcap = cap->as_number();
    if (!(mixture.logit_softcap >= 0)) cap->fail("is out of range (expected 0 or more)");
  }
  mixture.shared_width = read_size(config, "shared_expert_intermediate_size", 1, kMaxWidth, 512);
  if (config.flag_or("moe_apply_router_weight_on_input", false))
    config.at("moe_apply_router_weight_on_input").fail("true is not supported");
  const std::vector<bool> sparse = read_sparse_layers(config, parts.layers, 1);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, sparse);
  read_heads(config, model);
  for (auto& layer : model.layers) attention_of(layer).rope = attention_of(layer).window > 0 ? 1 : 0;
  model.names.set({{Role::kAttnGate, "@layers.#.self_attn.g_proj"},
                   {Role::kRouterBias, "@layers.#.mlp.experts.e_score_correction_bias"}});
  model.other_names = {{{Role::kSharedGate, "@layers.#.mlp.shared_experts.gate_proj"},
                        {Role::kSharedUp, "@layers.#.mlp.shared_experts.up_proj"},
                        {Role::kSharedDown, "@layers.#.mlp.shared_experts.down_proj"},
                        {Role::kRouterBias, "@layers.#.mlp.gate.e_score_correction_bias"}}};
  return model;
}

}  // namespace qgen
