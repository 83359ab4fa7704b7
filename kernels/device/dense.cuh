// What stands around the products of a library (gemm.h): weights written out as 16-bit floats, and what its results
// still lack.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

// Of a thread: pieces of 8 codes of some neighbouring rows. The pieces of a warp are neighbours, so that it reads and
// writes whole lines.
constexpr int kCopyThreads = 128, kCopyPiece = 8, kCopyPieces = 2, kCopyRows = 4;
constexpr int kCopyColumns = kCopyPiece * kCopyPieces;
QGEN_DEVICE int copy_column(int piece) {
  return (int(block_index().x) * kCopyPieces + piece) * kCopyThreads * kCopyPiece + thread_index() * kCopyPiece;
}

// Of weights whose pieces are whole and of one group each, where the rows of a thread have a group each or one
// together. All of a thread's loads are under way before the first of them is used.
template <typename Grid>
QGEN_KERNEL(kCopyThreads, 1)
dequantize_pieces_kernel(const DequantizeArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const Matrix& w = args.w;
  const int begin = int(block_index().y) * kCopyRows,
            rows = args.rows - begin < kCopyRows ? args.rows - begin : kCopyRows, first_row = args.first_row + begin;
  const int first_tile = first_group(w, first_row), tiles_of_row = w.group_rows == 1 ? w.grid_cols : 0;
  Bytes8 codes[kCopyPieces][kCopyRows];
  GroupLoads<Grid> group[kCopyPieces][kCopyRows];
  float zero_point[kCopyPieces][kCopyRows];
  QGEN_UNROLL
  for (int i = 0; i < kCopyPieces * kCopyRows; ++i) {
    const int piece = i / kCopyRows, r = i % kCopyRows, column = copy_column(piece);
    if (column >= w.cols || r >= rows) continue;
    codes[piece][r] = load_once8(w.codes + (first_row + r) * w.row_bytes + column);
    const int tile = first_tile + r * tiles_of_row + (w.grid_cols > 1 ? column >> w.group_shift : 0);
    group[piece][r].load(w, tile);
    zero_point[piece][r] = zero_point_at<Grid>(w, tile);
  }
  QGEN_UNROLL
  for (int i = 0; i < kCopyPieces * kCopyRows; ++i) {
    const int piece = i / kCopyRows, r = i % kCopyRows, column = copy_column(piece);
    if (column >= args.stride || r >= rows) continue;
    Bytes16 pairs = {};
    if (column < w.cols) {
      const float by = group[piece][r].scale(0) * args.factor;
      QGEN_UNROLL
      for (int four = 0; four < 2; ++four) {
        uint32_t halves[2];
        four_codes<Grid::kCodes>(codes[piece][r].word[four], i8_bias(0), halves[0], halves[1]);
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) {
          float low = f16_value(uint16_t(halves[j])), high = f16_value(uint16_t(halves[j] >> 16));
          if constexpr (Grid::kMinimums) {
            const float add = group[piece][r].minimum(0) * args.factor;
            low = fused_product(low, by, add);
            high = fused_product(high, by, add);
          } else if constexpr (Grid::kCodes == Codes::kI8 && Grid::kForm == ScaleForm::kF32) {
            low = (low - zero_point[piece][r]) * by;  // which may be no integer
            high = (high - zero_point[piece][r]) * by;
          } else {
            low *= by;
            high *= by;
          }
          pairs.word[2 * four + j] = f16_pair(low, high);
        }
      }
    }
    *reinterpret_cast<Bytes16*>(args.out + int64_t{begin + r} * args.stride + column) = pairs;
  }
}

// Of others: orders of columns, rows whose columns are no multiple of a piece, groups down the columns.
template <Codes kCodes>
QGEN_KERNEL(kCopyThreads, 1)
dequantize_kernel(const DequantizeArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const Matrix& w = args.w;
  const int begin = int(block_index().y) * kCopyRows, left = args.rows - begin;
  QGEN_UNROLL_BY(1)
  for (int i = 0; i < kCopyRows * kCopyColumns; ++i) {
    const int r = i / kCopyColumns, k = copy_column(i / kCopyPiece % kCopyPieces) + i % kCopyPiece;
    if (r >= left || k >= args.stride) continue;
    const int to = w.column_order != nullptr && k < w.cols ? w.column_order[k] : k;
    args.out[int64_t{begin + r} * args.stride + to] =
        k < w.cols ? f16_bits(element<kCodes>(w, args.first_row + begin + r, k) * args.factor) : 0;
  }
}

constexpr int kEpilogueThreads = 256;

// Of row `row` of a token's raw product, and of its gate's where there is one.
QGEN_DEVICE float epilogue_value(const EpilogueArgs& args, int64_t token, int row, float raw, float gate) {
  float value = raw;
  if (args.row_scale != nullptr) {
    const int group = (args.row_origin + row) / args.group_rows;
    value *= args.f16_scales ? f16_value(static_cast<const uint16_t*>(args.row_scale)[group])
                             : static_cast<const float*>(args.row_scale)[group];
  }
  if (args.token_scale != nullptr) value *= args.token_scale[token];
  if (args.bias != nullptr) value += args.bias[row];
  if (args.gate != nullptr) return value * activated(args.epilogue.activation, gate);
  return activated(args.epilogue.activation, value);
}

template <bool kIntegers>
QGEN_KERNEL(kEpilogueThreads, 1)
epilogue_kernel(const EpilogueArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int row = int(block_index().x) * kEpilogueThreads + thread_index();
  if (row >= args.rows) return;
  const int64_t token = block_index().y, at = token * args.raw_stride + row;
  const float raw =
      kIntegers ? float(static_cast<const int32_t*>(args.raw)[at]) : static_cast<const float*>(args.raw)[at];
  const float gate = args.gate != nullptr ? args.gate[token * args.gate_stride + row] : 0;
  store_product(args.epilogue, epilogue_value(args, token, row, raw, gate), args.y + token * args.y_stride + row);
}

// The same of floats in pieces of four.
QGEN_KERNEL(kEpilogueThreads, 1) epilogue_pieces_kernel(const EpilogueArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int row = (int(block_index().x) * kEpilogueThreads + thread_index()) * 4;
  if (row >= args.rows) return;
  const int64_t token = block_index().y;
  const Floats4 raw = load_floats4(static_cast<const float*>(args.raw) + token * args.raw_stride + row);
  Floats4 gate = {}, result = {};
  if (args.gate != nullptr) gate = load_floats4(args.gate + token * args.gate_stride + row);
  float* const y = args.y + token * args.y_stride + row;
  if (args.epilogue.add) result = load_floats4(y);
  QGEN_UNROLL
  for (int j = 0; j < 4; ++j)
    store_product(args.epilogue, epilogue_value(args, token, row + j, raw.at[j], gate.at[j]), &result.at[j]);
  store_floats4(y, result);
}

constexpr int kFactorThreads = 256;

// A warp a token.
QGEN_KERNEL(kFactorThreads, 1) token_factors_kernel(const TokenFactorArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = int64_t{block_index().x} * (kFactorThreads / kWarp) + warp_index();
  if (token >= args.tokens) return;
  const float factor = args.divide ? 1 / args.factor[token] : args.factor[token];
  if (factor == 1) return;
  float* const y = args.y + token * args.y_stride;
  QGEN_UNROLL_BY(4)
  for (int row = lane_index(); row < args.rows; row += kWarp) y[row] *= factor;
}

}  // namespace qgen::QGEN_BACKEND
