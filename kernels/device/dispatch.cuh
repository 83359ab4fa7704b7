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

// How a weight lies to kernels of matrix products.
template <Codes kCodesOfGrid, int kLaneCodes, bool kGroupedScales, bool kScalesInF16>
struct GridTraits {
  static constexpr Codes kCodes = kCodesOfGrid;
  static constexpr int kLane = kLaneCodes;          // codes that a lane takes at once
  static constexpr bool kGrouped = kGroupedScales;  // scales change along the row
  static constexpr bool kF16Scales = kScalesInF16;  // else F32, where they change
};

// Calls `run` with the GridTraits of a weight. Not for GridKind::kAny, which F32 always is.
template <typename Run>
void with_grid(const Matrix& w, const Run& run) {
  with_codes(w.kind, [&]<Codes kCodes>() {
    if constexpr (kCodeBytes<kCodes> == 2) {
      run.template operator()<GridTraits<kCodes, 8, false, false>>();
    } else if constexpr (kCodeBytes<kCodes> == 1) {
      switch (grid_kind(w)) {
        case GridKind::kWide: return run.template operator()<GridTraits<kCodes, 16, true, false>>();
        case GridKind::kNarrow:
          if constexpr (kCodes == Codes::kI8) {
            if (w.f16_scales) return run.template operator()<GridTraits<kCodes, 8, true, true>>();
          }
          return run.template operator()<GridTraits<kCodes, 8, true, false>>();
        default: return run.template operator()<GridTraits<kCodes, 16, false, false>>();
      }
    }
  });
}

}  // namespace qgen::QGEN_BACKEND
