#include "kernels/device/gemm.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void gemm(Stream& stream, const GemmArgs& args) {
  with_grid(args.w, [&]<typename Grid>() {
    using Tile = SquareTile<Grid>;
    const Dim blocks{blocks_of(args.w.rows, Tile::kBlockRows), blocks_of(args.tokens, Tile::kBlockTokens)};
    launch(stream, "gemm", gemm_kernel<Tile>, blocks, kTileThreads, Tile::kBytes, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
