#include "kernels/passed_norms.h"

#include <algorithm>

namespace qgen::QGEN_BACKEND {
namespace {

// Whether it does nothing but what products do with their inputs: an RMS norm of the whole row, with weights.
bool only_normalizes(const CombineStep& step) {
  const Norm& norm = step.norm;
  return !step.x && !step.gate && step.y_scale == 1 && step.activation == Activation::kNone &&
         norm.kind == Norm::Kind::kRms && norm.weight != nullptr && norm.bias == nullptr && norm.group == step.y.cols &&
         step.out.row != step.y.row;
}

// Whether the step reads that row as its input alone, all of it, and not to normalize it once more.
bool reads_as_input(const Step& step, const View& row) {
  if (const auto* linear = std::get_if<LinearStep>(&step.op)) return linear->in == row && !linear->norm;
  if (const auto* experts = std::get_if<ExpertsStep>(&step.op))
    return experts->in == row && experts->route.row != row.row;
  return false;
}

}  // namespace

PassedNorms::PassedNorms(const Plan& plan, const std::function<bool(const CombineStep&, const Step&)>& can_take)
    : plan_(plan), last_reader_(plan.steps.size()), taken_from_(plan.steps.size(), -1) {
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    last_reader_[i] = find_last_reader(i, can_take);
    for (size_t j = i + 1; j <= last_reader_[i]; ++j) {
      if (contains(rows_read(plan.steps[j]), std::get<CombineStep>(plan.steps[i].op).out.row))
        taken_from_[j] = ptrdiff_t(i);
    }
  }
}

size_t PassedNorms::find_last_reader(size_t norm,
                                     const std::function<bool(const CombineStep&, const Step&)>& can_take) const {
  const auto* combine = std::get_if<CombineStep>(&plan_.steps[norm].op);
  if (combine == nullptr || !only_normalizes(*combine)) return 0;
  const RowId source = combine->y.row, out = combine->out.row;
  size_t last = 0;
  bool is_there = true;  // what the norm reads
  for (size_t j = norm + 1; j < plan_.steps.size(); ++j) {
    const Step& step = plan_.steps[j];
    const bool writes_source = contains(rows_written(step), source), writes_out = contains(rows_written(step), out);
    if (contains(rows_read(step), out)) {
      // The blocks of a product would write what others of them read; experts add their results at their end.
      const bool overwrites = writes_source && !std::holds_alternative<ExpertsStep>(step.op);
      if (!is_there || overwrites || writes_out || !reads_as_input(step, combine->out) || !can_take(*combine, step))
        return 0;
      last = j;
    }
    if (writes_out) break;
    is_there = is_there && !writes_source;
  }
  return last;
}

}  // namespace qgen::QGEN_BACKEND
