// The processor's own speed: what the speeds of models are compared with.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/blank_memory.h"
#include "base/cores.h"
#include "base/memory.h"
#include "cpu/isa/targets.h"
#include "engine/engine_table.h"

namespace qgen {
namespace cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Far beyond any cache: 64 MiB a worker, within bounds.
constexpr size_t kReadBytesPerWorker = size_t{64} << 20, kLeastReadBytes = size_t{256} << 20,
                 kMostReadBytes = size_t{1} << 30, kTooFewReadBytes = size_t{64} << 20;
constexpr std::chrono::milliseconds kPeakTime{50};
constexpr int64_t kPeakRounds = 20000;  // between two looks at the clock

double measure_read(ThreadPool& pool, const IsaTarget& target, int workers) {
  size_t bytes = std::clamp(size_t(workers) * kReadBytesPerWorker, kLeastReadBytes, kMostReadBytes);
  // Where memory is scarce, a smaller part of it; to take more than there is would end programs.
  if (const size_t free = available_memory(); free > 0) bytes = std::min(bytes, free / 8);
  if (bytes < kTooFewReadBytes) return 0;
  const BlankMemory memory(bytes, "measuring the memory");
  constexpr size_t kChunk = 1 << 20;
  pool.run([&](int) {  // untouched memory would be one page of zeros
    pool.share(int64_t(bytes / kChunk),
               [&](int64_t i) { std::memset(&memory.bytes()[size_t(i) * kChunk], 1, kChunk); });
  });
  return read_bandwidth(pool, target, memory.bytes());
}

double measure_peak(ThreadPool& pool, int64_t (*peak)(int64_t rounds)) {
  std::atomic<int64_t> total{0};
  const auto start = Clock::now();
  pool.run([&](int) {
    int64_t done = 0;
    while (Clock::now() - start < kPeakTime) done += peak(kPeakRounds);
    total += done;
  });
  return double(total) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace
}  // namespace cpu

DeviceSpeed measure_cpu(const EngineOptions& options, bool peaks) {
  const int workers = options.threads > 0 ? options.threads : physical_cores();
  cpu::ThreadPool pool(workers);
  const cpu::IsaTarget& target = cpu::find_target(options.target);
  DeviceSpeed speed;
  speed.read_bytes_per_second = cpu::measure_read(pool, target, workers);
  if (peaks) {
    speed.int8_ops_per_second = cpu::measure_peak(pool, target.int8_peak);
    speed.float_ops_per_second = cpu::measure_peak(pool, target.float_peak);
  }
  return speed;
}

}  // namespace qgen
