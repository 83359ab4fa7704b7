// Where the blocks of a launch write when they began and ended, in programs that are built to be timed
// (QGEN_CUDA_TIMESTAMPS). In others every kernel is handed an empty argument. Plain: nvcc reads this too.
#pragma once

#include <cstdint>

#include "kernels/namespace.h"

namespace qgen::QGEN_BACKEND {

// Nanoseconds of the device's clock when the first thread began, had its inputs (0: it waited for none), had them in
// shared memory as its products take them (0: no such stage) and ended.
struct BlockTimes {
  uint64_t begin, ready, staged, end;
};

// What a kernel is handed beside its arguments.
struct LaunchTimes {
#if defined(QGEN_CUDA_TIMESTAMPS)
  BlockTimes* blocks = nullptr;  // one for each block of the grid; null: not timed
#endif
};

}  // namespace qgen::QGEN_BACKEND
