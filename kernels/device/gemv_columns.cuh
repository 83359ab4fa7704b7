// INT8 weights with scale groups down the columns (Matrix::row_period), in F32. A block takes rows that share a row of
// the grids, and multiplies the inputs with its scales once for all of them:
//   y = C (s x) - sum over k of (zero point s x)[k]
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kColumnWarps = 8;  // of a block
constexpr int kColumnRows = 2;   // of the weight, of each warp
// A lane loads 16 codes of a row at once, kColumnLoads times: columns are taken in pieces of as many as a warp loads
// so.
constexpr int kColumnLoads = 2, kLoadColumns = kWarp * 16, kPieceColumns = kColumnLoads * kLoadColumns;
// Scaled inputs lie in shared memory as lanes read them, four at once: run q has columns 4 q to 4 q + 3 of each lane's
// 16, lane by lane. The runs begin a quarter of the banks apart, so that 32 neighbouring columns are stored without a
// conflict.
constexpr int kRunFloats = 4 * kWarp + 8, kLoadFloats = 4 * kRunFloats;
constexpr size_t kColumnBytes = (kColumnLoads * kLoadFloats + kGemvTokens * kColumnWarps) * sizeof(float);

QGEN_DEVICE int scaled_at(int column) {
  const int in_load = column % kLoadColumns, lane = in_load / 16, in_lane = in_load % 16;
  return column / kLoadColumns * kLoadFloats + in_lane / 4 * kRunFloats + lane * 4 + in_lane % 4;
}

// Block (x, y): of the rows that have row x of the weight's grids, part y.
QGEN_KERNEL(kColumnWarps* kWarp, 2)
gemv_columns_kernel(const GemvArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  const Matrix& w = args.part[0];
  const int grid_row = int(block_index().x), warp = warp_index(), lane = lane_index();
  const int first = grid_row >= w.row_origin ? grid_row - w.row_origin : grid_row - w.row_origin + w.row_period;
  const auto row_of = [&](int i) {
    return int64_t(first) + int64_t((int(block_index().y) * kColumnWarps + warp) * kColumnRows + i) * w.row_period;
  };
  const int64_t grid_begin = int64_t(grid_row) * w.grid_cols;
  float* const scaled = shared_memory<float>();
  float sum[kGemvTokens][kColumnRows] = {}, correction[kGemvTokens] = {};
  for (int begin = 0; begin < w.cols; begin += kPieceColumns) {
    Bytes16 codes[kColumnRows][kColumnLoads];
    QGEN_UNROLL
    for (int i = 0; i < kColumnRows; ++i) {
      QGEN_UNROLL
      for (int j = 0; j < kColumnLoads; ++j) {
        const int at = begin + j * kLoadColumns + lane * 16;
        const bool valid = row_of(i) < w.rows && at < w.row_bytes;
        codes[i][j] = valid ? load_once16(w.codes + row_of(i) * w.row_bytes + at) : Bytes16{};
      }
    }
    if (begin == 0) scope.wait_for_inputs();
    QGEN_UNROLL
    for (int t = 0; t < kGemvTokens; ++t) {
      if (t >= args.tokens) break;
      barrier();  // what was there has been read
      for (int c = thread_index(); c < kPieceColumns; c += kColumnWarps * kWarp) {
        const int k = begin + c;
        float value = 0;
        if (k < w.cols) {
          value = args.x[t * args.x_stride + k] * static_cast<const float*>(w.scale)[grid_begin + k];
          if (w.zero_point != nullptr)
            correction[t] = fused_product(w.zero_point[grid_begin + k], value, correction[t]);
        }
        scaled[scaled_at(c)] = value;
      }
      barrier();
      QGEN_UNROLL
      for (int j = 0; j < kColumnLoads; ++j) {
        QGEN_UNROLL
        for (int q = 0; q < 4; ++q) {
          const Floats4 x = load_floats4(scaled + j * kLoadFloats + q * kRunFloats + lane * 4);
          QGEN_UNROLL
          for (int i = 0; i < kColumnRows; ++i) {
            const uint32_t turned = codes[i][j].word[q] ^ 0x80808080;
            QGEN_UNROLL
            for (int e = 0; e < 4; ++e) sum[t][i] = fused_product(turned_i8_value(turned, e), x.at[e], sum[t][i]);
          }
        }
      }
    }
  }
  float* const corrections = scaled + kColumnLoads * kLoadFloats;  // (tokens, kColumnWarps)
  QGEN_UNROLL
  for (int t = 0; t < kGemvTokens; ++t) {
    if (t >= args.tokens) break;
    const float total = sum_lanes(correction[t]);
    if (lane == 0) corrections[t * kColumnWarps + warp] = total;
  }
  barrier();
  QGEN_UNROLL
  for (int t = 0; t < kGemvTokens; ++t) {
    if (t >= args.tokens) break;
    QGEN_UNROLL
    for (int i = 0; i < kColumnRows; ++i) {
      float total = sum_lanes(sum[t][i]);
      if (lane != 0 || row_of(i) >= w.rows) continue;
      for (int other = 0; other < kColumnWarps; ++other) total -= corrections[t * kColumnWarps + other];
      const float result = total + (w.bias != nullptr ? w.bias[row_of(i)] : 0);
      store_product(args.epilogue, activated(args.epilogue.activation, result),
                    args.y[0] + t * args.y_stride[0] + row_of(i));
    }
  }
}

}  // namespace qgen::QGEN_BACKEND
