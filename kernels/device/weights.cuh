// Kernels that run once for each uploaded weight: NaN codes are counted, Q8_0 blocks are split into codes and scales.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kWeightThreads = 256;
constexpr int kFindPieces = 8;  // of 16 codes, of a thread

struct FindNanArgs {
  const uint8_t* codes;
  int64_t bytes;  // a multiple of 16
  uint32_t* found;
};
QGEN_KERNEL(kWeightThreads, 1) find_nan_codes_kernel(const FindNanArgs args, const LaunchTimes) {
  const int64_t stride = int64_t(grid_size().x) * kWeightThreads * 16;
  bool any = false;
  for (int64_t at = (int64_t(block_index().x) * kWeightThreads + thread_index()) * 16; at < args.bytes; at += stride) {
    const Bytes16 codes = load_once16(args.codes + at);
    QGEN_UNROLL
    for (int i = 0; i < 4; ++i) {
      // A byte whose lower seven bits are all ones carries into its upper bit.
      any |= (((codes.word[i] & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u) != 0;
    }
  }
  if (any) add_to(args.found, 1);
}

constexpr int kQ8Block = 32, kQ8BlockBytes = 34;

// A thread takes two codes, so a block of Q8_0 half a warp.
QGEN_KERNEL(kWeightThreads, 1) unpack_q8_0_kernel(const UnpackArgs args, const LaunchTimes) {
  const int64_t blocks = args.cols / kQ8Block;
  const int64_t index = int64_t(block_index().x) * (kWeightThreads / 16) + thread_index() / 16;
  if (index >= args.rows * blocks) return;
  const int64_t row = index / blocks, block = index % blocks;
  const uint16_t* from = reinterpret_cast<const uint16_t*>(args.blocks + index * kQ8BlockBytes);
  const int i = thread_index() % 16;
  reinterpret_cast<uint16_t*>(args.codes + row * args.row_bytes + block * kQ8Block)[i] = from[1 + i];
  if (i == 0) args.scales[index] = from[0];
}

}  // namespace qgen::QGEN_BACKEND
