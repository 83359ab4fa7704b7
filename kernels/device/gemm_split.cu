#include "kernels/device/gemm_split.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

// Divides `tiles`, each of so many steps for a slice, among the processors: whole rounds of tiles first, and what is
// left by slices among several blocks each, where that is faster than one more round. Returns the number of blocks.
int share_tiles(int tiles, int slice_steps, int processors, SplitGemmKernelArgs& args) {
  constexpr int kBorders = 6;  // steps that a block's beginning and end take: estimated, as in bench/gpu_time_data.py
  const int rest = tiles % processors;
  const auto time_of = [&](int shift) {
    return ((rest << shift) + processors - 1) / processors * ((slice_steps * kInputSlices >> shift) + kBorders);
  };
  int shift = 0;
  for (int more = 1; 1 << more <= kInputSlices && rest <= SplitGemmArgs::kMostSharedTiles; ++more) {
    if (time_of(more) < time_of(shift)) shift = more;
  }
  args.sharing_shift = shift;
  args.whole_tiles = shift > 0 ? tiles - rest : tiles;
  return args.whole_tiles + ((tiles - args.whole_tiles) << shift);
}

// Tall tiles for codes that they have registers for, those of most published models.
template <typename Grid>
using SplitTile =
    std::conditional_t<kCodeBytes<Grid::kCodes> == 1 && is_common<Grid>, TallTile<Grid>, SquareTile<Grid>>;

}  // namespace

void split_gemm(Stream& stream, const SplitGemmArgs& args) {
  with_grid(args.products.part[0], [&]<typename Grid>() {
    using Tile = SplitTile<Grid>;
    const GemvArgs& products = args.products;
    SplitGemmKernelArgs kernel{};
    kernel.gemm = args;
    static_assert(SplitGemmArgs::kMostTokens <= 2 * SplitGemmBlock<Tile>::kTokens);
    kernel.token_shift = products.tokens > SplitGemmBlock<Tile>::kTokens ? 1 : 0;
    int row_tiles = 0;
    for (int i = 0; i < (products.gated ? 1 : products.parts); ++i) {
      kernel.first_block[i] = row_tiles;
      row_tiles += int(blocks_of(products.part[i].rows, products.gated ? Tile::kBlockRows / 2 : Tile::kBlockRows));
    }
    const int slice_steps = int(blocks_of(products.part[0].cols, kStepColumns * kInputSlices));
    const int blocks = share_tiles(row_tiles << kernel.token_shift, slice_steps, stream.processors, kernel);
    launch(stream, "split gemm", split_gemm_kernel<Tile>, {unsigned(blocks)}, kTileThreads, Tile::kBytes, kernel);
  });
}

}  // namespace qgen::QGEN_BACKEND
