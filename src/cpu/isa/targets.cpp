#include "cpu/isa/targets.h"

#include <atomic>
#include <chrono>
#include <string>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::cpu {
namespace {

constexpr const IsaTarget* kTargets[] = {
#if defined(__x86_64__)
    &kAvx512AmxTarget,  &kAvx512FmaTarget, &kAvx512Zen5Target, &kAvx512Bf16Target,
    &kAvx512VnniTarget, &kAvx512Target,    &kAvx2VnniTarget,   &kAvx2Target,
#endif
    &kPortableTarget,
};

}  // namespace

std::span<const IsaTarget* const> targets() { return kTargets; }

const IsaTarget& find_target(std::string_view name) {
  std::string known;
  for (const IsaTarget* target : kTargets) {
    if (name.empty() ? target->supported() : name == target->name) {
      if (!target->supported())
        fail(ErrorKind::kDevice, fmt::format("cpu:{}: this processor does not have these instructions", name));
      return *target;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", target->name);
  }
  fail(ErrorKind::kUsage, fmt::format("cpu:{}: unknown instruction set", name), "known: " + known);
}

double read_bandwidth(ThreadPool& pool, const IsaTarget& target, std::span<const std::byte> data) {
  constexpr int64_t kChunk = 1 << 20;
  constexpr double kSeconds = 0.1;
  const int64_t chunks = int64_t(data.size()) / kChunk;
  if (chunks == 0) return 0;
  std::atomic<float> keep{0};
  const auto read = [&] {
    pool.run([&](int) {
      float sum = 0;
      pool.share(chunks, [&](int64_t i) {
        sum += target.read_sum(reinterpret_cast<const uint8_t*>(data.data()) + i * kChunk, kChunk);
      });
      keep.store(sum, std::memory_order_relaxed);
    });
  };
  read();
  double bytes = 0, seconds = 0;
  const auto start = std::chrono::steady_clock::now();
  while (seconds < kSeconds) {
    read();
    bytes += double(chunks * kChunk);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return bytes / seconds;
}

}  // namespace qgen::cpu
