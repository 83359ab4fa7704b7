#include "kernels/device/gemv.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

template <typename Traits>
void launch_gemv(Stream& stream, const GemvArgs& args) {
  GemvKernelArgs gemv{args, {}, 0};
  const int block_rows = args.gated ? kMmaRows : Traits::kRowTiles * kMmaRows;
  int blocks = 0;
  for (int i = 0; i < (args.gated ? 1 : args.parts); ++i) {
    gemv.first_block[i] = blocks;
    blocks += (args.part[i].rows + block_rows - 1) / block_rows;
  }
  gemv.slab = slab_of<Traits>(args.tokens, args.part[0].cols);
  const auto bytes = size_t(gemv_bytes<Traits>(args.tokens, gemv.slab));
  launch(stream, "gemv", gemv_kernel<Traits>, {unsigned(blocks)}, kGemvThreads, bytes, gemv);
}

}  // namespace

void gemv(Stream& stream, const GemvArgs& args) {
  // Blocks of one MMA tile where rows are few, so that all processors have some. 4096: 128 blocks of 32 rows.
  constexpr int kManyRows = 4096;
  int rows = 0;
  for (int i = 0; i < args.parts; ++i) rows += args.part[i].rows;
  with_grid(args.part[0], [&]<typename Grid>() {
    if (2 * args.tokens > kGemvTokens) {
      launch_gemv<GemvTraits<Grid, 2, true>>(stream, args);
    } else if (args.gated || rows > kManyRows) {
      launch_gemv<GemvTraits<Grid, 2, false>>(stream, args);
    } else {
      launch_gemv<GemvTraits<Grid, 1, false>>(stream, args);
    }
  });
}

}  // namespace qgen::QGEN_BACKEND
