// What every kernel of a step begins with: it lets the kernel behind it start, waits for the one before it, and in
// programs that are built for it stamps when its blocks began, had their inputs and ended.
#pragma once

#include "kernels/device/primitives.cuh"
#include "kernels/kernel_times.h"

namespace qgen::QGEN_BACKEND {

class KernelScope {
 public:
  QGEN_DEVICE explicit KernelScope([[maybe_unused]] const LaunchTimes& times) {
#if defined(QGEN_CUDA_TIMESTAMPS)
    if (times.blocks != nullptr && thread_index() == 0) {
      const auto at = block_index();
      const auto grid = grid_size();
      own_ = times.blocks + (int64_t(at.z) * grid.y + at.y) * grid.x + at.x;
      own_->ready = 0;  // not yet, and never in blocks that read nothing of other kernels
      own_->begin = device_clock();
    }
#endif
    let_next_start();
  }
  // Before this a kernel may read only what no kernel writes.
  QGEN_DEVICE void wait_for_inputs() {
    QGEN_BACKEND::wait_for_inputs();
#if defined(QGEN_CUDA_TIMESTAMPS)
    if (own_ != nullptr) own_->ready = device_clock();
#endif
  }
#if defined(QGEN_CUDA_TIMESTAMPS)
  QGEN_DEVICE ~KernelScope() {
    if (own_ != nullptr) own_->end = device_clock();
  }

 private:
  BlockTimes* own_ = nullptr;  // in the first thread
#endif
};

}  // namespace qgen::QGEN_BACKEND
