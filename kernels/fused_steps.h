// What steps of a plan have to do with their neighbours when they run as one batch: which are done by the kernel of
// another, and which may run side by side. All but the last two are of few tokens.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/namespace.h"
#include "model/plan.h"

namespace qgen::QGEN_BACKEND {

class FusedSteps {
 public:
  explicit FusedSteps(const Plan& plan);

  // Whether all from `step` to `last`, which is behind it, are LinearSteps, and neither of these two reads or writes
  // what the other writes.
  bool are_independent(size_t step, size_t last) const { return last - step <= independent_[step]; }

  // The CombineStep behind LinearStep `step` that adds what this makes, times the sigmoid of a token's gate, to a row,
  // and alone reads it; null: none.
  const CombineStep* gated_sum(size_t step) const {
    return has_sum_[step] ? &std::get<CombineStep>(plan_.steps[step + 1].op) : nullptr;
  }

  // The ConvStep before RecurStep `step` whose result nothing else reads, and the CombineStep behind it that does
  // nothing but normalize the heads of its result, or leave them, and multiply them by a gate; null: none.
  const ConvStep* conv_before(size_t step) const {
    return has_conv_[step] ? &std::get<ConvStep>(plan_.steps[step - 1].op) : nullptr;
  }
  const CombineStep* gate_behind(size_t step) const {
    return has_gate_[step] ? &std::get<CombineStep>(plan_.steps[step + 1].op) : nullptr;
  }

  // Whether LinearStep `step` is a product with a gate that the LinearStep behind it alone reads, as it is.
  bool gate_is_for_next(size_t step) const { return has_gate_for_next_[step]; }
  // Whether the LinearStep behind AttendStep `step` alone reads what that mixes, as it is.
  bool values_are_for_next(size_t step) const { return has_values_for_next_[step]; }

 private:
  size_t count_independent(size_t step) const;
  bool finds_sum(size_t step) const;
  bool finds_conv(size_t step) const;
  bool finds_gate(size_t step) const;
  bool finds_gate_for_next(size_t step) const;
  bool finds_values_for_next(size_t step) const;
  // Whether the step behind is a LinearStep that alone reads what `step` writes to `out`, all of it and as it is.
  bool is_for_next(size_t step, const View& out) const;
  // Whether a step from `first` on reads the row before another one writes it.
  bool is_read(RowId row, size_t first) const;

  const Plan& plan_;
  // Of each step; of those behind it, the first so many are_independent() of it.
  std::vector<size_t> independent_;
  std::vector<bool> has_sum_, has_conv_, has_gate_, has_gate_for_next_, has_values_for_next_;
};

}  // namespace qgen::QGEN_BACKEND
