// The CUDA stream behind the name, for launches and for the runtime.
#pragma once

#include <cuda_runtime.h>

namespace qgen::cuda {

class Stream {
 public:
  cudaStream_t handle = nullptr;
  bool overlap = false;  // programmatic dependent launch: 9.0 and later
};

// Throws an Error that names the kernel, unless `status` is cudaSuccess.
void check_launch(cudaError_t status, const char* name);

}  // namespace qgen::cuda
