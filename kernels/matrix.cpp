#include <bit>

#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

GridKind grid_kind(const Matrix& matrix) {
  if (matrix.kind == Codes::kF32 || matrix.nan_codes || matrix.row_period > 0) return GridKind::kAny;
  const ScaleForm form = scale_form(matrix);
  const bool levels = form == ScaleForm::kTwoLevels, minimums = has_minimums(matrix);
  if ((levels || minimums) && matrix.kind != Codes::kI8) return GridKind::kAny;
  const bool tiled = matrix.scale != nullptr && matrix.grid_cols > 1;
  if (code_bytes(matrix.kind) == 2 && matrix.scale != nullptr) return GridKind::kAny;
  // Only integers have a zero point that their 16-bit float can take in exactly.
  if (matrix.zero_point != nullptr && !(matrix.kind == Codes::kI8 && matrix.whole_zero_points)) return GridKind::kAny;
  if (matrix.zero_point != nullptr && form != ScaleForm::kF32) return GridKind::kAny;  // zero_point_at() knows none
  if (!tiled) return levels || minimums ? GridKind::kAny : GridKind::kRow;
  if (matrix.group_cols != 1 << matrix.group_shift) return GridKind::kAny;
  if (matrix.group_cols >= 64) return form == ScaleForm::kF32 ? GridKind::kWide : GridKind::kAny;
  if (matrix.group_cols == 32) return levels && !minimums ? GridKind::kAny : GridKind::kNarrow;
  // Two neighbours are read at once.
  const bool pairs = matrix.grid_cols % 2 == 0 && (!levels || matrix.super_shift > 0);
  const bool made = matrix.kind == Codes::kI8 && (levels || (form == ScaleForm::kF32 && !minimums));
  return matrix.group_cols == 16 && pairs && made ? GridKind::kFine : GridKind::kAny;
}

ScaleForm scale_form(const Matrix& matrix) {
  if (matrix.super_scale != nullptr) return ScaleForm::kTwoLevels;
  return matrix.f16_scales ? ScaleForm::kF16 : ScaleForm::kF32;
}

bool has_minimums(const Matrix& matrix) { return matrix.minimum != nullptr || matrix.super_minimum != nullptr; }

SplitForm split_form(const Matrix& matrix) {
  if (matrix.kind == Codes::kBf16) return SplitForm::kBf16Windows32;
  const GridKind kind = grid_kind(matrix);
  const bool narrow = code_bytes(matrix.kind) == 2 || kind == GridKind::kNarrow || kind == GridKind::kFine;
  return narrow ? SplitForm::kF16Windows32 : SplitForm::kF16Windows64;
}

bool alike(const Matrix& a, const Matrix& b) {
  const bool grouped = grid_kind(a) != GridKind::kRow;
  return a.kind == b.kind && grid_kind(a) == grid_kind(b) && scale_form(a) == scale_form(b) &&
         has_minimums(a) == has_minimums(b) && (!grouped || a.group_cols == b.group_cols) &&
         a.column_order == b.column_order;
}

bool has_expert_kernels(const Matrix& matrix) {
  return grid_kind(matrix) != GridKind::kAny && matrix.column_order == nullptr && matrix.kind != Codes::kE5M2;
}

int page_shift_of(int64_t page_tokens, int64_t ring) {
  constexpr int kOnePage = 31;  // every position is in page 0
  if (ring == 1) return kOnePage;
  return std::bit_width(uint64_t(page_tokens)) - 1;
}

int64_t cache_row_bytes(CacheKind kind, int64_t head_dim) {
  const int64_t bytes = kind == CacheKind::kF32 ? 4 : kind == CacheKind::kF16 || kind == CacheKind::kBf16 ? 2 : 1;
  return padded(int(head_dim)) * bytes;
}

}  // namespace qgen::QGEN_BACKEND
