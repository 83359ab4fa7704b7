#include "kernels/device/recurrence.cuh"

#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void convolve(Stream& stream, const ConvArgs& args) {
  launch(stream, "convolve", args.taps == 4 ? convolve_kernel<4> : convolve_kernel<0>,
         {blocks_of(args.cols, kConvThreads), unsigned(args.segments.count)}, kConvThreads,
         size_t(args.taps - 1 + kConvAhead) * kConvThreads * sizeof(float), args);
}

void recur(Stream& stream, const RecurArgs& args) {
  launch(stream, "recur inputs", recur_inputs_kernel, {unsigned(args.tokens)}, kRecurWarps * kWarp, 0, args);
  const Dim grid = {unsigned(args.heads) * blocks_of(args.value_dim, kWarp), unsigned(args.segments.count)};
  if (args.in_chunks && args.key_dim % 4 == 0) {
    const size_t floats = size_t(RecurChunkLayout{args.key_dim}.size());
    return launch(stream, "recur chunks", args.delta ? recur_chunks_kernel<true> : recur_chunks_kernel<false>, grid,
                  kRecurWarps * kWarp, floats * sizeof(float), args);
  }
  const size_t shared = size_t(args.key_dim + 2 * kRecurWarps) * kWarp * sizeof(float);
  launch(stream, "recur", recur_kernel, grid, kRecurWarps * kWarp, shared, args);
}

}  // namespace qgen::QGEN_BACKEND
