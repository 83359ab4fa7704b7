#include "kernels/batch_fusion.h"

#include <variant>

namespace qgen::QGEN_BACKEND {

const CombineStep* BatchFusion::sum_of(size_t linear, const BatchSteps& batch) const {
  const CombineStep* const sum = fused_.gated_sum(linear);
  if (sum == nullptr || !are_together(linear, linear + 1, batch) || norm_of(linear, batch) != nullptr) return nullptr;
  const PreparedLinear& own = prepared_[linear];
  return work_.linear.takes_token_gate(own.projections[0], own.input, int(batch.tokens.size()), batch.kernels)
             ? sum
             : nullptr;
}

const CombineStep* BatchFusion::gate_of(size_t recur, const BatchSteps& batch) const {
  const auto* const step = std::get_if<RecurStep>(&plan_.steps[recur].op);
  return step != nullptr && step->value_dim <= kMostGatedDim && are_together(recur, recur + 1, batch)
             ? fused_.gate_behind(recur)
             : nullptr;
}

const ConvStep* BatchFusion::conv_of(size_t recur, const BatchSteps& batch) const {
  return are_together(recur - 1, recur, batch) ? fused_.conv_before(recur) : nullptr;
}

bool BatchFusion::is_left_out(size_t combine, const BatchSteps& batch) const {
  if (are_few(batch) && norms_.is_left_out(combine, batch.first, batch.last)) return true;
  return combine > 0 && (sum_of(combine - 1, batch) != nullptr || gate_of(combine - 1, batch) != nullptr);
}

// The next one starts when this one has its inputs, which may be long before the steps end that this one runs beside:
// it must have nothing to do with any of them.
bool BatchFusion::runs_beside_next(size_t step, const BatchSteps& batch) const {
  const size_t next = step + 1;
  for (size_t one = step;; --one) {
    if (!fused_.are_independent(one, next) || !are_together(one, next, batch) || !can_run_beside(one, next, batch) ||
        !can_run_beside(next, one, batch))
      return false;
    if (one == 0 || !runs_beside_next(one - 1, batch)) return true;
  }
}

bool BatchFusion::can_run_beside(size_t step, size_t other, const BatchSteps& batch) const {
  const CombineStep* const norm = norm_of(step, batch);
  if (norm != nullptr && contains(rows_written(plan_.steps[other]), norm->y.row)) return false;
  return !work_.is_scored(plan_.steps[step]) && sum_of(step, batch) == nullptr &&
         work_.linear.can_run_beside(prepared_[step].projections,
                                     norm != nullptr ? work_.input_of(norm->y, norm->norm) : prepared_[step].input,
                                     int(batch.tokens.size()), batch.kernels);
}

bool BatchFusion::leaves_gate(size_t linear, const BatchSteps& batch) const {
  if (!fused_.gate_is_for_next(linear) || !are_of_all_tokens(linear, batch)) return false;
  const PreparedLinear& next = prepared_[linear + 1];
  return work_.linear.takes_gate(next.projections, next.input, int(batch.tokens.size()), batch.kernels);
}

Rounded BatchFusion::rounds_for_next(size_t attend, const BatchSteps& batch) const {
  if (!fused_.values_are_for_next(attend) || !are_of_all_tokens(attend, batch)) return Rounded::kNo;
  const PreparedLinear& next = prepared_[attend + 1];
  return work_.linear.takes_rounded(next.projections, next.input, int(batch.tokens.size()), batch.kernels);
}

}  // namespace qgen::QGEN_BACKEND
