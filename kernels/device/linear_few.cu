#include "kernels/device/linear_few.cuh"

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

// Columns of x that are in shared memory at once: as many rounds as stay below this, at least one.
constexpr int64_t kSlabBytes = 64 << 10;

template <Codes kCodes, int kLane, int kTiles, bool kTiled, bool kHalf, bool kPairs>
void launch_few(Stream& stream, const LinearArgs& args) {
  constexpr int kRound = FewShape<kCodes, kLane, kTiles>::kRound;
  FewArgs few{args, {}, 0};
  const bool pair = args.result == Result::kSiluMul;
  const int block_rows = pair ? kTileRows : kTiles * kTileRows;
  int blocks = 0;
  for (int i = 0; i < (pair ? 1 : args.parts); ++i) {
    few.first_block[i] = blocks;
    blocks += (args.part[i].rows + block_rows - 1) / block_rows;
  }
  const int64_t columns = 2 * args.tokens;
  const int64_t rounds = kSlabBytes / (columns * kRound * 2), wanted = (args.part[0].cols + kRound - 1) / kRound;
  few.slab = int(kRound * (rounds < 1 ? 1 : rounds < wanted ? rounds : wanted));
  const int64_t floats = 2 * kFewWarps * kFewTokens + 2 * kFewTokens + kFewWarps * kTiles * kTileRows * kFewTokens;
  const int64_t bytes = columns * (few.slab + kSlabPadding) * 2 + floats * 4;
  launch(stream, "few tokens", multiply_few_kernel<kCodes, kLane, kTiles, kTiled, kHalf, kPairs>, {unsigned(blocks)},
         kFewThreads, size_t(bytes), few);
}

template <Codes kCodes, int kLane, bool kTiled, bool kHalf>
void launch_few(Stream& stream, const LinearArgs& args) {
  // Blocks of one tile where rows are few, so that all processors have some. 4096: 128 blocks of 32 rows.
  constexpr int kManyRows = 4096;
  int rows = 0;
  for (int i = 0; i < args.parts; ++i) rows += args.part[i].rows;
  if (2 * args.tokens > kFewTokens) {
    launch_few<kCodes, kLane, 2, kTiled, kHalf, true>(stream, args);
  } else if (args.result == Result::kSiluMul || rows > kManyRows) {
    launch_few<kCodes, kLane, 2, kTiled, kHalf, false>(stream, args);
  } else {
    launch_few<kCodes, kLane, 1, kTiled, kHalf, false>(stream, args);
  }
}

}  // namespace

void multiply_few(Stream& stream, const LinearArgs& args) {
  with_tiles(args.part[0], [&]<Codes kCodes, int kLane, bool kTiled, bool kHalf>() {
    launch_few<kCodes, kLane, kTiled, kHalf>(stream, args);
  });
}

}  // namespace qgen::QGEN_BACKEND
