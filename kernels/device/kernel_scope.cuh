// What every kernel of a step begins with: it lets the kernel behind it start, waits for the one before it, and in
// programs that are built for it stamps when its blocks began, had their inputs, had staged them and ended.
#pragma once

#include "kernels/device/primitives.cuh"
#include "kernels/kernel_times.h"
#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

class KernelScope {
 public:
  // `times`: the kernel's argument.
  QGEN_DEVICE explicit KernelScope([[maybe_unused]] const LaunchTimes& times, const Beside& beside = {})
#if defined(QGEN_CUDA_TIMESTAMPS)
      : times_(times)
#endif
  {
#if defined(QGEN_CUDA_TIMESTAMPS)
    if (BlockTimes* const own = of_block()) {
      own->ready = own->staged = 0;  // not yet, and never in blocks that have no such stage
      own->begin = device_clock();
    }
#endif
    if (beside.previous || !beside.next) let_next_start();
  }
  // Before this a kernel may read only what no kernel of the same call, Backend::run(), writes. A call begins with its
  // inputs, by a copy or a kernel that starts alone: all before it has ended then, and the kernel behind it waits for
  // it. So what earlier calls wrote, keys, values and states, is there.
  //
  // Where launches run side by side, the first of them lets the next one start only now. What that one reads is there
  // when it starts, and it takes care that it sees it.
  QGEN_DEVICE void wait_for_inputs(const Beside& beside = {}) {
    if (beside.previous) {
      read_anew();
    } else {
      QGEN_BACKEND::wait_for_inputs();
      if (beside.next) let_next_start();
    }
#if defined(QGEN_CUDA_TIMESTAMPS)
    if (BlockTimes* const own = of_block()) own->ready = device_clock();
#endif
  }
  // At the end of a kernel: it completes only after the launch before it that it ran beside, so that a later kernel
  // which waits for this one waits for both.
  QGEN_DEVICE void end(const Beside& beside) {
    if (beside.previous) QGEN_BACKEND::wait_for_inputs();
  }
  // The block's inputs are in shared memory as its products take them.
  QGEN_DEVICE void inputs_are_staged() {
#if defined(QGEN_CUDA_TIMESTAMPS)
    if (BlockTimes* const own = of_block()) own->staged = device_clock();
#endif
  }
#if defined(QGEN_CUDA_TIMESTAMPS)
  QGEN_DEVICE ~KernelScope() {
    if (BlockTimes* const own = of_block()) own->end = device_clock();
  }

 private:
  // In the first thread. Computed anew each time: kept, it would take two registers of the loops between.
  QGEN_DEVICE BlockTimes* of_block() const {
    if (times_.blocks == nullptr || thread_index_anew() != 0) return nullptr;
    const auto at = block_index();
    const auto grid = grid_size();
    return times_.blocks + (int64_t(at.z) * grid.y + at.y) * grid.x + at.x;
  }

  const LaunchTimes& times_;
#endif
};

}  // namespace qgen::QGEN_BACKEND
