// What stands around the products of a library (gemm.h): weights written out as 16-bit floats, and what its results
// still lack.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kCopyThreads = 256, kCopyColumns = 8;  // of a thread

template <Codes kCodes>
QGEN_KERNEL(kCopyThreads, 1)
dequantize_kernel(const DequantizeArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const Matrix& w = args.w;
  const int row = args.first_row + int(block_index().y);
  const int first = (int(block_index().x) * kCopyThreads + thread_index()) * kCopyColumns;
  if (first >= args.stride) return;
  uint16_t* const out = args.out + block_index().y * args.stride;
  if (w.column_order != nullptr || w.group_cols % kCopyColumns != 0 || first + kCopyColumns > w.cols) {
    for (int k = first; k < first + kCopyColumns; ++k) {
      const int to = w.column_order != nullptr && k < w.cols ? w.column_order[k] : k;
      out[to] = k < w.cols ? f16_bits(element<kCodes>(w, row, k) * args.factor) : 0;
    }
    return;
  }
  // All of one tile.
  const int64_t tile = int64_t(first_group(w, row)) + first / w.group_cols;
  const float scale = scale_at(w, tile) * args.factor, zero_point = w.zero_point != nullptr ? w.zero_point[tile] : 0;
  const float minimum = minimum_at(w, tile) * args.factor;
  const Bytes8 codes = *reinterpret_cast<const Bytes8*>(w.codes + row * w.row_bytes + first);
  Bytes16 pairs;
  QGEN_UNROLL
  for (int i = 0; i < 2; ++i) {
    uint32_t halves[2];
    four_codes<kCodes>(codes.word[i], i8_bias(0), halves[0], halves[1]);
    QGEN_UNROLL
    for (int j = 0; j < 2; ++j) {
      const float low = f16_value(uint16_t(halves[j])), high = f16_value(uint16_t(halves[j] >> 16));
      pairs.word[2 * i + j] =
          f16_pair(fused_product(low - zero_point, scale, minimum), fused_product(high - zero_point, scale, minimum));
    }
  }
  *reinterpret_cast<Bytes16*>(out + first) = pairs;
}

constexpr int kEpilogueThreads = 256;

template <bool kIntegers>
QGEN_KERNEL(kEpilogueThreads, 1)
epilogue_kernel(const EpilogueArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int row = int(block_index().x) * kEpilogueThreads + thread_index();
  if (row >= args.rows) return;
  const int64_t token = block_index().y, at = token * args.raw_stride + row;
  float value = kIntegers ? float(static_cast<const int32_t*>(args.raw)[at]) : static_cast<const float*>(args.raw)[at];
  if (args.row_scale != nullptr) {
    const int group = (args.row_origin + row) / args.group_rows;
    value *= args.f16_scales ? f16_value(static_cast<const uint16_t*>(args.row_scale)[group])
                             : static_cast<const float*>(args.row_scale)[group];
  }
  if (args.token_scale != nullptr) value *= args.token_scale[token];
  if (args.bias != nullptr) value += args.bias[row];
  if (args.gate != nullptr) {
    value *= activated(args.epilogue.activation, args.gate[token * args.gate_stride + row]);
  } else {
    value = activated(args.epilogue.activation, value);
  }
  store_product(args.epilogue, value, args.y + token * args.y_stride + row);
}

}  // namespace qgen::QGEN_BACKEND
