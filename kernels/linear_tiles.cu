#include "kernels/linear_tiles.cuh"

#include "kernels/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

template <Codes kCodes, int kLane, bool kTiled, bool kHalf = false>
void launch_many(Stream& stream, const TileArgs& args) {
  const Dim grid{unsigned((args.w.rows + kBlockRows - 1) / kBlockRows),
                 unsigned((args.tokens + kBlockTokens - 1) / kBlockTokens)};
  launch(stream, "many tokens", multiply_many_kernel<kCodes, kLane, kTiled, kHalf>, grid, kTileThreads,
         size_t(kStages) * kStageBytes<kCodes>, args);
}

template <Codes kCodes>
void launch_many(Stream& stream, const TileArgs& args) {
  switch (grid_kind(args.w)) {
    case GridKind::kWide: return launch_many<kCodes, 16, true>(stream, args);
    case GridKind::kNarrow:
      if constexpr (kCodes == Codes::kI8) {
        if (args.w.half_scales) return launch_many<kCodes, 8, true, true>(stream, args);
      }
      return launch_many<kCodes, 8, true>(stream, args);
    default: return launch_many<kCodes, 16, false>(stream, args);
  }
}

}  // namespace

void multiply_many(Stream& stream, const TileArgs& args) {
  switch (args.w.kind) {
    case Codes::kI8: return launch_many<Codes::kI8>(stream, args);
    case Codes::kE4M3: return launch_many<Codes::kE4M3>(stream, args);
    case Codes::kE5M2: return launch_many<Codes::kE5M2>(stream, args);
    case Codes::kF16: return launch_many<Codes::kF16, 8, false>(stream, args);
    default: return launch_many<Codes::kBf16, 8, false>(stream, args);
  }
}

}  // namespace qgen::QGEN_BACKEND
