#include "model/names.h"

#include <utility>

#include <fmt/format.h>

namespace qgen {
namespace {

// GGUF: gguf-py, constants.py, TENSOR_NAMES.
struct RoleRow {
  Role role;
  std::string_view hugging_face;
  std::string_view gguf;
};
constexpr RoleRow kRoles[] = {
    {Role::kEmbed, "@embed_tokens", "token_embd"},
    {Role::kPositions, "", "position_embd"},
    {Role::kFinalNorm, "@norm", "output_norm"},
    {Role::kHead, "lm_head", "output"},
    {Role::kRopeFactors, "", "rope_freqs"},
    {Role::kRopeShortFactors, "", "rope_factors_short"},
    {Role::kRopeLongFactors, "", "rope_factors_long"},
    {Role::kAttnNorm, "@layers.#.input_layernorm", "blk.#.attn_norm"},
    {Role::kAttnQ, "@layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {Role::kAttnK, "@layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {Role::kAttnV, "@layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {Role::kAttnQkv, "@layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"},
    {Role::kAttnGate, "@layers.#.self_attn.gate_proj", "blk.#.attn_gate"},
    {Role::kAttnOut, "@layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {Role::kAttnQNorm, "@layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {Role::kAttnKNorm, "@layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {Role::kAttnSinks, "@layers.#.self_attn.sinks", "blk.#.attn_sinks.weight"},
    {Role::kLatentQDown, "@layers.#.self_attn.q_a_proj", "blk.#.attn_q_a"},
    {Role::kLatentQNorm, "@layers.#.self_attn.q_a_layernorm", "blk.#.attn_q_a_norm"},
    {Role::kLatentQUp, "@layers.#.self_attn.q_b_proj", "blk.#.attn_q_b"},
    {Role::kLatentKvDown, "@layers.#.self_attn.kv_a_proj_with_mqa", "blk.#.attn_kv_a_mqa"},
    {Role::kLatentKvNorm, "@layers.#.self_attn.kv_a_layernorm", "blk.#.attn_kv_a_norm"},
    {Role::kLatentKvUp, "@layers.#.self_attn.kv_b_proj", "blk.#.attn_kv_b"},
    {Role::kLatentKUp, "", "blk.#.attn_k_b"},
    {Role::kLatentVUp, "", "blk.#.attn_v_b"},
    {Role::kAttnPostNorm, "@layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {Role::kFfnNorm, "@layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {Role::kFfnGate, "@layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {Role::kFfnUp, "@layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {Role::kFfnGateUp, "@layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
    {Role::kFfnDown, "@layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {Role::kFfnPostNorm, "@layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
    {Role::kRouter, "@layers.#.mlp.gate", "blk.#.ffn_gate_inp"},
    {Role::kRouterBias, "@layers.#.mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias"},
    {Role::kExpertGateUpsBias, "@layers.#.mlp.experts.gate_up_proj_bias", ""},
    {Role::kExpertDownsBias, "@layers.#.mlp.experts.down_proj_bias", "blk.#.ffn_down_exps.bias"},
    {Role::kExpertGatesBias, "", "blk.#.ffn_gate_exps.bias"},
    {Role::kExpertUpsBias, "", "blk.#.ffn_up_exps.bias"},
    {Role::kExpertGate, "@layers.#.mlp.experts.*.gate_proj", ""},
    {Role::kExpertUp, "@layers.#.mlp.experts.*.up_proj", ""},
    {Role::kExpertDown, "@layers.#.mlp.experts.*.down_proj", ""},
    {Role::kExpertGates, "@layers.#.mlp.experts.gate_proj", "blk.#.ffn_gate_exps"},
    {Role::kExpertUps, "@layers.#.mlp.experts.up_proj", "blk.#.ffn_up_exps"},
    {Role::kExpertGateUps, "@layers.#.mlp.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"},
    {Role::kExpertDowns, "@layers.#.mlp.experts.down_proj", "blk.#.ffn_down_exps"},
    {Role::kExpertsIn, "", "blk.#.ffn_latent_down"},
    {Role::kExpertsOut, "", "blk.#.ffn_latent_up"},
    {Role::kSharedGate, "@layers.#.mlp.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"},
    {Role::kSharedUp, "@layers.#.mlp.shared_expert.up_proj", "blk.#.ffn_up_shexp"},
    {Role::kSharedDown, "@layers.#.mlp.shared_expert.down_proj", "blk.#.ffn_down_shexp"},
    {Role::kSharedScore, "@layers.#.mlp.shared_expert_gate", "blk.#.ffn_gate_inp_shexp"},
    {Role::kDeltaQkv, "@layers.#.linear_attn.in_proj_qkv", "blk.#.attn_qkv"},
    {Role::kDeltaZ, "@layers.#.linear_attn.in_proj_z", "blk.#.attn_gate"},
    {Role::kDeltaQkvz, "@layers.#.linear_attn.in_proj_qkvz", ""},
    {Role::kDeltaDecay, "@layers.#.linear_attn.in_proj_a", "blk.#.ssm_alpha"},
    {Role::kDeltaRate, "@layers.#.linear_attn.in_proj_b", "blk.#.ssm_beta"},
    {Role::kDeltaRateDecay, "@layers.#.linear_attn.in_proj_ba", "blk.#.ssm_ba"},
    {Role::kDeltaConv, "@layers.#.linear_attn.conv1d", "blk.#.ssm_conv1d"},
    {Role::kDeltaALog, "@layers.#.linear_attn.A_log", "blk.#.ssm_a"},
    {Role::kDeltaDecayBias, "@layers.#.linear_attn.dt_bias", "blk.#.ssm_dt.bias"},
    {Role::kDeltaNorm, "@layers.#.linear_attn.norm", "blk.#.ssm_norm"},
    {Role::kDeltaOut, "@layers.#.linear_attn.out_proj", "blk.#.ssm_out"},
    {Role::kMambaIn, "@layers.#.mamba.in_proj", "blk.#.ssm_in"},
    {Role::kMambaConv, "@layers.#.mamba.conv1d", "blk.#.ssm_conv1d"},
    {Role::kMambaALog, "@layers.#.mamba.A_log", "blk.#.ssm_a"},
    {Role::kMambaStepBias, "@layers.#.mamba.dt_bias", "blk.#.ssm_dt.bias"},
    {Role::kMambaSkip, "@layers.#.mamba.D", "blk.#.ssm_d"},
    {Role::kMambaNorm, "@layers.#.mamba.norm", "blk.#.ssm_norm"},
    {Role::kMambaOut, "@layers.#.mamba.out_proj", "blk.#.ssm_out"},
    {Role::kXieluPositive, "@layers.#.mlp.act_fn.alpha_p", ""},
    {Role::kXieluNegative, "@layers.#.mlp.act_fn.alpha_n", ""},
    {Role::kXieluBeta, "@layers.#.mlp.act_fn.beta", ""},
    {Role::kXieluEpsilon, "@layers.#.mlp.act_fn.eps", ""},
    {Role::kLayerScale, "@layers.#.layer_scalar", "blk.#.layer_output_scale.weight"},
    {Role::kPerLayerEmbed, "@embed_tokens_per_layer", "per_layer_token_embd"},
    {Role::kPerLayerProjection, "@per_layer_model_projection", "per_layer_model_proj"},
    {Role::kPerLayerNorm, "@per_layer_projection_norm", "per_layer_proj_norm"},
    {Role::kPerLayerGate, "@layers.#.per_layer_input_gate", "blk.#.inp_gate"},
    {Role::kPerLayerOut, "@layers.#.per_layer_projection", "blk.#.proj"},
    {Role::kPerLayerPostNorm, "@layers.#.post_per_layer_input_norm", "blk.#.post_norm"},
    {Role::kRouterNorm, "@layers.#.router.scale", "blk.#.ffn_gate_inp.scale"},
    {Role::kExpertScale, "@layers.#.router.per_expert_scale", "blk.#.ffn_down_exps.scale"},
    {Role::kExpertsNorm, "@layers.#.pre_feedforward_layernorm_2", "blk.#.pre_ffw_norm_2"},
    {Role::kExpertsPostNorm, "@layers.#.post_feedforward_layernorm_2", "blk.#.post_ffw_norm_2"},
    {Role::kSharedPostNorm, "@layers.#.post_feedforward_layernorm_1", "blk.#.post_ffw_norm_1"},
    {Role::kConvIn, "@layers.#.conv.in_proj", "blk.#.shortconv.in_proj"},
    {Role::kConv, "@layers.#.conv.conv", "blk.#.shortconv.conv"},
    {Role::kConvOut, "@layers.#.conv.out_proj", "blk.#.shortconv.out_proj"},
    {Role::kDraftEmbedNorm, "@layers.#.enorm", "blk.#.nextn.enorm"},
    {Role::kDraftHiddenNorm, "@layers.#.hnorm", "blk.#.nextn.hnorm"},
    {Role::kDraftJoin, "@layers.#.eh_proj", "blk.#.nextn.eh_proj"},
    {Role::kDraftNorm, "@layers.#.shared_head.norm", "blk.#.nextn.shared_head_norm"},
};
static_assert(std::size(kRoles) == size_t(Role::kCount));

}  // namespace

Names Names::hugging_face() {
  Names names;
  for (const RoleRow& row : kRoles) names.set(row.role, row.hugging_face);
  names.set_prefix("model.");
  return names;
}

// mistral-common and vLLM's models/mistral: the names of Meta's first Llama.
Names Names::mistral() {
  constexpr std::pair<Role, std::string_view> kMistral[] = {
      {Role::kEmbed, "tok_embeddings"},
      {Role::kFinalNorm, "norm"},
      {Role::kHead, "output"},
      {Role::kAttnNorm, "layers.#.attention_norm"},
      {Role::kAttnQ, "layers.#.attention.wq"},
      {Role::kAttnK, "layers.#.attention.wk"},
      {Role::kAttnV, "layers.#.attention.wv"},
      {Role::kAttnOut, "layers.#.attention.wo"},
      {Role::kFfnNorm, "layers.#.ffn_norm"},
      {Role::kFfnGate, "layers.#.feed_forward.w1"},
      {Role::kFfnUp, "layers.#.feed_forward.w3"},
      {Role::kFfnDown, "layers.#.feed_forward.w2"},
  };
  Names names;
  for (const auto& [role, pattern] : kMistral) names.set(role, pattern);
  names.own_ = {"layers.", "tok_embeddings.", "norm.", "output."};
  return names;
}

Names Names::gguf() {
  Names names;
  for (const RoleRow& row : kRoles) names.set(row.role, row.gguf);
  return names;
}

std::string Names::of(Role role, int64_t layer, int64_t expert) const {
  std::string out;
  for (const char c : patterns_[size_t(role)]) {
    if (c == '@') {
      out += prefix_;
    } else if (c == '#') {
      out += fmt::format("{}", layer);
    } else if (c == '*') {
      out += fmt::format("{}", expert);
    } else {
      out += c;
    }
  }
  return out;
}

std::string Names::layer_prefix(int64_t layer) const {
  const std::string norm = of(Role::kAttnNorm, layer);
  return norm.substr(0, norm.rfind('.') + 1);
}

std::vector<std::string> Names::own_prefixes() const {
  if (!own_.empty()) return own_;
  if (prefix_.empty()) return {""};  // all tensors of a GGUF file belong to the language model
  return {prefix_, of(Role::kHead) + "."};
}

}  // namespace qgen
