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
template <Codes kCodesOfGrid, int kLaneCodes, int kGroupsOfWindow, ScaleForm kFormOfScales, bool kWithMinimums>
struct GridTraits {
  static constexpr Codes kCodes = kCodesOfGrid;
  static constexpr int kLane = kLaneCodes;  // codes that a lane takes at once
  // Groups that the codes of four lanes are of, a window; a wider group counts as one. 0: the row has one scale.
  static constexpr int kGroups = kGroupsOfWindow;
  static constexpr bool kGrouped = kGroups > 0;
  static constexpr ScaleForm kForm = kFormOfScales;  // where scales change along the row
  static constexpr bool kMinimums = kWithMinimums;
};

// Those of most published models: they have kernels for special cases, each of which is a part of the program. Of
// groups of 32, Q8_0's alone.
template <typename Grid>
constexpr bool is_common = !Grid::kMinimums && Grid::kCodes != Codes::kE5M2 && Grid::kCodes != Codes::kF16 &&
                           (Grid::kLane == 16 || Grid::kCodes == Codes::kBf16 || Grid::kForm == ScaleForm::kF16);

// Calls `run` with the GridTraits of a weight. Not for GridKind::kAny, which F32 always is.
template <typename Run>
void with_grid(const Matrix& w, const Run& run) {
  with_codes(w.kind, [&]<Codes kCodes>() {
    const auto with = [&]<int kLane, int kGroups, ScaleForm kForm = ScaleForm::kF32, bool kMinimums = false>() {
      run.template operator()<GridTraits<kCodes, kLane, kGroups, kForm, kMinimums>>();
    };
    if constexpr (kCodeBytes<kCodes> == 2) {
      with.template operator()<8, 0>();
    } else if constexpr (kCodeBytes<kCodes> == 1) {
      const GridKind kind = grid_kind(w);
      if constexpr (kCodes == Codes::kI8) {
        const ScaleForm form = scale_form(w);
        if (kind == GridKind::kWide && has_minimums(w)) return with.template operator()<16, 1, ScaleForm::kF32, true>();
        if (kind == GridKind::kNarrow) {
          if (form == ScaleForm::kF16) return with.template operator()<8, 1, ScaleForm::kF16>();
          if (form == ScaleForm::kTwoLevels) return with.template operator()<8, 1, ScaleForm::kTwoLevels, true>();
          if (has_minimums(w)) return with.template operator()<8, 1, ScaleForm::kF32, true>();
        }
        if (kind == GridKind::kFine) {
          if (form == ScaleForm::kF32) return with.template operator()<8, 2>();
          if (has_minimums(w)) return with.template operator()<8, 2, ScaleForm::kTwoLevels, true>();
          return with.template operator()<8, 2, ScaleForm::kTwoLevels>();
        }
      }
      switch (kind) {
        case GridKind::kWide: return with.template operator()<16, 1>();
        case GridKind::kNarrow: return with.template operator()<8, 1>();
        default: return with.template operator()<16, 0>();
      }
    }
  });
}

// The same of weights that has_expert_kernels().
template <typename Run>
void with_expert_grid(const Matrix& w, const Run& run) {
  with_grid(w, [&]<typename Grid>() {
    if constexpr (Grid::kCodes != Codes::kE5M2) run.template operator()<Grid>();
  });
}

// The same of weights in 16 bits.
template <typename Run>
void with_16_bit_grid(const Matrix& w, const Run& run) {
  with_grid(w, [&]<typename Grid>() {
    if constexpr (kCodeBytes<Grid::kCodes> == 2) run.template operator()<Grid>();
  });
}

}  // namespace qgen::QGEN_BACKEND
