// Attention of one token: how much of it a block and its warps have, for all ways to do it.
#pragma once

#include "kernels/device/heads.cuh"
#include "kernels/device/softmax.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kMostTileKeys = 16;  // of a warp at once
constexpr int kFour = 4 * kWarp;   // elements of a row that the lanes of a warp have four of each
constexpr int kMediumWidth = 2;    // times kFour elements: a head of more is wide
// Whether keys and values go through MatrixAttention. `width`: of a row, times kFour elements.
constexpr bool in_matrices(CacheKind kind, int width) { return kind == CacheKind::kF16 && width <= kMediumWidth; }
// By a row's width: queries of one key-value head to a block at most, and its warps. Sums of matrix products of more
// than kFour elements take the registers of twice as many warps.
constexpr int most_queries(CacheKind kind, int width) {
  if (in_matrices(kind, width)) return 8;
  return width > kMediumWidth ? 2 : width == kMediumWidth ? 4 : 8;
}
constexpr int attend_warps(CacheKind kind, int width) {
  if (in_matrices(kind, width)) return width == 1 ? 8 : 4;
  return width > kMediumWidth ? 4 : 8;
}
// Of how many keys a lane has values in registers at once; the fewest keys of a warp's tile.
constexpr int keys_at_once(int queries, int width) { return width > kMediumWidth || queries > 4 ? 2 : 4; }

// What a row of a key and a row of a value are multiplied by.
struct RowFactors {
  float key = 1, value = 1;
};

}  // namespace qgen::QGEN_BACKEND
