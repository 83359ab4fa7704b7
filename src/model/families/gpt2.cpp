// GPT-2: learned positions instead of a rotation, LayerNorm, biases everywhere, and matrices stored (inputs, outputs).
// Names begin with "transformer." or, in the first releases, with nothing. transformers: models/gpt2.
#include <cmath>

#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_gpt2(const Json& config) {
  const DecoderKeys keys = {.layers = "n_layer",
                            .hidden = "n_embd",
                            .heads = "n_head",
                            .intermediate = "n_inner",
                            .activation = "activation_function",
                            .context = "n_positions",
                            .epsilon = "layer_norm_epsilon"};
  constexpr Description::NamePlace kPlaces[] = {{"transformer.", "lm_head"}, {"", "lm_head"}};
  const bool own_width = config.get(keys.intermediate) || config.get(DecoderKeys{}.intermediate);
  const int64_t inner = own_width ? 0 : 4 * config.at(keys.hidden).as_integer(1, kMaxWidth / 4);
  DecoderParts parts = read_decoder(
      config, "gpt2",
      {.intermediate = inner, .context = 1024, .epsilon = 1e-5, .activation = Activation::kGeluTanh, .keys = keys});
  if (config.flag_or("add_cross_attention", false))
    config.at("add_cross_attention").fail("true is not supported", "the decoder of an encoder: it needs its encoder");
  use_layer_norm(parts, true);
  parts.attention.qkv_bias = parts.attention.out_bias = parts.feed_forward.bias = true;
  parts.attention.fused = true;
  parts.attention.rope = -1;
  parts.feed_forward.gated = false;
  parts.model.ropes.clear();
  Description model = finish_decoder(std::move(parts));
  model.positions = model.context;
  if (!model.tied_head) model.tied_head = true;
  const bool scaled = config.flag_or("scale_attn_weights", true);
  const bool by_layer = config.flag_or("scale_attn_by_inverse_layer_idx", false);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    AttentionSpec& attention = attention_of(model.layers[i]);
    attention.scale = (scaled ? 1 / std::sqrt(double(attention.head_dim)) : 1) / (by_layer ? double(i + 1) : 1);
  }
  if (is_from_gguf(config)) return model;
  model.transposed = true;
  model.unused_parts = {{".attn.bias", kProgramBuffer}, {".attn.masked_bias", kProgramBuffer}};
  model.places.assign(std::begin(kPlaces), std::end(kPlaces));
  model.names.set_prefix(kPlaces[0].prefix);
  model.names.set({{Role::kEmbed, "@wte"},
                   {Role::kPositions, "@wpe"},
                   {Role::kFinalNorm, "@ln_f"},
                   {Role::kAttnNorm, "@h.#.ln_1"},
                   {Role::kAttnQkv, "@h.#.attn.c_attn"},
                   {Role::kAttnOut, "@h.#.attn.c_proj"},
                   {Role::kFfnNorm, "@h.#.ln_2"},
                   {Role::kFfnUp, "@h.#.mlp.c_fc"},
                   {Role::kFfnDown, "@h.#.mlp.c_proj"}});
  return model;
}

}  // namespace qgen
