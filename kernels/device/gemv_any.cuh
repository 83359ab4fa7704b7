// Any weight, as floats: a warp takes a row and each lane every 32nd column. For what fits no tile (odd groups, zero
// points that are no integers), and for activations in F32.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kAnyWarps = 4;

template <Codes kCodes>
QGEN_KERNEL(kAnyWarps* kWarp, 1)
gemv_any_kernel(const GemvArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const Matrix& w = args.part[0];
  const int row = int(block_index().x) * kAnyWarps + warp_index();
  if (row >= w.rows) return;
  float sum[kGemvTokens] = {};
  for (int k = lane_index(); k < w.cols; k += kWarp) {
    const float weight = element<kCodes>(w, row, k);
    const int from = w.column_order != nullptr ? w.column_order[k] : k;
    QGEN_UNROLL
    for (int t = 0; t < kGemvTokens; ++t) {
      if (t < args.tokens) sum[t] += weight * args.x[t * args.x_stride + from];
    }
  }
  QGEN_UNROLL
  for (int t = 0; t < kGemvTokens; ++t) {
    if (t >= args.tokens) break;
    const float total = sum_lanes(sum[t]);
    if (lane_index() == 0) {
      const float result = total + (w.bias != nullptr ? w.bias[row] : 0);
      store_product(args.epilogue, activated(args.epilogue.activation, result), args.y[0] + t * args.y_stride[0] + row);
    }
  }
}

}  // namespace qgen::QGEN_BACKEND
