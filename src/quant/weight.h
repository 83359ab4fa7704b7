// The canonical weight: what every checkpoint method becomes, and the only thing engines know about quantization.
//
//   W[n, k] = (code[n, k] + code_shift - zero_point[g]) * scale[g] + minimum[g]
//
// where g is the scale group of (n, k), and zero points and minimums may be missing. Codes and scales stay where the
// file has them, in the types it has them in; what cannot be used in place is repacked when the model is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/page_allocator.h"
#include "checkpoint/tensor.h"

namespace qgen {

enum class Codes : uint8_t { kF32, kF16, kBf16, kI8, kE4M3, kE5M2 };
std::string_view codes_name(Codes codes);
constexpr int64_t code_bytes(Codes codes) {
  return codes == Codes::kF32 ? 4 : codes == Codes::kF16 || codes == Codes::kBf16 ? 2 : 1;
}

// How a scale (or a zero point, or a minimum) is stored.
enum class ScaleType : uint8_t { kF32, kF16, kBf16, kE8M0, kI8, kU8, kE4M3 };
int64_t scale_bytes(ScaleType type);

// The second level of a grid whose values are codes themselves: 2^shift neighbours of a row share a value that
// multiplies them (GGUF's super-blocks).
struct SuperScales {
  const std::byte* data = nullptr;  // of row 0; null before the repack that makes them
  int64_t row_pitch = 0;            // bytes
  ScaleType type = ScaleType::kF16;
  int8_t shift = -1;  // none
};

// One value for each scale group of group_rows x group_cols elements: stored * super-scale * factor; the last group of
// a row or column may be partial. Tensor = (N, K), channel = (1, K), group = (1, g), block = (128, 128). Without
// groups: 1 (scale) or 0 (the others).
//
// With a row period the rows of a group do not lie side by side: row n of the weight has row n modulo row_period of the
// grid. So HQQ has groups down a column (axis 0): they have group_cols = 1, codes of INT8 and no minimums.
struct ScaleGrid {
  int64_t group_rows = 0;
  int64_t group_cols = 0;
  int64_t row_period = 0;  // 0: groups of neighbouring rows
  int64_t rows = 0;        // of the grid: groups along N
  int64_t cols = 0;        // groups along K
  ScaleType type = ScaleType::kF32;
  const std::byte* data = nullptr;  // of group (0, 0), possibly unaligned; in the mapped file or `owned`
  int64_t row_pitch = 0;            // bytes from a group to the one below it
  int64_t col_pitch = 0;            // bytes from a group to its right neighbour
  int64_t row_origin = 0;           // the row of the grid's matrix that is row 0 of the weight (slices)
  SuperScales super;
  double factor = 1;                                    // multiplies the stored value
  std::string tensor;                                   // "FILE: tensor NAME", for messages
  std::shared_ptr<const std::vector<std::byte>> owned;  // values that no file has

