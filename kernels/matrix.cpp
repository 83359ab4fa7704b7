#include <bit>

#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

GridKind grid_kind(const Matrix& matrix) {
  if (matrix.kind == Codes::kF32 || matrix.nan_codes) return GridKind::kAny;
  if (matrix.minimum != nullptr || matrix.super_scale != nullptr) return GridKind::kAny;
  const bool tiled = matrix.scale != nullptr && matrix.grid_cols > 1;
  if (code_bytes(matrix.kind) == 2 && matrix.scale != nullptr) return GridKind::kAny;
  // Only integers have a zero point that their 16-bit float can take in exactly.
  if (matrix.zero_point != nullptr && !(matrix.kind == Codes::kI8 && matrix.whole_zero_points)) return GridKind::kAny;
  if (!tiled) return GridKind::kRow;
  if (matrix.group_cols != 1 << matrix.group_shift) return GridKind::kAny;
  if (matrix.group_cols >= 64) return matrix.f16_scales ? GridKind::kAny : GridKind::kWide;
  return matrix.group_cols == 32 ? GridKind::kNarrow : GridKind::kAny;
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
