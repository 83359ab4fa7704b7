// The CUDA stream behind the name, for launches and for the runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include <cuda_runtime.h>

#include "kernels/kernel_times.h"

namespace qgen::cuda {

class Stream {
 public:
  cudaStream_t handle = nullptr;
  bool next_waits = false;          // no kernel may overtake what came last: a copy, a fill, a graph or Start::kAlone
  bool overlap = false;             // programmatic dependent launch: 9.0 and later
  int processors = 1;               // of the device
  int64_t shared_of_processor = 0;  // bytes of shared memory, and what one block may have of them
  int64_t shared_of_block = 0;
  std::map<const void*, bool> kernels;  // that have been prepared, with what prepare_kernel() said
};

// Tells a kernel, once for a stream, that it may have all the shared memory there is, and that the processors' memory
// shall be shared memory as far as it can, the same for all kernels, so that none waits for the one before it to give
// it a new shape. Whether it may start early: it waits for its inputs.
bool prepare_kernel(Stream& stream, const void* kernel, const char* name);

// For a launch of so many blocks: its places in the log of kernels, if there is one.
LaunchTimes times_of_launch(const char* name, size_t blocks);

// Throws an Error that names the kernel, unless `status` is cudaSuccess.
void check_launch(cudaError_t status, const char* name);

}  // namespace qgen::cuda
