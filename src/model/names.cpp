#include "model/names.h"

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
    {Role::kAttnOut, "@layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {Role::kAttnQNorm, "@layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {Role::kAttnKNorm, "@layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {Role::kAttnPostNorm, "@layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {Role::kFfnNorm, "@layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {Role::kFfnGate, "@layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {Role::kFfnUp, "@layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {Role::kFfnGateUp, "@layers.#.mlp.gate_up_proj", "blk.#.ffn_up"},
    {Role::kFfnDown, "@layers.#.mlp.down_proj", "blk.#.ffn_down"},
    {Role::kFfnPostNorm, "@layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
};
static_assert(std::size(kRoles) == size_t(Role::kCount));

}  // namespace

Names Names::hugging_face() {
  Names names;
  for (const RoleRow& row : kRoles) names.set(row.role, row.hugging_face);
  names.set_prefix("model.");
  return names;
}

Names Names::gguf() {
  Names names;
  for (const RoleRow& row : kRoles) names.set(row.role, row.gguf);
  return names;
}

std::string Names::of(Role role, int64_t layer) const {
  std::string out;
  for (const char c : patterns_[size_t(role)]) {
    if (c == '@') {
      out += prefix_;
    } else if (c == '#') {
      out += fmt::format("{}", layer);
    } else {
      out += c;
    }
  }
  return out;
}

std::vector<std::string> Names::own_prefixes() const {
  if (prefix_.empty()) return {""};  // all tensors of a GGUF file belong to the language model
  return {prefix_, of(Role::kHead) + "."};
}

}  // namespace qgen
