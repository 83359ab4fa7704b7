#include "kernels/device/recurrence.cuh"

#include "kernels/device/launch.cuh"
#include "kernels/device/recurrence_chunks.cuh"

namespace qgen::QGEN_BACKEND {

namespace {

template <int kWarps>
void convolve_by(Stream& stream, const ConvArgs& args) {
  launch(stream, "convolve", args.taps == 4 ? convolve_kernel<4, kWarps> : convolve_kernel<0, kWarps>,
         {blocks_of(args.cols, kWarp), unsigned(args.segments.count)}, kWarps * kWarp,
         size_t(2 * (args.taps - 1 + conv_tile(kWarps))) * kWarp * sizeof(float), args);
}

// The grid: heads, segments, columns of a head.
template <int kRows, int kColumnWarps>
void recur_by_tokens(Stream& stream, const RecurArgs& args) {
  using Shared = RecurShared<kRows, kColumnWarps>;
  const Dim grid = {unsigned(args.heads), unsigned(args.segments.count), blocks_of(args.value_dim, Shared::kColumns)};
  launch(stream, "recur",
         args.delta ? recur_kernel<true, kRows, kColumnWarps> : recur_kernel<false, kRows, kColumnWarps>, grid,
         kRecurWarps * kWarp, sizeof(Shared), args);
}

// Keys of a warp: of all, the next power of two.
template <int kColumnWarps>
void recur_by_tokens(Stream& stream, const RecurArgs& args) {
  constexpr int kKeyWarps = kRecurWarps / kColumnWarps;
  static_assert(kMaxKeyDim <= 256);
  return args.key_dim <= 64    ? recur_by_tokens<64 / kKeyWarps, kColumnWarps>(stream, args)
         : args.key_dim <= 128 ? recur_by_tokens<128 / kKeyWarps, kColumnWarps>(stream, args)
                               : recur_by_tokens<256 / kKeyWarps, kColumnWarps>(stream, args);
}

template <int kKeys, int kColumns, int kStages>
void recur_in_chunks(Stream& stream, const RecurArgs& args) {
  using Shared = RecurChunks<kKeys, kColumns, kStages>;
  launch(stream, "recur chunks",
         args.delta ? recur_chunks_kernel<true, kKeys, kColumns, kStages>
                    : recur_chunks_kernel<false, kKeys, kColumns, kStages>,
         {unsigned(args.heads) * blocks_of(args.value_dim, kColumns)}, kChunkWarps * kWarp,
         Shared::kSize * sizeof(float), args);
}

}  // namespace

void convolve(Stream& stream, const ConvArgs& args) {
  // Of segments of a few tokens only one of several warps would have work.
  if (args.tokens <= args.segments.count * conv_tile(1)) return convolve_by<1>(stream, args);
  convolve_by<8>(stream, args);
}

void recur(Stream& stream, const RecurArgs& args) {
  if (!args.in_chunks) {
    // All columns of a head where they are few enough, as its norm wants them.
    static_assert(kMostGatedDim == 4 * kWarp);
    return args.value_dim > 2 * kWarp ? recur_by_tokens<4>(stream, args) : recur_by_tokens<2>(stream, args);
  }
  static_assert(RecurPrepare::size(kMaxKeyDim) * sizeof(float) <= kMostSharedBytes);
  launch(stream, "recur prepare", recur_prepare_kernel, {unsigned(recur_chunks(args.tokens)), unsigned(args.key_heads)},
         kPrepareWarps * kWarp, size_t(RecurPrepare::size(int(round_up(args.key_dim, kStep)))) * sizeof(float), args);
  // Keys of 256 leave shared memory for the inputs of one chunk and half of the columns.
  static_assert(kMaxKeyDim == 256);
  return args.key_dim <= 64    ? recur_in_chunks<64, 32, 2>(stream, args)
         : args.key_dim <= 128 ? recur_in_chunks<128, 32, 2>(stream, args)
                               : recur_in_chunks<256, 16, 1>(stream, args);
}

}  // namespace qgen::QGEN_BACKEND
