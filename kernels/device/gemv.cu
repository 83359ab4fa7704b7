#include "kernels/device/gemv.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

template <typename Traits>
void launch_gemv(Stream& stream, const GemvArgs& args) {
  GemvKernelArgs gemv{args, {}, 0, 0};
  const int tile_rows = Traits::tile_rows(args.gated);
  for (int i = 0; i < (args.gated ? 1 : args.parts); ++i) {
    gemv.first_tile[i] = gemv.tiles;
    gemv.tiles += (args.part[i].rows + tile_rows - 1) / tile_rows;
  }
  const GemvLaunch<Traits> shape(stream, args.tokens, args.part[0].cols, gemv.tiles);
  gemv.slab = shape.slab;
  launch(stream, "gemv", gemv_kernel<Traits>, {unsigned(shape.blocks)}, kGemvThreads, size_t(shape.bytes), gemv);
}

}  // namespace

void gemv(Stream& stream, const GemvArgs& args) {
  constexpr int kFewTokens = 2;  // beside whose inputs a longer ring has room
  // Tiles of one MMA tile of rows where rows are few, so that all processors have as much to do.
  const int many_rows = 8 * kMmaRows * stream.processors;
  int rows = 0;
  for (int i = 0; i < args.parts; ++i) rows += args.part[i].rows;
  with_grid(args.part[0], [&]<typename Grid>() {
    if (args.tokens > kFewTokens) {
      launch_gemv<GemvTraits<Grid, 2, true>>(stream, args);
    } else if (args.gated || rows > many_rows) {
      launch_gemv<GemvTraits<Grid, 2, false>>(stream, args);
    } else {
      launch_gemv<GemvTraits<Grid, 1, false>>(stream, args);
    }
  });
}

}  // namespace qgen::QGEN_BACKEND
