#include "kernels/device/gemm_split.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void split_gemm(Stream& stream, const SplitGemmArgs& args) {
  const GemvArgs& products = args.products;
  SplitGemmKernelArgs kernel{args, {}, 1};
  int blocks = 0;
  for (int i = 0; i < (products.gated ? 1 : products.parts); ++i) {
    kernel.first_block[i] = blocks;
    blocks += int(blocks_of(products.part[i].rows, products.gated ? kBlockRows / 2 : kBlockRows));
  }
  // Few rows: every sum of a row in a block of its own, so that all processors have some.
  if (blocks <= SplitGemmArgs::kMostSharedBlocks) kernel.blocks_of_rows = kInputSlices;
  const Dim grid{unsigned(blocks), unsigned(kernel.blocks_of_rows)};
  with_grid(products.part[0], [&]<typename Grid>() {
    launch(stream, "split gemm", split_gemm_kernel<Grid>, grid, kTileThreads,
           size_t(kStages) * kStageBytes<Grid::kCodes>, kernel);
  });
}

}  // namespace qgen::QGEN_BACKEND
