// Linear attention: projections, a short convolution, the recurrence and a gated norm behind it.
#include <cmath>

#include "model/plan_builder.h"

namespace qgen {
namespace {

// The parts of the row that a delta net begins with.
struct DeltaRow {
  View q, k, v, qkv, z, decay, rate;
  DeltaRow(const DeltaSpec& spec, RowId row) {
    const int64_t keys = spec.key_heads * spec.key_dim, values = spec.value_heads * spec.value_dim;
    q = {row, 0, keys};
    k = {row, keys, keys};
    v = {row, 2 * keys, values};
    qkv = {row, 0, 2 * keys + values};
    z = {row, qkv.cols, values};
    decay = {row, qkv.cols + values, spec.value_heads};
    rate = {row, decay.first + decay.cols, spec.value_heads};
  }
};

}  // namespace

View PlanBuilder::begin(const BlockSpec& block, const DeltaSpec& spec) {
  const int64_t keys = spec.key_heads * spec.key_dim, values = spec.value_heads * spec.value_dim;
  const View all = row("delta", 2 * keys + 2 * values + 2 * spec.value_heads);
  const DeltaRow part(spec, all.row);
  std::vector<Projection> projections;
  if (spec.by_key_head) {
    add_by_head(Role::kDeltaQkvz, spec.key_heads, {part.q, part.k, part.v, part.z}, projections);
    add_by_head(Role::kDeltaRateDecay, spec.key_heads, {part.rate, part.decay}, projections);
  } else {
    projections = {to(linear(Role::kDeltaQkv, part.qkv.cols, model_.hidden, false), part.qkv),
                   to(linear(Role::kDeltaZ, part.z.cols, model_.hidden, false), part.z),
                   to(linear(Role::kDeltaDecay, part.decay.cols, model_.hidden, false), part.decay),
                   to(linear(Role::kDeltaRate, part.rate.cols, model_.hidden, false), part.rate)};
  }
  add_inputs(block, std::move(projections));
  return all;
}

void PlanBuilder::end(const BlockSpec& block, const DeltaSpec& spec, const View& all) {
  const DeltaRow part(spec, all.row);
  ConvStep conv;
  conv.state = fixed_state((spec.taps - 1) * part.qkv.cols);
  conv.taps = spec.taps;
  conv.in = conv.out = part.qkv;
  conv.weight = keep(source_.vector(module(Role::kDeltaConv) + ".weight", part.qkv.cols * spec.taps, spec.taps));
  conv.activation = Activation::kSilu;
  add(conv);

  RecurStep recur;
  recur.kind = RecurStep::Kind::kGatedDelta;
  recur.state = fixed_state(spec.value_heads * spec.key_dim * spec.value_dim);
  recur.heads = spec.value_heads;
  recur.key_heads = spec.key_heads;
  recur.key_dim = spec.key_dim;
  recur.value_dim = spec.value_dim;
  recur.q = {part.q.row, part.q.first, spec.key_dim};
  recur.k = {part.k.row, part.k.first, spec.key_dim};
  recur.v = {part.v.row, part.v.first, spec.value_dim};
  recur.decay = part.decay;
  recur.rate = part.rate;
  recur.a_log = keep(source_.vector(module(Role::kDeltaALog), spec.value_heads));
  recur.decay_bias = keep(source_.vector(module(Role::kDeltaDecayBias), spec.value_heads));
  recur.unit_keys = true;
  recur.eps = 1e-6;
  recur.scale = 1 / std::sqrt(double(spec.key_dim));
  recur.out = row("mixed", part.v.cols);
  const View mixed = recur.out;
  add(recur);

  CombineStep gate;
  gate.y = gate.out = mixed;
  gate.norm = norm(spec.norm, module(Role::kDeltaNorm), spec.value_dim);
  gate.gate = part.z;
  gate.activation = spec.output_gate;
  add(gate);
  add_output(block, linear(Role::kDeltaOut, model_.hidden, mixed.cols, false), mixed);
}

// The products of a matrix whose rows are those of the views' parts for the first of `heads`, then for the next.
void PlanBuilder::add_by_head(Role role, int64_t heads, const std::vector<View>& views, std::vector<Projection>& out) {
  std::vector<int64_t> rows;
  std::vector<View> parts;
  for (int64_t h = 0; h < heads; ++h) {
    for (const View& view : views) {
      const int64_t cols = view.cols / heads;
      rows.push_back(cols);
      parts.push_back({view.row, view.first + h * cols, cols});
    }
  }
  const std::vector<Projection> projections = fused(role, rows, model_.hidden, false);
  for (size_t i = 0; i < parts.size(); ++i) out.push_back(to(projections[i], parts[i]));
}

}  // namespace qgen
