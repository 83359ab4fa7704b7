// The processors this process may use, and work that is shared out among them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace qgen {

// Logical processors by affinity mask and control-group quota, at least 1: for work that waits for memory or a disk.
int available_cores();

// Physical cores among them, at least 1: for work that keeps a core's arithmetic busy. Logical processors of one core
// share it, and would only wait for each other.
int physical_cores();

// The parts of the two above. `root` holds the machine's /sys and /proc, and is another folder in tests.
std::vector<int> allowed_processors();  // by affinity mask, in order
// Cores that the processors belong to; one each where the machine does not say.
int count_physical_cores(const std::vector<int>& processors, const std::filesystem::path& root = "/");
// Processors' worth of time that this process's control groups grant (version 2 or 1), whole ones and at least 1; 0 for
// no limit.
int quota_cores(const std::filesystem::path& root = "/");

// The numbers of a list as Linux writes it, "0-3,8,10-11"; none if there is no such file or it is no list.
std::vector<int> read_number_list(const std::filesystem::path& path);

// Calls work(0) to work(count - 1), each once, on all cores; told() on the calling thread, after each that was done
// there and once all are done. The first exception ends it and is thrown again here.
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
    } catch (const std::system_error&) {  // no more threads can be started: the existing ones do the work
    }
    run(true);
  }
  if (failure) std::rethrow_exception(failure);
  if (told) told();
}

}  // namespace qgen
