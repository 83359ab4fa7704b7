// Threads that walk a plan together: every worker runs the same function, and the tasks of each phase are shared out
// among those that are there: a worker takes those of its own stretch in their order, so that it reads memory as one
// stream, then the last ones of others that are not as far. A phase ends with its last task, not with the last worker,
// so a worker that the system has put aside holds up nothing but the task in its hands. Waiting is a short spin, then
// sleep: a token costs no system call per step, and an idle program no processor time.
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

  int workers() const { return workers_; }
  // Calls work(worker) once on each of the workers, the caller being worker 0; returns when all are done.
  // `work` must not throw, and all workers must call share() the same number of times or stop doing so for good.
  void run(const std::function<void(int worker)>& work);

  // Inside run(), called by all workers: each index in [0, count) goes to one of them. Returns when all tasks are
  // done and their results can be read.
  template <typename Task>
  void share(int64_t count, const Task& task) {
    for (int64_t begin = 0; begin == 0 || begin < count; begin += kMostTasks) {
      const uint32_t phase = phase_of_this_thread_++;
      // An empty phase has one empty task, whose end is the end of the phase.
      const int64_t tasks = std::clamp<int64_t>(count - begin, 1, kMostTasks);
      for (int64_t index; (index = claim(phase, tasks)) >= 0;) {
        if (begin + index < count) task(begin + index);
        finish(phase, tasks);
      }
    }
  }

 private:
  static constexpr int64_t kMostTasks = 65535;  // of a phase
  // The tasks left in a worker's stretch of a phase: the phase in the upper 32 bits, then the first task and the one
  // after the last, counted from the stretch's begin. An earlier phase means that no task has been taken.
  struct alignas(64) Stretch {
    std::atomic<uint64_t> left{0};
  };

  // A task of a phase, or -1 once the phase has ended.
  int64_t claim(uint32_t phase, int64_t tasks);
  void finish(uint32_t phase, int64_t tasks);
  void loop(int worker);
  void stop();

  static constinit inline thread_local uint32_t phase_of_this_thread_ = 0;
  static constinit inline thread_local int worker_of_this_thread_ = 0;

  const int workers_;
  const std::function<void(int)>* work_ = nullptr;
  uint32_t first_phase_ = 0;        // of the run at hand
  std::atomic<uint32_t> round_{0};  // counts calls of run()
  std::atomic<uint32_t> left_{0};   // counts workers that left a run, over all runs
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint32_t> phase_{1};    // the phase that all workers are in
  alignas(64) std::atomic<int64_t> finished_{0};  // tasks of the phase
  std::vector<Stretch> stretches_;                // of each worker
  std::vector<std::jthread> threads_;
};

}  // namespace qgen::cpu
