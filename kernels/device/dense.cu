#include "kernels/device/dense.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void dequantize_to_fp16(Stream& stream, const DequantizeArgs& args) {
  const Dim grid{blocks_of(args.stride / kCopyColumns, kCopyThreads), unsigned(args.rows)};
  with_codes(args.w.kind, [&]<Codes kCodes>() {
    if constexpr (kCodeBytes<kCodes> == 1)
      launch(stream, "dequantize", dequantize_kernel<kCodes>, grid, kCopyThreads, 0, args);
  });
}

void apply_epilogue(Stream& stream, const EpilogueArgs& args) {
  const auto kernel = args.integers ? epilogue_kernel<true> : epilogue_kernel<false>;
  launch(stream, "epilogue", kernel, {blocks_of(args.rows, kEpilogueThreads), unsigned(args.tokens)}, kEpilogueThreads,
         0, args);
}

}  // namespace qgen::QGEN_BACKEND
