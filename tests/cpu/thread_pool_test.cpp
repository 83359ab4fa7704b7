// The thread pool: every task of a phase runs once, and phases stay in order, with more workers than processors too.
#include <atomic>
#include <chrono>
#include <thread>

#include "cpu/thread_pool.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("a pool shares every task once and ends together") {
  for (const int workers : {1, 2, 5}) {
    cpu::ThreadPool pool(workers);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> done(97);
      std::atomic<int> after{0};
      pool.run([&](int) {
        pool.share(97, [&](int64_t i) { ++done[size_t(i)]; });
        for (const auto& count : done) after += count;
        pool.share(0, [&](int64_t) { ++after; });
        pool.share(1, [&](int64_t) { ++after; });
      });
      CHECK(after == 97 * workers + 1);
    }
  }
}

TEST_CASE("a pool shares more tasks than a phase has") {
  cpu::ThreadPool pool(3);
  std::vector<std::atomic<uint8_t>> done(200000);
  pool.run([&](int) { pool.share(int64_t(done.size()), [&](int64_t i) { ++done[size_t(i)]; }); });
  CHECK(std::all_of(done.begin(), done.end(), [](const auto& count) { return count == 1; }));
}

TEST_CASE("phases stay in order when workers are preempted") {
  // More workers than processors, phases of next to no work, and now and then a worker that sleeps.
  cpu::ThreadPool pool(7);
  std::vector<int64_t> sums(50);
  int64_t wrong = 0;
  for (int round = 0; round < 1500; ++round) {
    std::atomic<int64_t> mistakes{0};
    pool.run([&](int worker) {
      for (int64_t phase = 0; phase < int64_t(sums.size()); ++phase) {
        std::atomic_ref<int64_t> sum(sums[size_t(phase)]);
        pool.share(1, [&](int64_t) { sum = 0; });
        pool.share(phase % 9, [&](int64_t i) {
          if ((round * 50 + phase) % 997 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
          sum += i + round;
        });
        const int64_t count = phase % 9;
        if (sum != count * (count - 1) / 2 + count * round) ++mistakes;
        if ((round + worker) % 101 == 0) std::this_thread::yield();
      }
    });
    wrong += mistakes;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a worker that is held up holds up no phase it has no task of") {
  cpu::ThreadPool pool(2);
  std::atomic<int> phases{0};
  bool in_time = true;
  pool.run([&](int worker) {
    if (worker == 1) {
      const auto start = std::chrono::steady_clock::now();
      while (phases < 100 && in_time) in_time = std::chrono::steady_clock::now() - start < std::chrono::seconds(20);
    }
    for (int phase = 0; phase < 100; ++phase) {
      pool.share(5, [](int64_t) {});
      if (worker == 0) ++phases;
    }
  });
  CHECK(in_time);
}

}  // namespace
}  // namespace qgen::test
