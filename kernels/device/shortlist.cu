#include "kernels/device/shortlist.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
void copy_head(Stream& stream, const HeadCopyArgs& args) {
  with_16_bit_grid(args.head, [&]<typename Grid>() {
    launch(stream, "copy head", copy_head_kernel<Grid::kCodes>, {blocks_of(args.head.rows, kCopyWarps)},
           kCopyWarps * kWarp, 0, args, Start::kAfter);
  });
}

void bound_scores(Stream& stream, const BoundScoresArgs& args) {
  const size_t bytes =
      (kBoundFloats + 1) * sizeof(float) + size_t(args.padded_rows / kBoundWarpRows) * sizeof(uint32_t);
  launch(stream, "bound scores", bound_scores_kernel,
         {blocks_of(args.padded_rows, kBoundBlockRows), unsigned(args.tokens)}, kBoundThreads, bytes, args);
}

void multiply_listed(Stream& stream, const ListedArgs& args) {
  with_16_bit_grid(args.product.part[0], [&]<typename Grid>() {
    using Traits = ListedTraits<Grid>;
    static_assert(sizeof(ListedShared) + Traits::kRingBytes +
                      gemv_bytes<Traits>(1, int(kMostListedCols), Traits::kMostTilesAtOnce) <=
                  kMostSharedBytes);
    const Matrix& head = args.product.part[0];
    // A block to each processor, where it can look at so many rows.
    const int64_t share = round_up(blocks_of(head.rows, stream.processors), kMmaRows);
    const int block_rows = int(share < kMostBlockRows ? share : kMostBlockRows);
    const GemvLaunch<Traits> shape(stream, 1, head.cols, int(blocks_of(head.rows, kMmaRows)), sizeof(ListedShared));
    ListedKernelArgs listed{args, {args.product, {}, 0, shape.slab, shape.tiles_at_once}, block_rows};
    listed.gemv.linear.tokens = 1;  // of a block
    launch(stream, "multiply listed", multiply_listed_kernel<Traits>,
           {blocks_of(head.rows, block_rows), unsigned(args.product.tokens)}, Traits::kThreads, size_t(shape.bytes),
           listed);
  });
}

}  // namespace qgen::QGEN_BACKEND
