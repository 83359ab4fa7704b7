// Norms that need no kernel of their own: where a CombineStep only normalizes a row, for steps whose kernels of a few
// tokens can do that in passing, these read what it reads.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "kernels/namespace.h"
#include "model/plan.h"

namespace qgen::QGEN_BACKEND {

class PassedNorms {
 public:
  // `can_take(norm, step)`: whether the kernels of a step that reads what that CombineStep writes can normalize it.
  PassedNorms(const Plan& plan, const std::function<bool(const CombineStep& norm, const Step& step)>& can_take);

  // Whether CombineStep `step` is not launched when steps [first, last) run as one batch of few tokens, because the
  // steps that read its row apply the norm. All of these must be in the range: outside of it rows may be read by a
  // trace.
  bool is_left_out(size_t step, size_t first, size_t last) const {
    return last_reader_[step] > 0 && first <= step && last_reader_[step] < last;
  }
  // The CombineStep, left out, whose norm this step does itself; null: none.
  const CombineStep* norm_of(size_t step, size_t first, size_t last) const {
    return taken_from_[step] >= 0 && is_left_out(size_t(taken_from_[step]), first, last)
               ? &std::get<CombineStep>(plan_.steps[size_t(taken_from_[step])].op)
               : nullptr;
  }

 private:
  // The last step that reads the row of CombineStep `norm` before another one writes it, if all that do can take the
  // norm and what it reads is still there; 0: none, or not all.
  size_t find_last_reader(size_t norm, const std::function<bool(const CombineStep&, const Step&)>& can_take) const;

  const Plan& plan_;
  std::vector<size_t> last_reader_;    // of each step
  std::vector<ptrdiff_t> taken_from_;  // of each step: the CombineStep; -1: none
};

}  // namespace qgen::QGEN_BACKEND
