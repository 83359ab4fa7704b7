#include "cpu/isa/targets.h"

#include <algorithm>
#include <chrono>
#include <string>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::cpu {
namespace {

constexpr const Body* kBodies[] = {
#if defined(__x86_64__)
    &kAvx512AmxBody, &kAvx512Bf16Body, &kAvx512VnniBody, &kAvx512Body, &kAvx2VnniBody, &kAvx2Body,
#endif
    &kPortableBody,
};

}  // namespace

std::span<const Body* const> bodies() { return kBodies; }

const Body& find_body(std::string_view name) {
  std::string known;
  for (const Body* body : kBodies) {
    if (name.empty() ? body->supported() : name == body->name) {
      if (!body->supported())
        fail(ErrorKind::kDevice, fmt::format("cpu:{}: this processor does not have these instructions", name));
      return *body;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", body->name);
  }
  fail(ErrorKind::kUsage, fmt::format("cpu:{}: unknown instruction set", name), "known: " + known);
}

double read_bandwidth(ThreadPool& pool, const Body& body, std::span<const std::byte> data, int rounds) {
  constexpr int64_t kChunk = 1 << 20;
  const int64_t chunks = int64_t(data.size()) / kChunk;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    std::atomic<float> keep{0};
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](int) {
      float sum = 0;
      pool.share(chunks, [&](int64_t i) {
        sum += body.read_sum(reinterpret_cast<const uint8_t*>(data.data()) + i * kChunk, kChunk);
      });
      keep.store(sum, std::memory_order_relaxed);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, double(chunks * kChunk) / seconds);
  }
  return best;
}

}  // namespace qgen::cpu
