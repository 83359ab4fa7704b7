// Ling and Ring (BailingMoE): Llama with q, k and v as one matrix, and after a few dense layers mixtures with shared
// experts. Version 1 chooses by softmax; version 2 by sigmoids and a bias among groups, has norms of the heads of q and
// k, rotates half of each head, and drafts with one more layer. Not in transformers: the keys are those of the
// checkpoints' own configuration_bailing_moe.py and configuration_bailing_moe_v2.py.
// Sarvam 30B: version 2 with whole heads rotated. transformers: models/sarvam_moe.
#include <string_view>

#include "model/families/common.h"
#include "model/families/mixture.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// Both versions go by one model_type.
bool is_second(const Json& config) {
  if (is_from_gguf(config)) return true;  // the other one has an architecture of its own there
  if (const std::string_view name = first_architecture(config); !name.empty())
    return name.find("V2") != std::string_view::npos;
  const auto score = config.get("score_function");
  return score && score->as_string() == "sigmoid";
}

// `dense`: layers before the first mixture, where nothing is said.
Description describe_block(const Json& config, std::string_view family, bool second, int64_t dense) {
  DecoderParts parts = read_decoder(config, family, {.context = 16384, .partial_rotary = second ? 1.0 : 0.0});
  if (config.flag_or("norm_head", false)) config.at("norm_head").fail("true is not supported (expected false)");
  parts.attention.qkv_bias = config.flag_or("use_qkv_bias", config.flag_or("attention_bias", false));
  parts.attention.out_bias = config.flag_or("use_bias", false);
  parts.attention.fused = true;
  if (second && config.flag_or("use_qk_norm", true)) parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  MixtureSpec mixture = read_mixture(config, parts.layers);
  if (second) {
    read_sigmoid_choice(config, mixture);
  } else {
    mixture.normalized = read_normalized(config, true);
  }
  read_shared_experts(config, mixture, 0);
  const std::vector<bool> sparse = read_sparse_layers(config, parts.layers, dense);
  Description model = finish_decoder(std::move(parts));
  set_mixtures(model, mixture, sparse);
  if (second) set_draft(model, config, "num_nextn_predict_layers", {model.layers.back(), model.final_norm});
  name_shared_experts(model.names);
  model.names.set({{Role::kEmbed, "@word_embeddings"},
                   {Role::kAttnQkv, "@layers.#.attention.query_key_value"},
                   {Role::kAttnOut, "@layers.#.attention.dense"},
                   {Role::kAttnQNorm, "@layers.#.attention.query_layernorm"},
                   {Role::kAttnKNorm, "@layers.#.attention.key_layernorm"},
                   {Role::kRouterBias, "@layers.#.mlp.gate.expert_bias"},
                   {Role::kDraftNorm, "@layers.#.final_layernorm"}});
  return model;
}

}  // namespace

Description describe_bailing_moe(const Json& config) {
  return describe_block(config, "bailing_moe", is_second(config), 0);
}

Description describe_sarvam_moe(const Json& config) { return describe_block(config, "sarvam_moe", /*second=*/true, 1); }

}  // namespace qgen