  bool empty() const { return rows * cols == 0; }
  // The row of the grid that row n of the weight has.
  int64_t row_of(int64_t n) const {
    return row_period > 0 ? (row_origin + n) % row_period : (row_origin + n) / group_rows;
  }
  bool two_levels() const { return super.shift >= 0; }
  int64_t super_cols() const { return two_levels() ? (cols + (int64_t{1} << super.shift) - 1) >> super.shift : 0; }
  // Of the group in row r and column c of the grid: as it is stored, its super-scale (1 without), and the product of
  // both and the factor, which of GGUF's types is exact.
  float stored(int64_t r, int64_t c) const;
  float super_scale(int64_t r, int64_t c) const;
  double exact(int64_t r, int64_t c) const { return double(stored(r, c)) * super_scale(r, c) * factor; }
  float value(int64_t r, int64_t c) const { return float(exact(r, c)); }
  // Of element (n, k) of the weight.
  float at(int64_t n, int64_t k) const { return value(row_of(n), k / group_cols); }
  size_t bytes() const {
    return size_t(rows * (cols * scale_bytes(type) + super_cols() * (two_levels() ? scale_bytes(super.type) : 0)));
  }
};

// A grid of one group shape over an (N, K) matrix; its values are to be set.
ScaleGrid make_grid(int64_t rows, int64_t cols, int64_t group_rows, int64_t group_cols);
// One of groups down the columns: each has rows n, n + period, n + 2 period, ... of a column. `rows` is a multiple of
// the period.
ScaleGrid make_column_grid(int64_t rows, int64_t cols, int64_t period);
bool all_zero(const ScaleGrid& grid);
// The grid's values, row by row: as floats, or as the bytes of a type.
void set_values(ScaleGrid& grid, std::vector<float> values);
void set_values(ScaleGrid& grid, ScaleType type, std::vector<std::byte> values);

struct Weight {
  std::string name;  // the module, "model.layers.0.self_attn.q_proj"
  int64_t rows = 0;  // N, outputs
  int64_t cols = 0;  // K, inputs
  Codes codes = Codes::kF32;
  // (N, row_bytes): the codes, possibly unaligned, in the mapped file or in `owned`. Before a repack: what it is made
  // from, as the file has it.
  std::span<const std::byte> data;
  int64_t row_bytes = 0;
  // Codes in blocks, as GGUF has them: `block_cols` codes lie side by side, `block_offset` bytes behind the beginning
  // of a block of `block_bytes`. 0: all codes of a row side by side.
  int64_t block_cols = 0, block_bytes = 0, block_offset = 0;
  int32_t code_shift = 0;  // added to each code: 128 where unsigned bytes are held as I8
  ScaleGrid scale;
  ScaleGrid zero_point, minimum;  // the same groups as `scale` where present
  // The producer's library computes W in F32, operation by operation, and so does dequantize_row(): with grids of
  // floats the roundings show.
  bool f32_steps = false;
  std::string_view file_codes;    // "4 bits": what the file's codes are where they are held as wider ones; else ""
  std::string_view rounded_from;  // "bf16": what the file has, where the codes are rounded from it at load; else ""
  // Stored column j multiplies input column_order[j] (act-order quantization); empty for the natural order, and before
  // the repack that finds it. `ordered`: there is or may be one.
  std::vector<int32_t> column_order;
  bool ordered = false;
  // Makes `data` and what else is not in the file as it is needed, when the model is loaded; null where nothing is to
  // do. Rows may be repacked on several threads: prepare() first, once, then rows(begin, end).
  struct Repack {
    std::function<void(Weight&)> prepare;
    std::function<void(Weight&, int64_t begin, int64_t end)> rows;
  };
  std::shared_ptr<const Repack> repack;
  std::span<const std::byte> source;  // what `data` was before a repack, while that runs
  // Bytes of `source` for each row, if a row is repacked from its own bytes alone: then some rows of a weight can be
  // repacked like a weight of their own. 0: rows are not independent.
  int64_t source_pitch = 0;
  PageBytes owned;        // codes, and grids behind them
  int64_t nan_codes = 0;  // fp8 codes that are NaN or infinite, known after a WeightScan
  std::string tensor;     // "FILE: tensor NAME", for messages

  Weight() = default;
  Weight(Weight&&) = default;
  Weight& operator=(Weight&&) = default;
  Weight(const Weight&) = delete;

  bool quantized() const { return codes == Codes::kI8 || codes == Codes::kE4M3 || codes == Codes::kE5M2; }
  bool in_blocks() const { return block_cols > 0; }
  // Whether W is more than code * scale.
  bool has_offsets() const { return code_shift != 0 || !zero_point.empty() || !minimum.empty(); }
  // The bytes of code (n, k).
  const std::byte* code_at(int64_t n, int64_t k) const;
  float scale_at(int64_t n, int64_t k) const { return scale.empty() ? 1 : scale.at(n, k); }
  // Codes, grids and column order, as they are held in memory once the weight is loaded.
  size_t bytes() const;
};

// Rows first, first + step, ... of a weight: fused projections. A part of a weight that needs a repack has one of its
// own. With a step of more than 1 a model Error where the rows are not made one by one in a repack, or their scales are
// not those of rows.
Weight slice_rows(const Weight& whole, int64_t first, int64_t rows, int64_t step = 1);

// Codes [n, 0..K) of one row as doubles, exact; `out` has K elements.
void decode_codes(const Weight& weight, int64_t n, std::span<double> out);
// Row n of W in the order of the inputs; `out` has K elements. Exact up to the final double product and sum, but for
// weights with f32_steps.
void dequantize_row(const Weight& weight, int64_t n, std::span<double> out);

// "fp8 block 128x128", "int8 channel", "int8 group 32 asymmetric", "int8 column group 64 asymmetric", "bf16", "4 bits,
// held as 8, group 128".
std::string method_name(const Weight& weight);

// A vector of a model (a norm's weight, a bias) in its file; its values are read when an engine asks for them.
struct Vector {
  std::string name;
  int64_t size = 0;
  Dtype type = Dtype::kF32;          // F32, F16 or BF16
  std::span<const std::byte> bytes;  // possibly unaligned
  double add = 0;                    // to every element: norms that are stored less one
  std::vector<float> given;          // the values where no file has them
  // Makes the values where they follow from several tensors; of them, those from `first` on count.
  std::shared_ptr<const std::function<std::vector<float>()>> derived;
  int64_t first = 0;

  // A model Error where the file has NaN or infinity there.
  std::vector<float> values() const;
  bool quantized() const { return false; }
};

// Elements [first, first + size) of a vector.
Vector slice(const Vector& whole, int64_t first, int64_t size);

// The values of a scale or vector in F32, exact: F32, F16, BF16, F8_E8M0 (U8 is read as E8M0).
std::vector<float> tensor_values(const TensorView& tensor);

}  // namespace qgen
