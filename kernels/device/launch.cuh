// How the host starts a kernel: launch(stream, "name", kernel<...>, grid, threads, shared_bytes, arguments). What runs
// side by side is for the kernels themselves to know; the executor runs it in reverse.
#pragma once

#include "kernels/device/primitives.cuh"
#include "kernels/kernel_times.h"
#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

// Blocks that do so many each.
inline unsigned blocks_of(int64_t count, int64_t each) { return unsigned((count + each - 1) / each); }

}  // namespace qgen::QGEN_BACKEND

#if defined(QGEN_SIMT)
#include "kernels/simt/launch.h"
#else

#include "kernels/stream.h"

namespace qgen::cuda {

using Dim = dim3;

template <typename Args>
void launch(Stream& stream, const char* name, void (*kernel)(const Args, const LaunchTimes), Dim grid, int threads,
            size_t shared_bytes, const Args& args, Start start = Start::kEarly, const Beside& = {}) {
  const bool waits = prepare_kernel(stream, reinterpret_cast<const void*>(kernel), name);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.handle;
  config.attrs = &attribute;
  config.numAttrs = waits && start == Start::kEarly && !stream.next_waits ? 1 : 0;
  stream.next_waits = start == Start::kAlone;
  const LaunchTimes times = times_of_launch(name, size_t(grid.x) * grid.y * grid.z);
  check_launch(cudaLaunchKernelEx(&config, kernel, args, times), name);
}

}  // namespace qgen::cuda
#endif
