#include "kernels/device/gemv.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

template <typename Traits>
void launch_gemv(Stream& stream, const GemvArgs& args) {
  static_assert(!Traits::kPairs ||
                Traits::kRingBytes + gemv_bytes<Traits>(kGemvTokens, Traits::kLeastSlab) <= kMostSharedBytes);
  GemvKernelArgs gemv{args, {}, 0, 0};
  const int tile_rows = Traits::tile_rows(args.gated);
  for (int i = 0; i < (args.gated ? 1 : args.parts); ++i) {
    gemv.first_tile[i] = gemv.tiles;
    gemv.tiles += (args.part[i].rows + tile_rows - 1) / tile_rows;
  }
  const GemvLaunch<Traits> shape(stream, args.tokens, args.part[0].cols, gemv.tiles);
  gemv.slab = shape.slab;
  launch(stream, "gemv", gemv_kernel<Traits>, {unsigned(shape.blocks)}, Traits::kThreads, size_t(shape.bytes), gemv);
}

}  // namespace

void gemv(Stream& stream, const GemvArgs& args) {
  with_grid(args.part[0], [&]<typename Grid>() {
    using Few = GemvTraits<Grid, false>;
    const Matrix& like = args.part[0];
    if (args.tokens <= kFewTokens && like.column_order == nullptr &&
        GemvLaunch<Few>(stream, args.tokens, like.cols, 1).fits) {
      launch_gemv<Few>(stream, args);
    } else {
      launch_gemv<GemvTraits<Grid, true>>(stream, args);
    }
  });
}

}  // namespace qgen::QGEN_BACKEND
