#include "kernels/device/recurrence.cuh"

#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void convolve(Stream& stream, const ConvArgs& args) {
  launch(stream, "convolve", args.taps == 4 ? convolve_kernel<4> : convolve_kernel<0>,
         {blocks_of(args.cols, kWarp), unsigned(args.segments.count)}, kConvThreads,
         size_t(2 * (args.taps - 1 + kConvTile)) * kWarp * sizeof(float), args);
}

namespace {

template <int kFours>
void recur_in_chunks(Stream& stream, const RecurArgs& args) {
  const Dim grid = {unsigned(args.heads) * blocks_of(args.value_dim, kChunkColumns), unsigned(args.segments.count)};
  launch(stream, "recur chunks", args.delta ? recur_chunks_kernel<true, kFours> : recur_chunks_kernel<false, kFours>,
         grid, kChunkWarps * kWarp, size_t(RecurChunk<kFours>::kSize) * sizeof(float), args);
}

}  // namespace

void recur(Stream& stream, const RecurArgs& args) {
  launch(stream, "recur inputs", recur_inputs_kernel, {unsigned(args.tokens)}, kRecurWarps * kWarp, 0, args);
  if (args.in_chunks && args.key_dim % 4 == 0) {
    launch(stream, "recur products", recur_products_kernel,
           {blocks_of(args.tokens, kRecurChunk), unsigned(args.key_heads)}, kProductsWarps * kWarp,
           size_t(3 * kRecurChunk - 1) * size_t(args.key_dim + 4) * sizeof(float), args);
    const unsigned fours = blocks_of(args.key_dim, 4 * kChunkWarps);
    static_assert(kMaxKeyDim <= 8 * 4 * kChunkWarps);
    return fours <= 1   ? recur_in_chunks<1>(stream, args)
           : fours <= 2 ? recur_in_chunks<2>(stream, args)
           : fours <= 4 ? recur_in_chunks<4>(stream, args)
                        : recur_in_chunks<8>(stream, args);
  }
  const Dim grid = {unsigned(args.heads) * blocks_of(args.value_dim, kWarp), unsigned(args.segments.count)};
  const size_t shared = size_t(args.key_dim + 2 * kRecurWarps) * kWarp * sizeof(float);
  launch(stream, "recur", recur_kernel, grid, kRecurWarps * kWarp, shared, args);
}

}  // namespace qgen::QGEN_BACKEND
