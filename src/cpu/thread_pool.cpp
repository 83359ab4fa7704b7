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

ThreadPool::ThreadPool(int workers) : workers_(workers) {
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
  first_phase_ = uint32_t(ticket_.load(std::memory_order_relaxed) >> 32);
  const uint32_t all_left = left_.load(std::memory_order_relaxed) + uint32_t(workers_ - 1);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  phase_of_this_thread_ = first_phase_;
  work(0);
  for (uint32_t left; (left = left_.load(std::memory_order_acquire)) != all_left;) wait_for_change(left_, left);
}

void ThreadPool::loop(int worker) {
  uint32_t seen = 0;
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
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    if (uint32_t(ticket >> 32) != phase) return -1;  // ended while this worker was elsewhere
    if (int64_t(uint32_t(ticket)) >= tasks) {
      wait_for_change(ticket_, ticket);
      return -1;
    }
    if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      return int64_t(uint32_t(ticket));
  }
}

void ThreadPool::finish(uint32_t phase, int64_t tasks) {
  if (finished_.fetch_add(1, std::memory_order_acq_rel) + 1 < tasks) return;
  finished_.store(0, std::memory_order_relaxed);
  ticket_.store(uint64_t(phase + 1) << 32, std::memory_order_release);
  ticket_.notify_all();
}

}  // namespace qgen::cpu
