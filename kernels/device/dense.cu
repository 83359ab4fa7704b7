#include "kernels/device/dense.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void dequantize_to_fp16(Stream& stream, const DequantizeArgs& args) {
  const Dim grid{blocks_of(args.stride, kCopyThreads * kCopyColumns), blocks_of(args.rows, kCopyRows)};
  with_codes(args.w.kind, [&]<Codes kCodes>() {
    if constexpr (kCodeBytes<kCodes> == 1)
      launch(stream, "dequantize", dequantize_kernel<kCodes>, grid, kCopyThreads, 0, args);
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
