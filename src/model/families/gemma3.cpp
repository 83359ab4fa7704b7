// Gemma 3 (text): norms before and behind each branch, stored less one; GELU; the embedding times the root of its
// width; on most layers a window, with a rotary base of its own. transformers: models/gemma3.
#include <cmath>

#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// The ropes of layers that see everything and of those with a window: newer files have a map of both.
std::vector<Rope> read_ropes(const Json& config, int64_t context, int64_t dim, const Rope& plain) {
  constexpr double kGlobalTheta = 1e6;
  const double local_theta = read_number(config, "rope_local_base_freq", 10000);
  std::vector<Rope> ropes =
      read_layer_ropes(config, context, dim, read_number(config, "rope_theta", kGlobalTheta), local_theta);
  if (!ropes.empty()) return ropes;
  return {plain, plain_rope(context, dim, local_theta)};
}

// What query_pre_attn_scalar is where it is absent. GGUF files never have it: llama.cpp takes head_dim, but for the
// 27B, which it knows by its layers.
double default_scalar(const Json& config, const DecoderParts& parts) {
  if (!is_from_gguf(config)) return 256;
  constexpr int64_t kLayersOf27B = 62;
  return double(parts.layers == kLayersOf27B ? parts.model.hidden / parts.attention.heads : parts.attention.head_dim);
}

}  // namespace

Description describe_gemma3(const Json& config) {
  refuse_bidirectional(config);
  DecoderParts parts = read_decoder(config, "gemma3",
                                    {.layers = 26,
                                     .hidden = 2304,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .head_dim = 256,
                                     .intermediate = 9216,
                                     .vocab = 262208,
                                     .context = 131072,
                                     .rope_theta = 1e6});
  AttentionSpec& attention = parts.attention;
  parts.model.ropes = read_ropes(config, parts.model.context, attention.head_dim, parts.model.ropes[0]);
  parts.windows = read_windows(config, parts.layers, 4096, 6);
  parts.norm.plus_one = true;
  attention.q_norm = attention.k_norm = parts.norm;
  attention.scale = 1 / std::sqrt(read_number(config, "query_pre_attn_scalar", default_scalar(config, parts)));
  parts.feed_forward.activation = read_activation(config, "hidden_activation", Activation::kGeluTanh);
  Description model = finish_decoder(std::move(parts));
  const auto tied = config.get("tie_word_embeddings");
  model.tied_head = !tied || tied->as_bool();
  model.embed_scale = std::sqrt(double(model.hidden));
  model.names.set(Role::kFfnNorm, "@layers.#.pre_feedforward_layernorm");
  model.logit_softcap = read_number(config, "final_logit_softcapping", model.logit_softcap);
  for (auto& blocks : model.layers) {
    AttentionSpec& spec = std::get<AttentionSpec>(blocks[0].mixer);
    spec.rope = spec.window > 0 ? 1 : 0;
    spec.softcap = read_number(config, "attn_logit_softcapping", spec.softcap);
  }
  add_post_norms(model);
  return model;
}

}  // namespace qgen
