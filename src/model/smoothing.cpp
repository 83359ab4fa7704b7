#include "model/smoothing.h"

#include <utility>

namespace qgen {
namespace {

// The products of a norm's weight, or bias, and a multiplier of the columns: exact where both have 16 bits.
Vector product(const Vector& a, const Vector& scale) {
  Vector out;
  out.name = scale.name;
  out.size = scale.size;
  out.derived = std::make_shared<const std::function<std::vector<float>()>>([a, scale] {
    std::vector<float> values = a.values();
    const std::vector<float> factors = scale.values();
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i];
    return values;
  });
  return out;
}

}  // namespace

Smoothing::Want Smoothing::want_of(const Norm& norm, const Weight& weight) const {
  Want want;
  want.smoothed = weight.quantized() && smoothed_norms_.contains(norm.weight);
  if (const auto it = input_scales_.find(&weight); it != input_scales_.end()) want.scale = it->second;
  return want;
}

Norm Smoothing::norm_for(const Norm& norm, const Want& want, int64_t cols, const KeepVector& keep) const {
  Norm out = want.smoothed ? smoothed_norms_.at(norm.weight) : norm;
  if (want.scale == nullptr) return out;
  if (!out) out = {Norm::Kind::kScale, nullptr, nullptr, 0, cols};
  out.weight = out.weight == nullptr ? want.scale : keep(product(*out.weight, *want.scale));
  if (out.bias != nullptr) out.bias = keep(product(*out.bias, *want.scale));
  return out;
}

std::vector<Smoothing::Op> Smoothing::arranged(LinearStep step, const MakeRow& make_row, const KeepVector& keep) const {
  std::vector<std::pair<Want, LinearStep>> parts;
  std::vector<CombineStep> gates;
  const auto put = [&](const Want& want, Projection projection) {
    auto part = parts.begin();
    while (part != parts.end() && part->first != want) ++part;
    if (part == parts.end())
      part = parts.insert(part, {want, {step.in, norm_for(step.norm, want, step.in.cols, keep), {}}});
    part->second.projections.push_back(std::move(projection));
  };
  for (Projection& p : step.projections) {
    const Want want = want_of(step.norm, *p.weight);
    const Want gate_want = p.gate == nullptr ? want : want_of(step.norm, *p.gate);
    if (gate_want == want) {
      put(want, std::move(p));
      continue;
    }
    // out (+)= scale * (W x + bias) * activation(gate x + gate_bias), the factors in rows of their own.
    Projection gate, value;
    gate.weight = p.gate;
    gate.bias = p.gate_bias;
    gate.out = make_row("gate", p.weight->rows, false);
    value.weight = p.weight;
    value.bias = p.bias;
    value.out = p.add ? make_row("gated", p.weight->rows, false) : p.out;
    CombineStep combine;
    combine.y = value.out;
    combine.y_scale = p.scale;
    combine.gate = gate.out;
    combine.activation = p.activation;
    combine.out = p.out;
    if (p.add) combine.x = p.out;
    put(gate_want, std::move(gate));
    put(want, std::move(value));
    gates.push_back(combine);
  }
  std::vector<Op> out;
  for (auto& [want, part] : parts) out.emplace_back(std::move(part));
  for (CombineStep& combine : gates) out.emplace_back(combine);
  return out;
}

}  // namespace qgen
