// Random numbers and weights for tests of kernels.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "base/numbers.h"
#include "quant/weight.h"

namespace qgen::test {

inline std::vector<float> normal(std::mt19937& random, size_t count, float deviation = 1) {
  std::normal_distribution<float> distribution(0, deviation);
  std::vector<float> out(count);
  for (float& value : out) value = distribution(random);
  return out;
}

// A random weight; group_cols 0 means no scales. Every code value occurs, fp8 NaN aside.
inline Weight random_weight(std::mt19937& random, Codes codes, int64_t rows, int64_t cols, int64_t group_rows,
                            int64_t group_cols, bool zero_points) {
  Weight weight;
  weight.rows = rows;
  weight.cols = cols;
  weight.codes = codes;
  weight.owned.resize(size_t(rows * cols * code_bytes(codes)));
  for (int64_t i = 0; i < rows * cols; ++i) {
    std::byte* p = weight.owned.data() + i * code_bytes(codes);
    const float value = std::normal_distribution<float>()(random);
    const uint16_t f16 = float_to_f16(value), bf16 = float_to_bf16(value);
    uint8_t byte = uint8_t(random());
    if (codes == Codes::kE4M3 && (byte & 0x7F) == 0x7F) byte ^= 1;
    if (codes == Codes::kE5M2) byte = uint8_t((byte & 0x83) | (0x30 + (byte >> 2 & 0xF)));  // no huge exponents
    switch (codes) {
      case Codes::kF32: std::memcpy(p, &value, 4); break;
      case Codes::kF16: std::memcpy(p, &f16, 2); break;
      case Codes::kBf16: std::memcpy(p, &bf16, 2); break;
      default: *p = std::byte{byte};
    }
  }
  weight.data = weight.owned;
  weight.row_bytes = cols * code_bytes(codes);
  if (group_cols > 0) {
    weight.scale = make_grid(rows, cols, group_rows, group_cols);
    std::vector<float> values(size_t(weight.scale.rows * weight.scale.cols));
    for (float& value : values) value = std::uniform_real_distribution<float>(0.001f, 0.02f)(random);
    if (zero_points) {
      std::vector<float> zeros(values.size());
      for (float& value : zeros) value = float(int(random() % 256) - 128);
      weight.zero_point = weight.scale;
      set_values(weight.zero_point, std::move(zeros));
    }
    set_values(weight.scale, std::move(values));
  }
  return weight;
}

// Unsigned codes that are held as I8, with minimums in groups that mostly undo the shift, as MLX and Q4_1 have them; in
// some groups nothing but the minimum is left.
inline Weight random_affine_weight(std::mt19937& random, int64_t rows, int64_t cols, int64_t group_rows,
                                   int64_t group_cols) {
  Weight weight = random_weight(random, Codes::kI8, rows, cols, group_rows, group_cols, false);
  weight.code_shift = 128;
  const ScaleGrid& scale = weight.scale;
  std::vector<float> scales(size_t(scale.rows * scale.cols)), minimums(scales.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = random() % 5 == 0 ? 0 : scale.value(int64_t(i) / scale.cols, int64_t(i) % scale.cols);
    minimums[i] = std::uniform_real_distribution<float>(-2.0f, 0.0f)(random);
  }
  weight.minimum = weight.scale;
  set_values(weight.scale, std::move(scales));
  set_values(weight.minimum, std::move(minimums));
  return weight;
}

// Unsigned codes that are held as I8, in groups down the columns with zero points that are no integers, as HQQ has them
// along axis 0. `type`: that of the grids, of floats.
inline Weight random_column_groups(std::mt19937& random, int64_t rows, int64_t cols, int64_t period, ScaleType type) {
  Weight weight = random_weight(random, Codes::kI8, rows, cols, 1, 0, false);
  weight.code_shift = 128;
  const auto make = [&](float low, float high) {
    ScaleGrid grid = make_column_grid(rows, cols, period);
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < grid.rows * grid.cols; ++i) {
      const float value = std::uniform_real_distribution<float>(low, high)(random);
      const uint16_t half = type == ScaleType::kF16 ? float_to_f16(value) : float_to_bf16(value);
      const auto* const from = type == ScaleType::kF32 ? reinterpret_cast<const std::byte*>(&value)
                                                       : reinterpret_cast<const std::byte*>(&half);
      bytes.insert(bytes.end(), from, from + scale_bytes(type));
    }
    set_values(grid, type, std::move(bytes));
    return grid;
  };
  weight.scale = make(0.001f, 0.02f);
  weight.zero_point = make(96, 160);
  return weight;
}

// A random weight whose scales, and minimums, have two levels, as GGUF's super-blocks of 256 codes have them.
inline Weight random_two_levels(std::mt19937& random, int64_t rows, int64_t cols, int64_t group_cols, bool minimums) {
  Weight weight = random_weight(random, Codes::kI8, rows, cols, 1, group_cols, false);
  const auto make = [&](int low, int high, double factor) {
    ScaleGrid grid = make_grid(rows, cols, 1, group_cols);
    grid.type = ScaleType::kI8;
    grid.super.shift = group_cols == 16 ? 4 : 3;
    const int64_t pitch = grid.cols + 2 * grid.super_cols();
    std::vector<std::byte> bytes(size_t(rows * pitch));
    for (int64_t r = 0; r < rows; ++r) {
      std::byte* const row = bytes.data() + r * pitch;
      for (int64_t c = 0; c < grid.cols; ++c) row[c] = std::byte(low + int(random() % unsigned(high - low + 1)));
      for (int64_t c = 0; c < grid.super_cols(); ++c) {
        const uint16_t super = float_to_f16(random() % 9 == 0 ? 0x1p-20f : float(random() % 1000) * 1e-5f);
        std::memcpy(row + grid.cols + 2 * c, &super, 2);
      }
    }
    grid.owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    grid.data = grid.owned->data();
    grid.row_pitch = grid.super.row_pitch = pitch;
    grid.col_pitch = 1;
    grid.super.data = grid.data + grid.cols;
    grid.factor = factor;
    return grid;
  };
  weight.scale = make(-128, 127, 1);
  if (minimums) weight.minimum = make(0, 63, -1);
  return weight;
}

// A random weight in Q8_0's blocks, whose scales are subnormal here and there.
inline Weight random_blocks(std::mt19937& random, int64_t rows, int64_t cols) {
  Weight weight;
  weight.rows = rows;
  weight.cols = cols;
  weight.codes = Codes::kI8;
  weight.block_cols = kQ8_0BlockElements;
  weight.block_bytes = kQ8_0BlockBytes;
  weight.block_offset = 2;
  weight.row_bytes = cols / kQ8_0BlockElements * kQ8_0BlockBytes;
  weight.owned.resize(size_t(rows * weight.row_bytes));
  for (size_t at = 0; at < weight.owned.size(); at += kQ8_0BlockBytes) {
    const uint16_t scale = float_to_f16(random() % 8 == 0 ? 0x1p-20f : float(random() % 1000) * 1e-5f);
    std::memcpy(weight.owned.data() + at, &scale, 2);
    for (int i = 0; i < kQ8_0BlockElements; ++i) weight.owned[at + 2 + size_t(i)] = std::byte(random());
  }
  weight.data = weight.owned;
  weight.scale = make_grid(rows, cols, 1, kQ8_0BlockElements);
  weight.scale.type = ScaleType::kF16;
  weight.scale.data = weight.owned.data();
  weight.scale.row_pitch = weight.row_bytes;
  weight.scale.col_pitch = kQ8_0BlockBytes;
  return weight;
}

}  // namespace qgen::test
