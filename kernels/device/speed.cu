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
QGEN_KERNEL(kSpeedThreads, 1) read_kernel(const ReadArgs args, const LaunchTimes) {
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
QGEN_KERNEL(kSpeedThreads, 1) peak_kernel(const PeakArgs args, const LaunchTimes) {
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

struct FillArgs {
  uint32_t* words;
  int64_t count;
  LibraryGemmKind kind;
  uint32_t seed;
};
// A word's place, well mixed (the finalizer of MurmurHash3, Appleby), whose bits become numbers of 1/8 to 2, or all
// codes.
QGEN_KERNEL(kSpeedThreads, 1) fill_kernel(const FillArgs args, const LaunchTimes) {
  for (int64_t i = int64_t(block_index().x) * kSpeedThreads + thread_index(); i < args.count;
       i += int64_t(grid_size().x) * kSpeedThreads) {
    uint32_t bits = uint32_t(i) ^ args.seed * 0x9E3779B9u;
    bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
    bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
    bits ^= bits >> 16;
    if (args.kind == LibraryGemmKind::kF16) {
      bits = (bits & 0x8FFF8FFFu) + 0x30003000u;  // exponents 12 to 15
    } else if (args.kind == LibraryGemmKind::kE4M3) {
      bits = (bits & 0x9F9F9F9Fu) + 0x20202020u;  // exponents 4 to 7
    }
    args.words[i] = bits;
  }
}

}  // namespace

void fill_randomly(Stream& stream, void* memory, int64_t bytes, LibraryGemmKind kind, uint32_t seed) {
  constexpr int64_t kWordsEach = 16;
  launch(stream, "fill", fill_kernel, {blocks_of(bytes / 4, kSpeedThreads * kWordsEach)}, kSpeedThreads, 0,
         FillArgs{static_cast<uint32_t*>(memory), bytes / 4, kind, seed}, Start::kAfter);
}

int64_t read_memory(Stream& stream, int blocks, const uint8_t* memory, int64_t bytes, float* sink) {
  const int64_t round = int64_t{blocks} * kSpeedThreads * 16 * kLoads, whole = bytes / round * round;
  launch(stream, "read", read_kernel, {unsigned(blocks)}, kSpeedThreads, 0, ReadArgs{memory, whole, sink},
         Start::kAfter);
  return whole;
}

int64_t multiply_registers(Stream& stream, int blocks, int rounds, float* sink) {
  launch(stream, "products", peak_kernel, {unsigned(blocks)}, kSpeedThreads, 0, PeakArgs{rounds, sink}, Start::kAfter);
  return int64_t{blocks} * (kSpeedThreads / kWarp) * rounds * kPeakProducts * 2 * 16 * 8 * 16;
}

}  // namespace qgen::QGEN_BACKEND
