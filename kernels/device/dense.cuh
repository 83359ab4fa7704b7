// What stands around the products of a library (gemm.h): weights written out as 16-bit floats, and what its results
// still lack.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

// Of a thread: 16 codes of some neighbouring rows, whose loads are under way together.
constexpr int kCopyThreads = 128, kCopyColumns = 16, kCopyRows = 4;

template <Codes kCodes>
QGEN_KERNEL(kCopyThreads, 1)
dequantize_kernel(const DequantizeArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const Matrix& w = args.w;
  const int begin = int(block_index().y) * kCopyRows,
            rows = args.rows - begin < kCopyRows ? args.rows - begin : kCopyRows;
  const int first = (int(block_index().x) * kCopyThreads + thread_index()) * kCopyColumns;
  if (first >= args.stride) return;
  const int first_row = args.first_row + begin;
  uint16_t* const out = args.out + begin * args.stride;
  const bool one_tile = w.grid_cols == 1 && w.row_period == 0;  // of all columns
  if (w.column_order != nullptr || (!one_tile && w.group_cols % kCopyColumns != 0) || first + kCopyColumns > w.cols) {
    QGEN_UNROLL_BY(1)
    for (int i = 0; i < rows * kCopyColumns; ++i) {
      const int r = i / kCopyColumns, k = first + i % kCopyColumns;
      if (k >= args.stride) continue;
      const int to = w.column_order != nullptr && k < w.cols ? w.column_order[k] : k;
      out[r * args.stride + to] = k < w.cols ? f16_bits(element<kCodes>(w, first_row + r, k) * args.factor) : 0;
    }
    return;
  }
  // All of one tile.
  const int column_tile = one_tile ? 0 : first / w.group_cols;
  Bytes16 codes[kCopyRows];
  float scale[kCopyRows], zero_point[kCopyRows], minimum[kCopyRows];
  QGEN_UNROLL
  for (int r = 0; r < kCopyRows; ++r) {
    if (r >= rows) continue;
    const int64_t tile = int64_t(first_group(w, first_row + r)) + column_tile;
    codes[r] = load_once16(w.codes + (first_row + r) * w.row_bytes + first);
    scale[r] = scale_at(w, tile);
    zero_point[r] = w.zero_point != nullptr ? w.zero_point[tile] : 0;
    minimum[r] = minimum_at(w, tile);
  }
  QGEN_UNROLL
  for (int r = 0; r < kCopyRows; ++r) {
    if (r >= rows) continue;
    const float by = scale[r] * args.factor, add = minimum[r] * args.factor;
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      Bytes16 pairs;
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        uint32_t halves[2];
        four_codes<kCodes>(codes[r].word[2 * h + i], i8_bias(0), halves[0], halves[1]);
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) {
          const float low = f16_value(uint16_t(halves[j])), high = f16_value(uint16_t(halves[j] >> 16));
          pairs.word[2 * i + j] =
              f16_pair(fused_product(low - zero_point[r], by, add), fused_product(high - zero_point[r], by, add));
        }
      }
      *reinterpret_cast<Bytes16*>(out + r * args.stride + first + h * 8) = pairs;
    }
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

}  // namespace qgen::QGEN_BACKEND
