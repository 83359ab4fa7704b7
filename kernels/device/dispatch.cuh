// From what a weight says of itself to the constants that kernels are made for.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

// Calls `run` with the codes as a constant.
template <typename Run>
void with_codes(Codes codes, const Run& run) {
  switch (codes) {
    case Codes::kF32: return run.template operator()<Codes::kF32>();
    case Codes::kF16: return run.template operator()<Codes::kF16>();
    case Codes::kBf16: return run.template operator()<Codes::kBf16>();
    case Codes::kI8: return run.template operator()<Codes::kI8>();
    case Codes::kE4M3: return run.template operator()<Codes::kE4M3>();
    case Codes::kE5M2: return run.template operator()<Codes::kE5M2>();
  }
}

// For kernels of matrix products, with the codes, how many of them a lane takes at once, whether scales change along
// the row, and whether they are F16. Not for GridKind::kAny, which F32 always is.
template <typename Run>
void with_tiles(const Matrix& w, const Run& run) {
  with_codes(w.kind, [&]<Codes kCodes>() {
    if constexpr (kCodeBytes<kCodes> == 2) {
      run.template operator()<kCodes, 8, false, false>();
    } else if constexpr (kCodeBytes<kCodes> == 1) {
      switch (grid_kind(w)) {
        case GridKind::kWide: return run.template operator()<kCodes, 16, true, false>();
        case GridKind::kNarrow:
          if constexpr (kCodes == Codes::kI8) {
            if (w.half_scales) return run.template operator()<kCodes, 8, true, true>();
          }
          return run.template operator()<kCodes, 8, true, false>();
        default: return run.template operator()<kCodes, 16, false, false>();
      }
    }
  });
}

}  // namespace qgen::QGEN_BACKEND
