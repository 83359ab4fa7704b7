// Threads that walk a plan together: every worker runs the same function, shares out tasks, and meets the
// others at barriers. Waiting is a short spin, then sleep, so that a token costs no system call per step
// and an idle program no processor time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace qgen::cpu {

class ThreadPool {
 public:
  // Throws a runtime Error if the system gives no more threads.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls work(worker) once on each of the workers, the caller being worker 0; returns when all are done.
  // `work` must not throw.
  void run(const std::function<void(int worker)>& work);

  // Inside run(): waits for all workers.
  void barrier();
  // Inside run(), called by all workers: each index in [0, count) goes to one of them; ends with a barrier.
  template <typename Task>
  void share(int64_t count, const Task& task) {
    for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) task(i);
    barrier();
  }

 private:
  void loop(int worker);
  void stop();

  const int workers_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<uint32_t> round_{0};  // counts calls of run()
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> passed_{0};  // counts completed barriers
  std::vector<std::jthread> threads_;
};

}  // namespace qgen::cpu
