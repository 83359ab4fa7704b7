#include "kernels/device/gemm.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void gemm(Stream& stream, const GemmArgs& args) {
  const Dim blocks{blocks_of(args.w.rows, kBlockRows), blocks_of(args.tokens, kBlockTokens)};
  with_grid(args.w, [&]<typename Grid>() {
    launch(stream, "gemm", gemm_kernel<Grid>, blocks, kTileThreads, size_t(kStages) * kStageBytes<Grid::kCodes>, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
