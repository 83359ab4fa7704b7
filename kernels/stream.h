// The CUDA stream behind the name, for launches and for the runtime.
#pragma once

#include <cstddef>
#include <map>

#include <cuda_runtime.h>

namespace qgen::cuda {

class Stream {
 public:
  // What is known of a kernel on this stream's GPU.
  struct Kernel {
    size_t shared_bytes = size_t{48} << 10;  // that it may have
    bool waits = false;                      // for its inputs, so that it may start early
  };
  cudaStream_t handle = nullptr;
  bool overlap = false;  // programmatic dependent launch: 9.0 and later
  std::map<const void*, Kernel> kernels;
};

// Whether a kernel may start while what comes before it ends: a copy, unlike a kernel, does not say when.
enum class Start { kEarly, kAfter };

// What a kernel is told once: how much shared memory it may have, and that the processors' memory shall be shared
// memory as far as it can, the same for all kernels, so that none waits for the one before it to give it a new shape.
const Stream::Kernel& prepare_kernel(Stream& stream, const void* kernel, size_t shared_bytes, const char* name);

// Throws an Error that names the kernel, unless `status` is cudaSuccess.
void check_launch(cudaError_t status, const char* name);

}  // namespace qgen::cuda
