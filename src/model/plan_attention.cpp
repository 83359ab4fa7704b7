// Attention: the products of q, k and v, the step over its state, and the output; and latent attention, whose heads
// all read one key that holds its value.
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "model/plan_builder.h"
#include "quant/transpose.h"

namespace qgen {
namespace {

// A gate's columns lie behind those of each head.
int64_t q_stride(const AttentionSpec& spec) {
  return spec.gate == AttentionSpec::Gate::kInQueries ? 2 * spec.head_dim : spec.head_dim;
}

// Columns of a gate with a matrix of its own.
int64_t gate_cols(const AttentionSpec& spec) {
  return spec.gate == AttentionSpec::Gate::kElements ? spec.heads * spec.head_dim
         : spec.gate == AttentionSpec::Gate::kHeads  ? spec.heads
                                                     : 0;
}

}  // namespace

View PlanBuilder::begin(const BlockSpec& block, const AttentionSpec& spec) {
  const int64_t q_rows = spec.heads * q_stride(spec), kv_cols = spec.kv_heads * spec.head_dim;
  const View qkv = row("qkv", q_rows + 2 * kv_cols + gate_cols(spec));
  const View q{qkv.row, 0, q_rows}, k{qkv.row, q_rows, kv_cols}, v{qkv.row, q_rows + kv_cols, kv_cols};
  if (is_fused(Role::kAttnQkv, Role::kAttnQ, spec.fused)) {
    const auto parts = fused(Role::kAttnQkv, {q_rows, kv_cols, kv_cols}, model_.hidden, spec.qkv_bias);
    add_inputs(block, {to(parts[0], q), to(parts[1], k), to(parts[2], v)});
    return qkv;
  }
  std::vector<Projection> projections = {to(linear(Role::kAttnQ, q_rows, model_.hidden, spec.qkv_bias), q)};
  if (spec.shares_layer < 0) {
    projections.push_back(to(linear(Role::kAttnK, kv_cols, model_.hidden, spec.qkv_bias), k));
    if (!spec.values_from_keys)
      projections.push_back(to(linear(Role::kAttnV, kv_cols, model_.hidden, spec.qkv_bias), v));
  }
  if (const int64_t cols = gate_cols(spec); cols > 0) {
    const View gate{qkv.row, q_rows + 2 * kv_cols, cols};
    projections.push_back(to(linear(Role::kAttnGate, cols, model_.hidden, false), gate));
  }
  add_inputs(block, std::move(projections));
  return qkv;
}

void PlanBuilder::end(const BlockSpec& block, const AttentionSpec& spec, const View& qkv) {
  const int64_t q_cols = spec.heads * spec.head_dim, kv_cols = spec.kv_heads * spec.head_dim;
  const int64_t q_rows = spec.heads * q_stride(spec);
  AttendStep attend;
  attend.stores = spec.shares_layer < 0;
  if (attend.stores) {
    attend.state = StateId(plan_.states.size());
    plan_.states.push_back({State::Kind::kKv, spec.kv_heads, spec.head_dim, spec.head_dim, spec.window, 0});
    kv_states_[size_t(layer_)] = attend.state;
  } else {
    attend.state = kv_states_[size_t(spec.shares_layer)];
  }
  if (attend.stores && spec.values_from_keys) {  // before the keys are normalized and rotated
    CombineStep copy;
    copy.y = {qkv.row, q_rows, kv_cols};
    copy.out = {qkv.row, q_rows + kv_cols, kv_cols};
    add(copy);
  }
  attend.heads = spec.heads;
  attend.kv_heads = spec.kv_heads;
  attend.key_dim = attend.value_dim = spec.head_dim;
  attend.q = {qkv.row, 0, q_stride(spec)};
  const View gate{qkv.row, q_rows + 2 * kv_cols, gate_cols(spec)};
  // The step knows sigmoids of elements.
  const bool gated_behind = spec.gate == AttentionSpec::Gate::kHeads || spec.gate_activation != Activation::kSigmoid;
  if (spec.gate == AttentionSpec::Gate::kInQueries) attend.gate = {qkv.row, spec.head_dim, q_stride(spec)};
  if (gate.cols > 0 && !gated_behind) attend.gate = {qkv.row, gate.first, spec.head_dim};
  attend.k = {qkv.row, q_rows, spec.head_dim};
  attend.v = {qkv.row, q_rows + kv_cols, spec.head_dim};
  if (spec.q_norm) attend.q_norm = head_norm(*spec.q_norm, Role::kAttnQNorm, spec.heads, spec.head_dim);
  if (spec.k_norm && attend.stores)
    attend.k_norm = head_norm(*spec.k_norm, Role::kAttnKNorm, spec.kv_heads, spec.head_dim);
  if (spec.v_norm && attend.stores)
    attend.v_norm = {spec.v_norm->kind, nullptr, nullptr, spec.v_norm->eps, spec.head_dim};
  attend.norm_after_rotation = spec.norm_after_rotation;
  attend.rope = spec.rope;
  attend.scale = spec.scale > 0 ? spec.scale : 1 / std::sqrt(double(spec.head_dim));
  attend.softcap = spec.softcap;
  attend.window = spec.window;
  attend.chunk = spec.chunk;
  attend.temperature_beta = spec.temperature_beta;
  attend.temperature_interval = spec.temperature_interval;
  attend.temperature_offset = spec.temperature_offset;
  if (spec.sinks) attend.sinks = keep(source_.vector(module(Role::kAttnSinks), spec.heads));
  attend.out = row("mixed", q_cols);
  const View mixed = attend.out;
  add(std::move(attend));
  if (gate.cols > 0 && gated_behind) {
    CombineStep gated;
    gated.y = gated.out = mixed;
    gated.gate = gate;
    gated.activation = spec.gate_activation;
    add(gated);
  }
  add_output(block, linear(Role::kAttnOut, model_.hidden, q_cols, spec.out_bias), mixed);
}

View PlanBuilder::begin(const BlockSpec& block, const LatentSpec& spec) {
  const int64_t q_cols = spec.heads * (spec.plain_dim + spec.rotated_dim);
  const View latent = row("latent", spec.kv_rank + spec.rotated_dim);
  const bool low = spec.q_rank > 0;
  const View q = low ? row("q_latent", spec.q_rank) : row("q", q_cols);
  add_inputs(block, {to(linear(low ? Role::kLatentQDown : Role::kAttnQ, q.cols, model_.hidden, low && spec.bias), q),
                     to(linear(Role::kLatentKvDown, latent.cols, model_.hidden, spec.bias), latent)});
  return latent;
}

// With keys K c and values V c of the latent c: q (K c) = (K^T q) c, and what the heads gather is V times a sum of c.
void PlanBuilder::end(const BlockSpec& block, const LatentSpec& spec, const View& latent) {
  const int64_t q_dim = spec.plain_dim + spec.rotated_dim, key_dim = spec.kv_rank + spec.rotated_dim;
  const View q = row("q", spec.heads * q_dim);
  if (spec.q_rank > 0) {
    LinearStep up;
    up.in = row("q_latent", spec.q_rank);
    up.norm = norm(spec.norm, module(Role::kLatentQNorm), spec.q_rank);
    up.projections = {to(linear(Role::kLatentQUp, q.cols, spec.q_rank, false), q)};
    add(std::move(up));
  }
  CombineStep normalize;
  normalize.y = normalize.out = {latent.row, latent.first, spec.kv_rank};
  normalize.norm = norm(spec.norm, module(Role::kLatentKvNorm), spec.kv_rank);
  add(normalize);

  HeadLinearStep keys, values;
  split_latent_up(spec, keys.weights, values.weights);
  keys.in = {q.row, q.first, q_dim};
  keys.out = {row("query", spec.heads * key_dim).row, 0, key_dim};
  keys.kept = spec.rotated_dim;
  const Heads query = keys.out;
  add(std::move(keys));

  AttendStep attend;
  attend.state = StateId(plan_.states.size());
  State state{State::Kind::kKv, 1, key_dim, spec.kv_rank, 0, 0};
  state.values_in_keys = true;
  plan_.states.push_back(state);
  attend.heads = spec.heads;
  attend.kv_heads = 1;
  attend.key_dim = key_dim;
  attend.value_dim = spec.kv_rank;
  attend.q = query;
  attend.k = {latent.row, latent.first, key_dim};
  attend.rope = spec.rotated_dim > 0 ? spec.rope : -1;
  attend.rotated_first = spec.kv_rank;
  attend.scale = spec.scale;
  attend.temperature_beta = spec.temperature_beta;
  attend.temperature_interval = spec.temperature_interval;
  attend.out = row("mixed", spec.heads * spec.kv_rank);
  values.in = {attend.out.row, 0, spec.kv_rank};
  add(std::move(attend));

  const View result = row("values", spec.heads * spec.value_dim);
  values.out = {result.row, 0, spec.value_dim};
  add(std::move(values));
  add_output(block, linear(Role::kAttnOut, model_.hidden, result.cols, spec.bias), result);
}

void PlanBuilder::split_latent_up(const LatentSpec& spec, std::vector<const Weight*>& keys,
                                  std::vector<const Weight*>& values) {
  if (!module(Role::kLatentKUp).empty() && source_.has_stack(module(Role::kLatentKUp))) {
    for (Weight& weight : source_.stack(module(Role::kLatentKUp), spec.heads, spec.kv_rank, spec.plain_dim))
      keys.push_back(keep(std::move(weight)));
    for (Weight& weight : source_.stack(module(Role::kLatentVUp), spec.heads, spec.value_dim, spec.kv_rank))
      values.push_back(keep(std::move(weight)));
    return;
  }
  const int64_t rows = spec.plain_dim + spec.value_dim;
  const std::string name = module(Role::kLatentKvUp);
  const Weight whole = source_.matrix(name, spec.heads * rows, spec.kv_rank);
  if (source_.input_scale(name, spec.kv_rank) || whole.ordered) {
    fail(ErrorKind::kModel, fmt::format("{}: a latent's matrix whose inputs are scaled or in an order of their own is "
                                        "not supported",
                                        whole.tensor));
  }
  for (int64_t h = 0; h < spec.heads; ++h) {
    keys.push_back(keep(transposed_rows(slice_rows(whole, h * rows, spec.plain_dim), 0, spec.kv_rank)));
    values.push_back(keep(slice_rows(whole, h * rows + spec.plain_dim, spec.value_dim)));
  }
}

}  // namespace qgen
