#include "kernels/device/gemv.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

// Columns of x that are in shared memory at once: as many rounds as stay below this, at least one.
constexpr int64_t kSlabBytes = 64 << 10;

template <typename Traits>
void launch_gemv(Stream& stream, const GemvArgs& args) {
  GemvKernelArgs gemv{args, {}, 0};
  const int block_rows = args.gated ? kMmaRows : Traits::kRowTiles * kMmaRows;
  int blocks = 0;
  for (int i = 0; i < (args.gated ? 1 : args.parts); ++i) {
    gemv.first_block[i] = blocks;
    blocks += (args.part[i].rows + block_rows - 1) / block_rows;
  }
  const int64_t columns = 2 * args.tokens;
  const int64_t rounds = kSlabBytes / (columns * Traits::kRound * 2),
                wanted = (args.part[0].cols + Traits::kRound - 1) / Traits::kRound;
  gemv.slab = int(Traits::kRound * (rounds < 1 ? 1 : rounds < wanted ? rounds : wanted));
  const int64_t floats =
      2 * kGemvWarps * kGemvTokens + 2 * kGemvTokens + kGemvWarps * Traits::kRowTiles * kMmaRows * kGemvTokens;
  const int64_t bytes = columns * (gemv.slab + kSlabPadding) * 2 + floats * 4;
  launch(stream, "gemv", gemv_kernel<Traits>, {unsigned(blocks)}, kGemvThreads, size_t(bytes), gemv);
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
