// What the device can do at best: how fast its memory is read, and how many operations its matrix products do.
#include "kernels/device/codes.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/speed.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr int kSpeedThreads = 256, kLoads = 8;
constexpr int kPeakProducts = 16;  // independent ones of a warp

struct ReadArgs {
  const uint8_t* memory;
  int64_t bytes;
  float* sink;
};
QGEN_KERNEL(kSpeedThreads, 1) read_kernel(const ReadArgs args) {
  const int64_t stride = int64_t(grid_size().x) * kSpeedThreads * 16;
  uint32_t all = 0;
  int64_t at = (int64_t(block_index().x) * kSpeedThreads + thread_index()) * 16;
  for (; at + (kLoads - 1) * stride + 16 <= args.bytes; at += kLoads * stride) {
    Bytes16 loaded[kLoads];
    QGEN_UNROLL
    for (int i = 0; i < kLoads; ++i) loaded[i] = load_once16(args.memory + at + i * stride);
    QGEN_UNROLL
    for (int i = 0; i < kLoads; ++i)
      all |= loaded[i].word[0] | loaded[i].word[1] | loaded[i].word[2] | loaded[i].word[3];
  }
  // Memory of zeros: nothing is ever written, and the loads cannot be left out.
  if (all != 0) args.sink[0] = 1;
}

struct PeakArgs {
  int rounds;
  float* sink;
};
QGEN_KERNEL(kSpeedThreads, 1) peak_kernel(const PeakArgs args) {
  float sums[kPeakProducts][4] = {};
  const uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
  for (int round = 0; round < args.rounds; ++round) {
    QGEN_UNROLL
    for (int i = 0; i < kPeakProducts; ++i) mma_f16(sums[i], a, b);
  }
  float all = 0;
  QGEN_UNROLL
  for (int i = 0; i < kPeakProducts; ++i) all += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  if (all != 0) args.sink[0] = 1;
}

}  // namespace

int64_t read_memory(Stream& stream, int blocks, const uint8_t* memory, int64_t bytes, float* sink) {
  const int64_t round = int64_t{blocks} * kSpeedThreads * 16 * kLoads, whole = bytes / round * round;
  launch(stream, "read", read_kernel, {unsigned(blocks)}, kSpeedThreads, 0, ReadArgs{memory, whole, sink});
  return whole;
}

int64_t multiply_registers(Stream& stream, int blocks, int rounds, float* sink) {
  launch(stream, "products", peak_kernel, {unsigned(blocks)}, kSpeedThreads, 0, PeakArgs{rounds, sink});
  return int64_t{blocks} * (kSpeedThreads / kWarp) * rounds * kPeakProducts * 2 * 16 * 8 * 16;
}

}  // namespace qgen::QGEN_BACKEND
