#include "quant/transpose.h"

#include <algorithm>
#include <cstring>

#include "quant/repack.h"

namespace qgen {
namespace {

// In pieces that the first cache holds.
template <typename Code>
void transpose_rows(const std::byte* codes, int64_t pitch, Weight& weight, int64_t begin, int64_t end) {
  constexpr int64_t kPieceColumns = 64;
  for (int64_t first = 0; first < weight.cols; first += kPieceColumns) {
    const int64_t last = std::min(first + kPieceColumns, weight.cols);
    for (int64_t n = begin; n < end; ++n) {
      std::byte* const row = weight.owned.data() + n * weight.row_bytes;
      for (int64_t k = first; k < last; ++k)
        std::memcpy(row + k * int64_t(sizeof(Code)), codes + (k * pitch + n) * int64_t(sizeof(Code)), sizeof(Code));
    }
  }
}

// Kernels decode runs of columns with one scale; groups of fewer rows than this would make runs too short.
constexpr int64_t kLeastRun = 32;

// Whether the scales of `stored` are a grid of its transpose as well.
bool turns_over(const Weight& stored, int64_t step) {
  const ScaleGrid& grid = stored.scale;
  if (stored.in_blocks() || stored.repack != nullptr || stored.has_offsets() || stored.ordered || grid.two_levels() ||
      grid.row_period > 0)
    return false;
  if (grid.empty()) return true;
  const bool one_row = grid.row_origin + stored.rows <= grid.group_rows;
  return step == 1 && (one_row || (grid.row_origin % grid.group_rows == 0 && grid.group_rows % kLeastRun == 0));
}

ScaleGrid turned(const ScaleGrid& grid, const Weight& stored, int64_t first, int64_t rows) {
  ScaleGrid out = grid;
  if (grid.empty()) return out;
  const int64_t first_group = first / grid.group_cols;
  out.group_rows = grid.group_cols;
  out.group_cols = std::min(grid.group_rows, stored.rows);
  out.rows = (first + rows - 1) / grid.group_cols + 1 - first_group;
  out.cols = grid.rows;
  out.row_pitch = grid.col_pitch;
  out.col_pitch = grid.row_pitch;
  out.row_origin = first % grid.group_cols;
  if (grid.data != nullptr) out.data += first_group * grid.col_pitch;
  return out;
}

std::shared_ptr<const Weight::Repack> move_codes(const Weight& stored, int64_t first, int64_t step) {
  if (stored.data.empty()) return nullptr;  // only what it would be is asked for
  const std::byte* const codes = stored.data.data() + first * code_bytes(stored.codes);
  if (step == 1) return make_transposing_repack(codes, stored.cols);
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = own_codes;
  repack->rows = [codes, step, pitch = stored.row_bytes](Weight& w, int64_t begin, int64_t end) {
    const size_t size = size_t(code_bytes(w.codes));
    for (int64_t n = begin; n < end; ++n) {
      std::byte* const row = w.owned.data() + n * w.row_bytes;
      for (int64_t k = 0; k < w.cols; ++k)
        std::memcpy(row + k * int64_t(size), codes + k * pitch + n * step * int64_t(size), size);
    }
  };
  return repack;
}

std::shared_ptr<const Weight::Repack> move_values(const Weight& stored, int64_t first, int64_t step) {
  auto repack = std::make_shared<Weight::Repack>();
  const auto source = std::make_shared<const Weight>(slice_rows(stored, 0, stored.rows));
  repack->prepare = [source, first, step](Weight& w) {
    Weight whole = slice_rows(*source, 0, source->rows);
    if (const auto own = whole.repack) {
      own->prepare(whole);
      if (own->rows) own->rows(whole, 0, whole.rows);
    }
    w.owned.resize(size_t(w.rows * w.row_bytes));
    w.data = w.owned;
    std::vector<double> row(size_t(whole.cols));
    for (int64_t k = 0; k < whole.rows; ++k) {
      dequantize_row(whole, k, row);
      for (int64_t n = 0; n < w.rows; ++n) {
        const auto value = float(row[size_t(first + n * step)]);
        std::memcpy(w.owned.data() + n * w.row_bytes + k * int64_t(sizeof value), &value, sizeof value);
      }
    }
  };
  return repack;
}

}  // namespace

Weight transposed_rows(const Weight& stored, int64_t first, int64_t rows, int64_t step) {
  const bool turns = turns_over(stored, step);
  Weight out;
  out.name = stored.name;
  out.rows = rows;
  out.cols = stored.rows;
  out.codes = turns ? stored.codes : Codes::kF32;
  out.row_bytes = out.cols * code_bytes(out.codes);
  out.tensor = stored.tensor;
  if (turns) {
    // As much of the tensor as the part is large: what random weights go by until the repack.
    if (!stored.data.empty())
      out.data = stored.data.subspan(size_t(first / step * out.row_bytes), size_t(rows * out.row_bytes));
    out.scale = turned(stored.scale, stored, first, rows);
  }
  out.repack = turns ? move_codes(stored, first, step) : move_values(stored, first, step);
  return out;
}

std::shared_ptr<const Weight::Repack> make_transposing_repack(const std::byte* codes, int64_t pitch) {
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = own_codes;
  repack->rows = [codes, pitch](Weight& weight, int64_t begin, int64_t end) {
    switch (code_bytes(weight.codes)) {
      case 1: return transpose_rows<uint8_t>(codes, pitch, weight, begin, end);
      case 2: return transpose_rows<uint16_t>(codes, pitch, weight, begin, end);
      default: return transpose_rows<uint32_t>(codes, pitch, weight, begin, end);
    }
  };
  return repack;
}

}  // namespace qgen
