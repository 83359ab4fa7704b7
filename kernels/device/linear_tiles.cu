#include "kernels/device/linear_tiles.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {

void multiply_many(Stream& stream, const TileArgs& args) {
  const Dim grid{blocks_of(args.w.rows, kBlockRows), blocks_of(args.tokens, kBlockTokens)};
  with_tiles(args.w, [&]<Codes kCodes, int kLane, bool kTiled, bool kHalf>() {
    launch(stream, "many tokens", multiply_many_kernel<kCodes, kLane, kTiled, kHalf>, grid, kTileThreads,
           size_t(kStages) * kStageBytes<kCodes>, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
