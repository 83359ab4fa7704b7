#include "kernels/device/recurrence.cuh"

#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void convolve(Stream& stream, const ConvArgs& args) {
  launch(stream, "convolve", convolve_kernel, {blocks_of(args.cols, kConvThreads), unsigned(args.segments.count)},
         kConvThreads, size_t(args.taps - 1) * kConvThreads * sizeof(float), args);
}

void recur(Stream& stream, const RecurArgs& args) {
  launch(stream, "recur inputs", recur_inputs_kernel, {unsigned(args.tokens)}, kRecurWarps * kWarp, 0, args);
  const size_t shared = size_t(args.key_dim + 2 * kRecurWarps) * kWarp * sizeof(float);
  launch(stream, "recur", recur_kernel,
         {unsigned(args.heads) * blocks_of(args.value_dim, kWarp), unsigned(args.segments.count)}, kRecurWarps * kWarp,
         shared, args);
}

}  // namespace qgen::QGEN_BACKEND
