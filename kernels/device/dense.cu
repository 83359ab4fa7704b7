#include "kernels/device/dense.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

namespace {

// Whether pieces are of one group each, and the rows of a thread have a group each or one together.
bool has_whole_pieces(const DequantizeArgs& args) {
  const Matrix& w = args.w;
  const bool columns = w.grid_cols == 1 || (w.group_cols == 1 << w.group_shift && w.group_cols >= kCopyPiece);
  const bool rows = w.group_rows == 1 || w.group_rows >= w.row_origin + w.rows ||
                    (w.group_rows % kCopyRows == 0 && (w.row_origin + args.first_row) % kCopyRows == 0);
  return columns && rows && w.scale != nullptr && w.row_period == 0 && w.column_order == nullptr &&
         w.cols % kCopyPiece == 0;
}

// Calls `run` with what the kernel of whole pieces must know of scales. False where it has none.
template <Codes kCodes, typename Run>
bool with_piece_grid(const Matrix& w, const Run& run) {
  const auto with = [&]<ScaleForm kForm, bool kMinimums = false>() {
    run.template operator()<GridTraits<kCodes, kCopyPiece, 1, kForm, kMinimums>>();
    return true;
  };
  const ScaleForm form = scale_form(w);
  const bool minimums = has_minimums(w), plain = !minimums && w.zero_point == nullptr;
  if constexpr (kCodes == Codes::kI8) {
    if (form == ScaleForm::kF16) return plain && with.template operator()<ScaleForm::kF16>();
    if (w.zero_point != nullptr && (minimums || form != ScaleForm::kF32)) return false;
    if (form == ScaleForm::kTwoLevels)
      return minimums ? with.template operator()<ScaleForm::kTwoLevels, true>()
                      : with.template operator()<ScaleForm::kTwoLevels>();
    return minimums ? with.template operator()<ScaleForm::kF32, true>() : with.template operator()<ScaleForm::kF32>();
  } else {
    return form == ScaleForm::kF32 && plain && with.template operator()<ScaleForm::kF32>();
  }
}

}  // namespace

void dequantize_to_fp16(Stream& stream, const DequantizeArgs& args) {
  const Dim grid{blocks_of(args.stride, kCopyThreads * kCopyColumns), blocks_of(args.rows, kCopyRows)};
  const auto start = [&](auto kernel) { launch(stream, "dequantize", kernel, grid, kCopyThreads, 0, args); };
  with_codes(args.w.kind, [&]<Codes kCodes>() {
    if constexpr (kCodeBytes<kCodes> == 1) {
      const bool in_pieces = has_whole_pieces(args) && with_piece_grid<kCodes>(args.w, [&]<typename Grid>() {
                               start(dequantize_pieces_kernel<Grid>);
                             });
      if (!in_pieces) start(dequantize_kernel<kCodes>);
    }
  });
}

void apply_epilogue(Stream& stream, const EpilogueArgs& args) {
  const int64_t units = args.raw_stride | args.gate_stride | args.y_stride | args.rows;
  const auto bytes = reinterpret_cast<uintptr_t>(args.raw) | reinterpret_cast<uintptr_t>(args.gate) |
                     reinterpret_cast<uintptr_t>(args.y);
  const bool in_pieces = !args.integers && units % 4 == 0 && bytes % sizeof(Floats4) == 0;
  const auto kernel = in_pieces       ? epilogue_pieces_kernel
                      : args.integers ? epilogue_kernel<true>
                                      : epilogue_kernel<false>;
  launch(stream, "epilogue", kernel,
         {blocks_of(args.rows, kEpilogueThreads * (in_pieces ? 4 : 1)), unsigned(args.tokens)}, kEpilogueThreads, 0,
         args);
}

void apply_token_factors(Stream& stream, const TokenFactorArgs& args) {
  launch(stream, "token factors", token_factors_kernel, {blocks_of(args.tokens, kFactorThreads / kWarp)},
         kFactorThreads, 0, args);
}

}  // namespace qgen::QGEN_BACKEND
