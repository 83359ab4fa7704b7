// The processors this process may use, and work that is shared out among them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace qgen {

// Cores by affinity mask and control-group quota, at least 1.
int available_cores();

// Calls work(0) to work(count - 1), each once, on all cores; told() after each one on the calling thread. The first
// exception ends it and is thrown again here.
template <typename Work>
void on_all_cores(size_t count, const Work& work, const std::function<void()>& told = {}) {
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex failing;
  const auto run = [&](bool tells) {
    try {
      for (size_t i; (i = next.fetch_add(1)) < count;) {
        work(i);
        if (tells && told) told();
      }
    } catch (...) {
      const std::lock_guard lock(failing);
      failure = std::current_exception();
      next = count;  // the others stop
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (size_t i = 1; i < std::min(size_t(available_cores()), count); ++i) threads.emplace_back(run, false);
    } catch (const std::system_error&) {  // no more threads: those that there are do it
    }
    run(true);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace qgen
