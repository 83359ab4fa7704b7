// Which steps of a batch are done by the kernels of others, and which run side by side: what FusedSteps and PassedNorms
// find in the plan, where the batch has all of these steps and few tokens, and the kernels can.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "kernels/fused_steps.h"
#include "kernels/passed_norms.h"
#include "kernels/workspace.h"

namespace qgen::QGEN_BACKEND {

// A LinearStep as its kernels take it, but for where its tokens begin.
struct PreparedLinear {
  LinearInput input;
  std::vector<DeviceProjection> projections;
};

// A batch, and the steps that are run of the plan.
struct BatchSteps : Batch {
  size_t first = 0, last = 0;
};

class BatchFusion {
 public:
  // `prepared`: one a step. `can_take`: as PassedNorms has it.
  BatchFusion(const Plan& plan, const Workspace& work, const std::vector<PreparedLinear>& prepared,
              const std::function<bool(const CombineStep& norm, const Step& step)>& can_take)
      : plan_(plan), work_(work), prepared_(prepared), fused_(plan), norms_(plan, can_take) {}

  // The norm that a step has to do itself, of a CombineStep that is left out; null: none.
  const CombineStep* norm_of(size_t step, const BatchSteps& batch) const {
    return are_few(batch) ? norms_.norm_of(step, batch.first, batch.last) : nullptr;
  }
  // The CombineStep that is done by LinearStep `linear`, which is before it; null: none.
  const CombineStep* sum_of(size_t linear, const BatchSteps& batch) const;
  // The steps around RecurStep `recur` that it does: a gate behind it, a convolution before it; null: none.
  const CombineStep* gate_of(size_t recur, const BatchSteps& batch) const;
  const ConvStep* conv_of(size_t recur, const BatchSteps& batch) const;
  // Whether a CombineStep is done by others.
  bool is_left_out(size_t combine, const BatchSteps& batch) const;

  // Whether a step and the one behind it may run side by side.
  bool runs_beside_next(size_t step, const BatchSteps& batch) const;
  // Whether the LinearStep behind this one may do what its gate asks for. This is of many tokens.
  bool leaves_gate(size_t linear, const BatchSteps& batch) const;
  // What the LinearStep behind an AttendStep would round its result to, and nothing else needs. This is of many tokens.
  Rounded rounds_for_next(size_t attend, const BatchSteps& batch) const;

 private:
  // Whether a step and the one behind it run in this batch, for all of its tokens.
  bool are_of_all_tokens(size_t first, const BatchSteps& batch) const {
    return first + 1 < batch.last && !work_.is_scored(plan_.steps[first]) && !work_.is_scored(plan_.steps[first + 1]);
  }
  static bool are_few(const BatchSteps& batch) {
    return LinearDispatch::are_few(int(batch.tokens.size()), batch.kernels);
  }
  // Whether both steps run in this batch and it has few tokens. A trace, which reads the rows between steps, runs them
  // one by one.
  static bool are_together(size_t first, size_t last, const BatchSteps& batch) {
    return are_few(batch) && first >= batch.first && last < batch.last;
  }
  // Whether LinearStep `step` may run beside `other`.
  bool can_run_beside(size_t step, size_t other, const BatchSteps& batch) const;

  const Plan& plan_;
  const Workspace& work_;
  const std::vector<PreparedLinear>& prepared_;
  const FusedSteps fused_;
  const PassedNorms norms_;
};

}  // namespace qgen::QGEN_BACKEND
