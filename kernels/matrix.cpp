#include "kernels/steps.h"

namespace qgen::QGEN_BACKEND {

GridKind grid_kind(const Matrix& matrix) {
  if (matrix.kind == Codes::kF32 || matrix.nan_codes) return GridKind::kAny;
  const bool tiled = matrix.scale != nullptr && matrix.tile_cols > 1;
  if (code_bytes(matrix.kind) == 2 && matrix.scale != nullptr) return GridKind::kAny;
  // Only integers have an offset that their 16-bit float can take in exactly.
  if (matrix.offset != nullptr && !(matrix.kind == Codes::kI8 && matrix.whole_offsets)) return GridKind::kAny;
  if (!tiled) return GridKind::kRow;
  if (matrix.group_cols != 1 << matrix.group_shift) return GridKind::kAny;
  if (matrix.group_cols >= 64) return matrix.half_scales ? GridKind::kAny : GridKind::kWide;
  return matrix.group_cols == 32 ? GridKind::kNarrow : GridKind::kAny;
}

int64_t cache_row_bytes(CacheKind kind, int64_t head_dim) {
  const int64_t bytes = kind == CacheKind::kF32 ? 4 : kind == CacheKind::kF16 || kind == CacheKind::kBf16 ? 2 : 1;
  return padded(int(head_dim)) * bytes;
}

}  // namespace qgen::QGEN_BACKEND
