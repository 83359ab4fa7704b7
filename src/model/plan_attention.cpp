// Attention: the products of q, k and v, the step over its state, and the output.
#include <cmath>

#include "model/plan_builder.h"

namespace qgen {
namespace {

// A gate's columns lie behind those of each head.
int64_t q_stride(const AttentionSpec& spec) { return spec.output_gate ? 2 * spec.head_dim : spec.head_dim; }

}  // namespace

View PlanBuilder::begin(const BlockSpec& block, const AttentionSpec& spec) {
  const int64_t q_rows = spec.heads * q_stride(spec), kv_cols = spec.kv_heads * spec.head_dim;
  const View qkv = row("qkv", q_rows + 2 * kv_cols);
  const View q{qkv.row, 0, q_rows}, k{qkv.row, q_rows, kv_cols}, v{qkv.row, q_rows + kv_cols, kv_cols};
  if (is_fused(Role::kAttnQkv, Role::kAttnQ, spec.fused)) {
    const auto parts = fused(Role::kAttnQkv, {q_rows, kv_cols, kv_cols}, model_.hidden, spec.qkv_bias);
    add_inputs(block, {to(parts[0], q), to(parts[1], k), to(parts[2], v)});
  } else {
    add_inputs(block, {to(linear(Role::kAttnQ, q_rows, model_.hidden, spec.qkv_bias), q),
                       to(linear(Role::kAttnK, kv_cols, model_.hidden, spec.qkv_bias), k),
                       to(linear(Role::kAttnV, kv_cols, model_.hidden, spec.qkv_bias), v)});
  }
  return qkv;
}

void PlanBuilder::end(const BlockSpec& block, const AttentionSpec& spec, const View& qkv) {
  const int64_t q_cols = spec.heads * spec.head_dim, kv_cols = spec.kv_heads * spec.head_dim;
  const int64_t q_rows = spec.heads * q_stride(spec);
  AttendStep attend;
  attend.state = StateId(plan_.states.size());
  plan_.states.push_back({State::Kind::kKv, spec.kv_heads, spec.head_dim, spec.head_dim, spec.window, 0});
  attend.heads = spec.heads;
  attend.kv_heads = spec.kv_heads;
  attend.key_dim = attend.value_dim = spec.head_dim;
  attend.q = {qkv.row, 0, q_stride(spec)};
  if (spec.output_gate) attend.gate = {qkv.row, spec.head_dim, q_stride(spec)};
  attend.k = {qkv.row, q_rows, spec.head_dim};
  attend.v = {qkv.row, q_rows + kv_cols, spec.head_dim};
  if (spec.q_norm) attend.q_norm = head_norm(*spec.q_norm, Role::kAttnQNorm, spec.heads, spec.head_dim);
  if (spec.k_norm) attend.k_norm = head_norm(*spec.k_norm, Role::kAttnKNorm, spec.kv_heads, spec.head_dim);
  attend.norm_after_rotation = spec.norm_after_rotation;
  attend.rope = spec.rope;
  attend.scale = spec.scale > 0 ? spec.scale : 1 / std::sqrt(double(spec.head_dim));
  attend.softcap = spec.softcap;
  attend.window = spec.window;
  attend.chunk = spec.chunk;
  attend.temperature_beta = spec.temperature_beta;
  attend.temperature_interval = spec.temperature_interval;
  attend.out = row("mixed", q_cols);
  const View mixed = attend.out;
  add(std::move(attend));
  add_output(block, linear(Role::kAttnOut, model_.hidden, q_cols, spec.out_bias), mixed);
}

}  // namespace qgen
