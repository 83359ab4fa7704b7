#include "kernels/device/dense.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

namespace {

// A kernel for all widths of groups.
template <typename Grid>
using PieceGrid = GridTraits<Grid::kCodes, 16, Grid::kGrouped ? 1 : 0, Grid::kForm, Grid::kMinimums>;

bool has_copied_pieces(const DequantizeArgs& args) {
  const Matrix& w = args.w;
  const bool rows_together = w.group_rows % kCopyRows == 0 && (w.row_origin + args.first_row) % kCopyRows == 0;
  return grid_kind(w) != GridKind::kAny && w.column_order == nullptr && w.cols % kCopyPiece == 0 &&
         (w.group_rows == 1 || rows_together);
}

}  // namespace

void dequantize_to_fp16(Stream& stream, const DequantizeArgs& args) {
  const Dim grid{blocks_of(args.stride, kCopyThreads * kCopyColumns), blocks_of(args.rows, kCopyRows)};
  const auto start = [&](auto kernel) { launch(stream, "dequantize", kernel, grid, kCopyThreads, 0, args); };
  if (has_copied_pieces(args)) {
    with_grid(args.w, [&]<typename Grid>() {
      if constexpr (kCodeBytes<Grid::kCodes> == 1) start(dequantize_pieces_kernel<PieceGrid<Grid>>);
    });
    return;
  }
  with_codes(args.w.kind, [&]<Codes kCodes>() {
    if constexpr (kCodeBytes<kCodes> == 1) start(dequantize_kernel<kCodes>);
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

}  // namespace qgen::QGEN_BACKEND
