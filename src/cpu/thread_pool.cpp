#include "cpu/thread_pool.h"

#include <system_error>

#include <fmt/format.h>

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace qgen::cpu {
namespace {

// About 50 microseconds: longer than any step's imbalance, shorter than what a person or a battery notices.
constexpr int kSpins = 4096;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits until `value` differs from `old`.
template <typename T>
void wait_for_change(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int workers) : workers_(workers), stretches_(size_t(workers)) {
  try {
    for (int i = 1; i < workers; ++i) threads_.emplace_back([this, i] { loop(i); });
  } catch (const std::system_error&) {
    stop();
    threads_.clear();
    fail(ErrorKind::kRuntime, fmt::format("--threads {}: the system gives no more threads", workers),
         "a smaller number");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
}

void ThreadPool::run(const std::function<void(int)>& work) {
  work_ = &work;
  first_phase_ = phase_.load(std::memory_order_relaxed);
  const uint32_t all_left = left_.load(std::memory_order_relaxed) + uint32_t(workers_ - 1);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  phase_of_this_thread_ = first_phase_;
  worker_of_this_thread_ = 0;
  work(0);
  for (uint32_t left; (left = left_.load(std::memory_order_acquire)) != all_left;) wait_for_change(left_, left);
}

void ThreadPool::loop(int worker) {
  uint32_t seen = 0;
  worker_of_this_thread_ = worker;
  for (;;) {
    wait_for_change(round_, seen);
    ++seen;
    if (stop_) return;
    phase_of_this_thread_ = first_phase_;
    (*work_)(worker);
    left_.fetch_add(1, std::memory_order_release);
    left_.notify_one();
  }
}

int64_t ThreadPool::claim(uint32_t phase, int64_t tasks) {
  for (int i = 0; i < workers_; ++i) {
    const int owner = (worker_of_this_thread_ + i) % workers_;
    const int64_t begin = tasks * owner / workers_, end = tasks * (owner + 1) / workers_;
    std::atomic<uint64_t>& left = stretches_[size_t(owner)].left;
    uint64_t seen = left.load(std::memory_order_acquire);
    for (;;) {
      // Ended while this worker was elsewhere. Else the stretch is not of a later phase: it was read before.
      if (phase_.load(std::memory_order_acquire) != phase) return -1;
      const bool fresh = uint32_t(seen >> 32) != phase;
      const uint64_t first = fresh ? 0 : seen >> 16 & 0xFFFF, last = fresh ? uint64_t(end - begin) : seen & 0xFFFF;
      if (first == last) break;
      const bool own = i == 0;
      const uint64_t next = uint64_t(phase) << 32 | (own ? first + 1 : first) << 16 | (own ? last : last - 1);
      if (left.compare_exchange_weak(seen, next, std::memory_order_acq_rel, std::memory_order_acquire))
        return begin + int64_t(own ? first : last - 1);
    }
  }
  wait_for_change(phase_, phase);
  return -1;
}

void ThreadPool::finish(uint32_t phase, int64_t tasks) {
  if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 < tasks) return;
  finished_.store(0, std::memory_order_relaxed);
  phase_.store(phase + 1, std::memory_order_release);
  phase_.notify_all();
}

}  // namespace qgen::cpu
