#include "kernels/device/experts_grouped.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

static_assert(kTileChoices == kBlockTokens);

void group_choices(Stream& stream, const GroupChoicesArgs& args) {
  launch(stream, "group choices", group_kernel, {1}, kGroupThreads, 2 * size_t(args.experts) * sizeof(uint32_t), args);
}

void multiply_grouped(Stream& stream, const GroupedArgs& args) {
  const int block_rows = args.product.gate != nullptr ? kBlockRows / 2 : kBlockRows;
  with_expert_grid(args.product.like, [&]<typename Grid>() {
    constexpr size_t kBytes = kGroupedBytes<Grid> + 2 * sizeof(Matrix);
    static_assert(kBytes <= kMostSharedBytes);
    launch(stream, "grouped experts", grouped_kernel<Grid>,
           {blocks_of(args.rows, block_rows), unsigned(args.groups.tiles)}, kTileThreads, kBytes, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
