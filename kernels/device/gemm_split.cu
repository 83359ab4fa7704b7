#include "kernels/device/gemm_split.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

// Among how many blocks the slices of a tile's rows, each of so many steps, are best divided, so that all processors
// have as much to do.
int blocks_of_rows(int tiles, int slice_steps, int processors) {
  constexpr int kBorders = 6;  // steps that a block's beginning and its end take: estimated
  const auto time_of = [&](int blocks) {
    const int rounds = (tiles * blocks + processors - 1) / processors;
    return rounds * (slice_steps * kInputSlices / blocks + kBorders);
  };
  int best = 1;
  for (int blocks = 2; blocks <= kInputSlices; blocks *= 2) {
    if (time_of(blocks) < time_of(best)) best = blocks;
  }
  return best;
}

}  // namespace

void split_gemm(Stream& stream, const SplitGemmArgs& args) {
  const GemvArgs& products = args.products;
  SplitGemmKernelArgs kernel{args, {}, 1};
  int blocks = 0;
  for (int i = 0; i < (products.gated ? 1 : products.parts); ++i) {
    kernel.first_block[i] = blocks;
    blocks += int(blocks_of(products.part[i].rows, products.gated ? kBlockRows / 2 : kBlockRows));
  }
  if (blocks <= SplitGemmArgs::kMostSharedBlocks)
    kernel.blocks_of_rows =
        blocks_of_rows(blocks, int(blocks_of(products.part[0].cols, kStepColumns * kInputSlices)), stream.processors);
  const Dim grid{unsigned(blocks), unsigned(kernel.blocks_of_rows)};
  with_grid(products.part[0], [&]<typename Grid>() {
    launch(stream, "split gemm", split_gemm_kernel<Grid>, grid, kTileThreads,
           size_t(kStages) * kStageBytes<Grid::kCodes>, kernel);
  });
}

}  // namespace qgen::QGEN_BACKEND
