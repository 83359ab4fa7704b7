// The launches of kernels/launch.cuh for the executor.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/kernel_log.h"
#include "kernels/launches.h"
#include "kernels/simt/executor.h"
#include "kernels/simt/memory_check.h"

namespace qgen::simt {

// A device so small that blocks have several tiles to do.
class Stream {
 public:
  int processors = 3;
  int64_t shared_of_processor = 100 << 10, shared_of_block = 99 << 10;
  WorkQueue work;
  std::vector<std::function<void()>> beside;  // launches that run side by side, until the last of them is there
};

template <typename Args>
struct Launch {
  void (*kernel)(const Args, const LaunchTimes);
  Args args;
  LaunchTimes times;

  // Copies the arguments out of the host's memory, where kernels have no business.
  QGEN_UNCHECKED static void run_thread(const void* launch) {
    const Launch& own = *static_cast<const Launch*>(launch);
    own.kernel(own.args, own.times);
  }
};

template <typename Args>
void launch(Stream& stream, const char* name, void (*kernel)(const Args, const LaunchTimes), Dim grid, int threads,
            size_t shared_bytes, const Args& args, Start start = Start::kEarly, const Beside& beside = {}) {
  KernelLog* const log = KernelLog::current();
  const LaunchTimes times = log == nullptr ? LaunchTimes() : log->add(name, size_t(grid.x) * grid.y * grid.z);
  const LaunchKind kind{start == Start::kEarly, beside.previous, beside.next, log != nullptr};
  stream.beside.push_back([name, grid, threads, shared_bytes, kind, start, own = Launch<Args>{kernel, args, times}] {
    run(name, grid, threads, shared_bytes, &Launch<Args>::run_thread, &own, kind);
    if (start == Start::kAlone) check_all_ended();
  });
  if (beside.next) return;
  // The last one first: what the others were to leave for it is not there.
  for (; !stream.beside.empty(); stream.beside.pop_back()) stream.work.perform(std::move(stream.beside.back()));
}

}  // namespace qgen::simt
