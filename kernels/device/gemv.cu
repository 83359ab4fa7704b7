#include "kernels/device/gemv.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

// Whether a block has room for the inputs as the kernel takes them.
template <typename Traits>
bool launch_gemv(Stream& stream, const GemvArgs& args) {
  static_assert(!Traits::kPairs ||
                Traits::kRingBytes + gemv_bytes<Traits>(kGemvTokens, Traits::kLeastSlab, 1) <= kMostSharedBytes);
  GemvKernelArgs gemv{args, {}, 0, 0, 0};
  const int tile_rows = Traits::tile_rows(args.gated);
  for (int i = 0; i < (args.gated ? 1 : args.parts); ++i) {
    gemv.first_tile[i] = gemv.tiles;
    gemv.tiles += (args.part[i].rows + tile_rows - 1) / tile_rows;
  }
  const GemvLaunch<Traits> shape(stream, args.tokens, args.part[0].cols, gemv.tiles);
  if (!shape.fits) return false;
  gemv.slab = shape.slab;
  gemv.tiles_at_once = shape.tiles_at_once;
  launch(stream, "gemv", gemv_kernel<Traits>, {unsigned(shape.blocks)}, Traits::kThreads,
         size_t(shape.bytes_alone(stream)), gemv, Start::kEarly, args.beside);
  return true;
}

}  // namespace

void gemv(Stream& stream, const GemvArgs& args) {
  with_grid(args.part[0], [&]<typename Grid>() {
    // The first puts the sums of four tiles together if they have room, the second as many as do; of both the inputs
    // are one matrix product.
    if (args.part[0].column_order == nullptr) {
      if (args.tokens <= 2 && launch_gemv<GemvTraits<Grid, 2>>(stream, args)) return;
      if constexpr (is_common<Grid>) {
        if (args.tokens <= 4 && launch_gemv<GemvTraits<Grid, 4>>(stream, args)) return;
      }
    }
    launch_gemv<GemvTraits<Grid, kGemvTokens>>(stream, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
