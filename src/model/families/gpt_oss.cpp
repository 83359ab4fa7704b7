// gpt-oss: windows on every other layer, sinks, and in every layer a mixture with biases, whose activation is bounded.
// transformers: models/gpt_oss.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {

Description describe_gpt_oss(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "gpt_oss", {.head_dim = 64, .context = 131072, .rope_theta = 150000, .epsilon = 1e-5});
  parts.attention.sinks = true;
  parts.attention.qkv_bias = parts.attention.out_bias = config.flag_or("attention_bias", true);
  parts.windows = read_windows(config, parts.layers, 128, 2);
  MixtureSpec mixture = read_mixture(
      config, parts.layers, {.experts = "num_local_experts", .width = "intermediate_size", .default_chosen = 4});
  mixture.activation = Activation::kQuickGelu;
  constexpr double kAlpha = 1.702;  // of QuickGELU
  if (const auto alpha = config.get("swiglu_alpha"); alpha && alpha->as_number() != kAlpha)
    alpha->fail(fmt::format("{} is not supported (expected {})", alpha->as_number(), kAlpha));
  mixture.limit = read_number(config, "swiglu_limit", 7);
  mixture.up_offset = 1;
  mixture.biased = true;
  mixture.transposed = mixture.interleaved = !is_from_gguf(config);
  mixture.normalized = true;
  const std::vector<bool> layers(size_t(parts.layers), true);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, layers);
  model.names.set(Role::kRouter, "@layers.#.mlp.router");
  // llm-compressor puts a list of experts in place of the stacks.
  model.other_names = {{{Role::kExpertDown, "@layers.#.mlp.experts.experts.*.down_proj"},
                        {Role::kExpertGate, "@layers.#.mlp.experts.experts.*.gate_proj"},
                        {Role::kExpertUp, "@layers.#.mlp.experts.experts.*.up_proj"}}};
  model.gguf_names = {{Role::kFfnNorm, "blk.#.post_attention_norm"}};
  return model;
}

}  // namespace qgen
