// Linear attention: projections, a short convolution, the recurrence and a gated norm behind it.
#include <cmath>
#include <functional>
#include <memory>

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
  } else {
    projections = {to(linear(Role::kDeltaQkv, part.qkv.cols, model_.hidden, false), part.qkv),
                   to(linear(Role::kDeltaZ, part.z.cols, model_.hidden, false), part.z)};
  }
  if (spec.by_key_head || spec.rates_by_key_head) {
    add_by_head(Role::kDeltaRateDecay, spec.key_heads, {part.rate, part.decay}, projections);
  } else {
    projections.push_back(to(linear(Role::kDeltaDecay, part.decay.cols, model_.hidden, false), part.decay));
    projections.push_back(to(linear(Role::kDeltaRate, part.rate.cols, model_.hidden, false), part.rate));
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
  recur.a_log = a_log(module(Role::kDeltaALog), spec.value_heads, spec.folded_decay);
  recur.key_heads_repeat = spec.key_heads_repeat;
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

// Where the files have -exp(a_log), its logarithm.
const Vector* PlanBuilder::a_log(const std::string& name, int64_t heads, bool folded) {
  Vector stored = source_.vector(name, heads);
  if (!folded) return keep(std::move(stored));
  Vector out;
  out.name = stored.name;
  out.size = heads;
  out.derived = std::make_shared<const std::function<std::vector<float>()>>([stored = std::move(stored)] {
    std::vector<float> values = stored.values();
    for (float& value : values) value = std::log(-value);
    return values;
  });
  return keep(std::move(out));
}

// The row is [gate, input, B, C, step sizes].
View PlanBuilder::begin(const BlockSpec& block, const MambaSpec& spec) {
  const int64_t inner = spec.heads * spec.head_dim;
  const int64_t keys = spec.groups * spec.state_dim;
  const View all = row("mamba", 2 * inner + 2 * keys + spec.heads);
  if (spec.factors == MambaSpec().factors) {
    add_inputs(block, {to(linear(Role::kMambaIn, all.cols, model_.hidden, spec.bias), all)});
    return all;
  }
  const std::vector<int64_t> cols = {inner, inner, keys, keys, spec.heads};
  std::vector<Projection> parts = fused(Role::kMambaIn, cols, model_.hidden, spec.bias);
  int64_t first = 0;
  for (size_t i = 0; i < cols.size(); ++i) {
    parts[i] = to(parts[i], {all.row, first, cols[i]});
    parts[i].scale = spec.factors[i];
    first += cols[i];
  }
  add_inputs(block, std::move(parts));
  return all;
}

void PlanBuilder::end(const BlockSpec& block, const MambaSpec& spec, const View& all) {
  const int64_t inner = spec.heads * spec.head_dim, keys = spec.groups * spec.state_dim;
  const View z{all.row, 0, inner}, mixed_columns{all.row, inner, inner + 2 * keys};
  ConvStep conv;
  conv.state = fixed_state((spec.taps - 1) * mixed_columns.cols);
  conv.taps = spec.taps;
  conv.in = conv.out = mixed_columns;
  const std::string name = module(Role::kMambaConv);
  conv.weight = keep(source_.vector(name + ".weight", mixed_columns.cols * spec.taps, spec.taps));
  if (spec.conv_bias) conv.bias = keep(source_.vector(name + ".bias", mixed_columns.cols));
  conv.activation = Activation::kSilu;
  add(conv);

  RecurStep recur;
  recur.kind = RecurStep::Kind::kSsd;
  recur.state = fixed_state(inner * spec.state_dim);
  recur.heads = spec.heads;
  recur.key_heads = spec.groups;
  recur.key_dim = spec.state_dim;
  recur.value_dim = spec.head_dim;
  recur.v = {all.row, inner, spec.head_dim};
  recur.k = {all.row, 2 * inner, spec.state_dim};
  recur.q = {all.row, 2 * inner + keys, spec.state_dim};
  recur.decay = {all.row, 2 * inner + 2 * keys, spec.heads};
  recur.a_log = a_log(module(Role::kMambaALog), spec.heads, spec.folded_decay);
  recur.decay_bias = keep(source_.vector(module(Role::kMambaStepBias), spec.heads));
  recur.skip = keep(source_.vector(module(Role::kMambaSkip), spec.heads));
  recur.out = row("mixed", inner);
  const View mixed = recur.out;
  add(recur);

  CombineStep gate;
  gate.y = gate.out = mixed;
  gate.gate = z;
  gate.activation = Activation::kSilu;
  Norm of_groups;
  if (spec.normed) {
    of_groups = norm(spec.norm, module(Role::kMambaNorm), inner);
    of_groups.group = inner / spec.norm_groups;
  }
  if (spec.norm_before_gate) gate.norm = of_groups;
  add(gate);
  if (spec.normed && !spec.norm_before_gate) {
    CombineStep normalize;
    normalize.y = normalize.out = mixed;
    normalize.norm = of_groups;
    add(normalize);
  }
  add_output(block, linear(Role::kMambaOut, model_.hidden, inner, spec.out_bias), mixed);
}

// The row is [b, c, u].
View PlanBuilder::begin(const BlockSpec& block, const ShortConvSpec& spec) {
  const View all = row("conv", 3 * model_.hidden);
  add_inputs(block, {to(linear(Role::kConvIn, all.cols, model_.hidden, spec.bias), all)});
  return all;
}

void PlanBuilder::end(const BlockSpec& block, const ShortConvSpec& spec, const View& all) {
  const int64_t cols = model_.hidden;
  const View b{all.row, 0, cols}, c{all.row, cols, cols}, u{all.row, 2 * cols, cols};
  CombineStep before;
  before.y = before.out = u;
  before.gate = b;
  add(before);
  ConvStep conv;
  conv.state = fixed_state((spec.taps - 1) * cols);
  conv.taps = spec.taps;
  conv.in = conv.out = u;
  const std::string name = module(Role::kConv);
  conv.weight = keep(source_.vector(name + ".weight", cols * spec.taps, spec.taps));
  if (spec.bias) conv.bias = keep(source_.vector(name + ".bias", cols));
  add(conv);
  CombineStep after;
  after.y = u;
  after.gate = c;
  after.out = row("mixed", cols);
  add(after);
  add_output(block, linear(Role::kConvOut, cols, cols, spec.bias), after.out);
}

}  // namespace qgen
