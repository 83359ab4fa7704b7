// Any weight, as floats: a warp takes a row and each lane every 32nd column. For what fits no tile (odd groups, offsets
// that are no integers), and for those who want nothing rounded.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kAnyWarps = 4;

template <Codes kCodes>
QGEN_KERNEL(kAnyWarps* kWarp, 1)
multiply_any_kernel(const LinearArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const Matrix& w = args.part[0];
  const int row = int(block_index().x) * kAnyWarps + warp_index();
  if (row >= w.rows) return;
  float sum[kFewTokens] = {};
  for (int k = lane_index(); k < w.cols; k += kWarp) {
    const float weight = element<kCodes>(w, row, k);
    const int from = w.column_order != nullptr ? w.column_order[k] : k;
    QGEN_UNROLL
    for (int t = 0; t < kFewTokens; ++t) {
      if (t < args.tokens) sum[t] += weight * args.x[t * args.x_stride + from];
    }
  }
  QGEN_UNROLL
  for (int t = 0; t < kFewTokens; ++t) {
    if (t >= args.tokens) break;
    const float total = sum_lanes(sum[t]);
    if (lane_index() == 0) {
      float* const y = args.y + t * args.y_stride + row;
      const float result = total + (w.bias != nullptr ? w.bias[row] : 0);
      *y = args.result == Result::kAdd ? *y + result : result;
    }
  }
}

}  // namespace qgen::QGEN_BACKEND
