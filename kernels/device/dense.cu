#include "kernels/device/dense.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void copy_as_halves(Stream& stream, const CopyArgs& args) {
  const Dim grid{blocks_of(args.stride / kCopyColumns, kCopyThreads), unsigned(args.rows)};
  with_codes(args.w.kind, [&]<Codes kCodes>() {
    if constexpr (kCodeBytes<kCodes> == 1)
      launch(stream, "copy as halves", copy_as_halves_kernel<kCodes>, grid, kCopyThreads, 0, args);
  });
}

void finish(Stream& stream, const FinishArgs& args) {
  const auto kernel = args.integers ? finish_kernel<true> : finish_kernel<false>;
  launch(stream, "finish", kernel, {blocks_of(args.w.rows, kFinishThreads), unsigned(args.tokens)}, kFinishThreads, 0,
         args);
}

}  // namespace qgen::QGEN_BACKEND
