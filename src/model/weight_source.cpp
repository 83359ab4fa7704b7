#include "model/weight_source.h"

#include <utility>

#include "quant/transpose.h"

namespace qgen {

ExpertWeights unstacked_experts(WeightSource& source, const MixtureSpec& mixture, const Names& names, int64_t number,
                                int64_t hidden) {
  const auto module = [&](Role role) { return names.of(role, number); };
  const int64_t inputs = mixture.inputs(hidden);
  // transformers saves either order of such families and reads both by their shapes, of which one tells where the
  // other's sides are equal.
  const auto straight = [&](Role role, int64_t rows, int64_t cols) {
    return rows != cols && source.has_stack_of(module(role), {mixture.experts, rows, cols});
  };
  const bool turned = mixture.transposed && !straight(Role::kExpertGateUps, 2 * mixture.width, inputs) &&
                      !straight(Role::kExpertDowns, inputs, mixture.width);
  // MXFP4 has groups along the inputs, and so the other order where the same family's floats are transposed.
  const auto transposed = [&](Role role) {
    const bool packed = source.has_tensor(module(role) + "_blocks") || source.has_tensor(module(role) + "_scales");
    return turned && !packed;
  };
  const auto stack = [&](Role role, int64_t rows, int64_t cols) {
    return transposed(role) ? source.stack(module(role), mixture.experts, cols, rows)
                            : source.stack(module(role), mixture.experts, rows, cols);
  };
  const auto whole_stack = [&](Role role, int64_t rows, int64_t cols) {
    std::vector<Weight> out;
    for (Weight& weight : stack(role, rows, cols))
      out.push_back(transposed(role) ? transposed_rows(weight, 0, rows) : std::move(weight));
    return out;
  };
  ExpertWeights out;
  if (source.has_stack(module(Role::kExpertGateUps))) {
    // Rows first, first + step, ... of both.
    const auto part = [&](const Weight& both, int64_t first, int64_t step) {
      return transposed(Role::kExpertGateUps) ? transposed_rows(both, first, mixture.width, step)
                                              : slice_rows(both, first, mixture.width, step);
    };
    for (const Weight& both : stack(Role::kExpertGateUps, 2 * mixture.width, inputs)) {
      out.gate.push_back(part(both, 0, mixture.interleaved ? 2 : 1));
      out.up.push_back(part(both, mixture.interleaved ? 1 : mixture.width, mixture.interleaved ? 2 : 1));
    }
  } else {
    if (mixture.gated) out.gate = whole_stack(Role::kExpertGates, mixture.width, inputs);
    out.up = whole_stack(Role::kExpertUps, mixture.width, inputs);
  }
  out.down = whole_stack(Role::kExpertDowns, inputs, mixture.width);
  return out;
}

}  // namespace qgen
