// The launches of kernels/launch.cuh for the executor.
#pragma once

#include <cstddef>

#include "kernels/kernel_log.h"
#include "kernels/simt/executor.h"

namespace qgen::simt {

class Stream {};
enum class Start { kEarly, kAfter };

template <typename Args>
void launch(Stream&, const char* name, void (*kernel)(const Args, const LaunchTimes), Dim grid, int threads,
            size_t shared_bytes, const Args& args, Start = Start::kEarly) {
  KernelLog* const log = KernelLog::current();
  const LaunchTimes times = log == nullptr ? LaunchTimes() : log->add(name, size_t(grid.x) * grid.y * grid.z);
  perform([=] { run(name, grid, threads, shared_bytes, [&] { kernel(args, times); }); });
}

}  // namespace qgen::simt
