// Threads that walk a plan together: every worker runs the same function, and the tasks of each phase are shared out
// among those that are there. A phase ends with its last task, not with the last worker, so a worker that the system
// has put aside holds up nothing but the task in its hands. Waiting is a short spin, then sleep: a token costs no
// system call per step, and an idle program no processor time.
#pragma once

#include <algorithm>
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
  // `work` must not throw, and all workers must call share() the same number of times or stop doing so for good.
  void run(const std::function<void(int worker)>& work);

  // Inside run(), called by all workers: each index in [0, count) goes to one of them. Returns when all tasks are
  // done and their results can be read.
  template <typename Task>
  void share(int64_t count, const Task& task) {
    const uint32_t phase = phase_of_this_thread_++;
    const int64_t tasks = std::max<int64_t>(count, 1);  // an empty phase has an empty task, for somebody to end it
    for (int64_t index; (index = claim(phase, tasks)) >= 0;) {
      if (index < count) task(index);
      finish(phase, tasks);
    }
  }

 private:
  // The next task of a phase, or -1 once the phase has ended.
  int64_t claim(uint32_t phase, int64_t tasks);
  void finish(uint32_t phase, int64_t tasks);
  void loop(int worker);
  void stop();

  static constinit inline thread_local uint32_t phase_of_this_thread_ = 0;

  const int workers_;
  const std::function<void(int)>* work_ = nullptr;
  uint32_t first_phase_ = 0;        // of the run at hand
  std::atomic<uint32_t> round_{0};  // counts calls of run()
  std::atomic<uint32_t> left_{0};   // counts workers that left a run, over all runs
  std::atomic<bool> stop_{false};
  // The phase (upper 32 bits) and its next task: the one place that says how far everybody is. It stands still from
  // the handing out of a phase's last task until the last of them is finished.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> finished_{0};  // tasks of the phase
  std::vector<std::jthread> threads_;
};

}  // namespace qgen::cpu
