#include "kernels/device/experts_grouped.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void group_choices(Stream& stream, const GroupChoicesArgs& args) {
  launch(stream, "group choices", group_kernel, {1}, kGroupThreads, 2 * size_t(args.experts) * sizeof(uint32_t), args);
}

void multiply_grouped(Stream& stream, const GroupedArgs& args) {
  with_expert_grid(args.product.like, [&]<typename Grid>() {
    using Tile = std::conditional_t<kCodeBytes<Grid::kCodes> == 1, TallTile<Grid>, SquareTile<Grid>>;
    static_assert(Tile::kBlockTokens == 1 << tile_shift(Grid::kCodes));
    constexpr size_t kBytes = Tile::kBytes + 2 * sizeof(Matrix);
    static_assert(kBytes <= kMostSharedBytes);
    const int block_rows = args.product.gate != nullptr ? Tile::kBlockRows / 2 : Tile::kBlockRows;
    launch(stream, "grouped experts", grouped_kernel<Tile>,
           {blocks_of(args.rows, block_rows), unsigned(args.groups.tiles)}, kTileThreads, kBytes, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
