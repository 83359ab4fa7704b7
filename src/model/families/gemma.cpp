// Gemma 1: norms stored less one, GELU, the embedding times the root of its width. transformers: models/gemma.
// Gemma 2: norms behind the branches too, soft caps on scores and logits, a window on every other layer.
// transformers: models/gemma2.
#include <cmath>

#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// A key that is absent means the default, and null means none.
double read_cap(const Json& config, std::string_view key, double fallback) {
  const auto value = config.find(key);
  if (!value) return fallback;
  return value->is_null() ? 0 : read_number(config, key, 0);
}

Description finish_gemma(const Json& config, DecoderParts parts) {
  Description model = finish_decoder(std::move(parts));
  model.tied_head = config.flag_or("tie_word_embeddings", true);
  model.embed_scale = std::sqrt(double(model.hidden));
  return model;
}

}  // namespace

Description describe_gemma(const Json& config) {
  refuse_bidirectional(config);
  DecoderParts parts = read_decoder(config, "gemma", {.head_dim = 256, .context = 8192});
  parts.norm.plus_one = true;
  read_biases(config, parts);
  // The first releases say "gelu" and mean its approximation, which `hidden_activation` names where it is there.
  parts.feed_forward.activation = read_activation(config, "hidden_activation", Activation::kGeluTanh);
  return finish_gemma(config, std::move(parts));
}

Description describe_gemma2(const Json& config) {
  refuse_bidirectional(config);
  DecoderParts parts = read_decoder(config, "gemma2", {.kv_heads = 4, .head_dim = 256, .context = 8192});
  AttentionSpec& attention = parts.attention;
  parts.norm.plus_one = true;
  parts.windows = read_windows(config, parts.layers, 4096, 2);
  read_biases(config, parts);
  // llama.cpp takes head_dim, but for the 27B, which it knows by its layers.
  constexpr int64_t kLayersOf27B = 46;
  const double scalar = !is_from_gguf(config)          ? 256
                        : parts.layers == kLayersOf27B ? double(parts.model.hidden / attention.heads)
                                                       : double(attention.head_dim);
  attention.scale = 1 / std::sqrt(read_number(config, "query_pre_attn_scalar", scalar));
  attention.softcap = read_cap(config, "attn_logit_softcapping", 50);
  parts.feed_forward.activation = read_activation(config, "hidden_activation", Activation::kGeluTanh);
  Description model = finish_gemma(config, std::move(parts));
  model.logit_softcap = read_cap(config, "final_logit_softcapping", 30);
  model.names.set(Role::kFfnNorm, "@layers.#.pre_feedforward_layernorm");
  add_post_norms(model);
  return model;
}

}  // namespace qgen
