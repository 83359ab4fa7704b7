// A row of any weight times one token, in F32, by a warp: for layers of which each token takes other weights.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kRowWarps = 4;  // of a block, a row each

template <Codes kCodes>
QGEN_DEVICE float row_product(const Matrix& w, int row, const float* x) {
  float sum = 0;
  for (int k = lane_index(); k < w.cols; k += kWarp) {
    const int from = w.column_order != nullptr ? w.column_order[k] : k;
    sum = fused_product(element<kCodes>(w, row, k), x[from], sum);
  }
  return sum_lanes(sum);
}

}  // namespace qgen::QGEN_BACKEND
