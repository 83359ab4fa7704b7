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
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
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
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work(0);
  barrier();
}

void ThreadPool::loop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    wait_for_change(round_, seen);
    ++seen;
    if (stop_) return;
    (*work_)(worker);
    barrier();
  }
}

void ThreadPool::barrier() {
  if (workers_ == 1) {
    next_.store(0, std::memory_order_relaxed);
    return;
  }
  const uint32_t before = passed_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == workers_) {
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    passed_.fetch_add(1, std::memory_order_release);
    passed_.notify_all();
  } else {
    wait_for_change(passed_, before);
  }
}

}  // namespace qgen::cpu
