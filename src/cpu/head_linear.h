// HeadLinearSteps on the CPU: a task is a head and some tokens, whose inputs its worker brings into the forms that the
// head's kernels want.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cpu/arena.h"
#include "cpu/attention.h"
#include "cpu/linear.h"
#include "cpu/thread_pool.h"
#include "engine/backend.h"

namespace qgen::cpu {

// One HeadLinearStep, ready to be run.
class HeadLinearKernel {
 public:
  // `kernel_of` gives the kernels of a weight.
  HeadLinearKernel(const HeadLinearStep& step, const IsaTarget& target, int workers,
                   const std::function<const LinearKernel*(const Weight&)>& kernel_of);

  // Forms of inputs, which hold nothing from one step to the next.
  void lay_out(Arena& arena) { input_.lay_out(arena); }
  // Called by worker number `worker` of the pool, and by all others.
  void run(const Batch& batch, const std::vector<RowBuffer>& rows, ThreadPool& pool, int worker, std::byte* scratch);

 private:
  const HeadLinearStep& step_;
  const IsaTarget& target_;
  std::vector<const LinearKernel*> layers_;
  InputForms input_;  // (workers, kTokens) rows
};

}  // namespace qgen::cpu
