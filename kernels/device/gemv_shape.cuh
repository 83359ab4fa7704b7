// The shape of a gemv kernel, the same on host and device: what it is made for, what a block has in shared memory, and
// how many blocks there are.
#pragma once

#include "kernels/device/launch.cuh"
#include "kernels/device/split.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kMmaRows = 16;
constexpr int kSlabPadding = 8;  // elements between the columns of x, against bank conflicts

// What a gemv kernel is made for, and the shape of a block's work. The parts of the inputs of up to four tokens are
// columns 2 t and 2 t + 1 of one product.
template <typename GridType, int kTokensOfBlock, int kWarpsOfBlock = kGemvWarps>
struct GemvTraits {
  using Grid = GridType;
  static constexpr int kWarps = kWarpsOfBlock, kThreads = kWarps * kWarp;
  static constexpr int kBlocks = kGemvWarps / kWarps;  // that a processor has room for
  // That registers are enough for in a product of experts. Half are left where the kernel needs no more: the second
  // product's blocks ask for their first weights beside the first's.
  static constexpr bool kFewRegisters =
      kTokensOfBlock <= 2 && (!GridType::kGrouped || (GridType::kCodes != Codes::kI8 && GridType::kLane == 16));
  static constexpr int kResident = kNextBlockHasRoom && kFewRegisters ? 2 * kBlocks : kBlocks;
  static constexpr Codes kCodes = Grid::kCodes;
  static constexpr int kLane = Grid::kLane;
  // Of more tokens the parts are two products. Only then may x be in shared memory slab by slab, and the layer have an
  // order of columns of its own.
  static constexpr int kMostTokens = kTokensOfBlock;
  static constexpr bool kPairs = kMostTokens > 4;
  static constexpr int kSums = kPairs ? 2 : 1;
  static constexpr bool kBf16 = kCodes == Codes::kBf16;
  static constexpr int kLaneBytes = kLane * kCodeBytes<kCodes>;  // 16 or 8
  using Slice = InputSlice<4 * kLane, kWarps>;
  static constexpr int kWindow = Slice::kWindow;  // columns that a warp takes at once
  // Stages of the ring of weights: windows that a warp has under way, 4 KB, or 2 where more tokens leave less room. The
  // loop over them is unrolled by as many, so that each has its place as a constant.
  static constexpr int kStages = (kPairs ? 32 : 64) / kLaneBytes;
  // Scales and minimums are under way as long, in registers. Those of two levels take too many: they come with the
  // window before.
  static constexpr bool kEarlyGroups = Grid::kGrouped && Grid::kForm != ScaleForm::kTwoLevels;
  // Columns are staged in multiples of this: one window of each warp.
  static constexpr int kLeastSlab = kWarps * kWindow;
  // Tokens whose inputs a lane has on their way together, and pieces of each: as many as registers allow.
  static constexpr int kStagedTokens = kMostTokens > 2 ? 4 : 1;
  static constexpr int kStagedPieces = kStagedTokens > 1 ? (Grid::kMinimums ? 1 : 2) : 6;
  // Tiles whose sums are put together behind one barrier of the block: of more than two tokens as many as there is room
  // for. A kernel of experts, held to half of the registers, has none to spare for a count that is known only at run
  // time.
  static constexpr int kMostTilesAtOnce = 4, kFewestTilesAtOnce = kMostTokens > 2 ? 1 : kMostTilesAtOnce;
  // Rows of the result that a tile makes: of a gate and what it gates each half.
  static constexpr int tile_rows(bool gated) { return gated ? kMmaRows / 2 : kMmaRows; }
  // A stage of the ring, a window of a warp; and all.
  static constexpr int kWarpStage = kWarp * 2 * kLaneBytes;
  static constexpr int kWarpRing = kStages * kWarpStage, kRingBytes = kWarps * kWarpRing;
};

struct GemvKernelArgs {
  GemvArgs linear;
  int first_tile[GemvArgs::kMostParts];  // of each part: what a block has at once are its tiles' rows
  int tiles;                             // of all parts
  int slab;                              // columns of x that are in shared memory at once, a multiple of kLeastSlab
  int tiles_at_once;                     // whose sums are put together behind one barrier
};

// Elements of a column of x that a warp has in shared memory.
template <typename Traits>
QGEN_DEVICE int gemv_x_stride(int slab) {
  return int(unsigned(slab) / Traits::kWarps) + kSlabPadding;
}

// Sums of a token that a block has in shared memory; padded, so that lanes which store those of rows of several tokens
// together find them in different banks.
template <typename Traits>
QGEN_DEVICE constexpr int gemv_sums_stride(int tiles_at_once) {
  return 2 * tiles_at_once * Traits::kWarps * kMmaRows + (Traits::kPairs ? 4 : 8);
}

// Columns of x that are in shared memory at once: as many as stay below so many bytes, at least kLeastSlab; if not all,
// and as many as one round of the ring takes, then whole rounds.
template <typename Traits>
constexpr int slab_of(int tokens, int64_t cols, int64_t bytes) {
  const int64_t fit = bytes / (2 * tokens * Traits::kLeastSlab * 2),
                wanted = (cols + Traits::kLeastSlab - 1) / Traits::kLeastSlab;
  if (fit >= wanted) return int(Traits::kLeastSlab * wanted);
  return int(Traits::kLeastSlab * (fit < 1 ? 1 : fit < Traits::kStages ? fit : fit - fit % Traits::kStages));
}
// Bytes of shared memory that a block takes beside its ring.
template <typename Traits>
QGEN_DEVICE constexpr int64_t gemv_bytes(int tokens, int slab, int tiles_at_once) {
  const int64_t floats = int64_t{tokens} * (Traits::kWarps * 3 + gemv_sums_stride<Traits>(tiles_at_once) +
                                            Traits::kMostTilesAtOnce * kMmaRows);
  return round_up(2 * tokens * int64_t{slab + Traits::kWarps * kSlabPadding} * 2 + floats * 4, 16);
}

// The blocks of a launch, as many as the processors have room for, and what each holds at once: x, and sums of as many
// tiles as there is room for beside it; where x has no room, sums of all of its tiles if it can, and as much of x as
// there is room for beside them.
template <typename Traits>
struct GemvLaunch {
  unsigned blocks = 0;
  int slab = 0, tiles_at_once = 0;
  int64_t bytes = 0;
  bool fits = false;

  // `extra` bytes of a block for its caller.
  GemvLaunch(const Stream& stream, int tokens, int64_t cols, int tiles, int64_t extra = 0) {
    constexpr int64_t kKept = 1 << 10;  // of each block, by the driver
    for (int count = Traits::kBlocks; count > 0; --count) {
      const int most = count * stream.processors;
      blocks = unsigned(most < tiles ? most : tiles);
      const int64_t share = stream.shared_of_processor / count - kKept,
                    room = share < stream.shared_of_block ? share : stream.shared_of_block;
      const int64_t beside = extra + Traits::kRingBytes;
      // fits = with the sums of so many tiles, and all of x or at least so many columns
      const auto try_with = [&](int at_once, int64_t least) {
        tiles_at_once = at_once;
        slab = slab_of<Traits>(tokens, cols, room - beside - gemv_bytes<Traits>(tokens, 0, at_once));
        bytes = beside + gemv_bytes<Traits>(tokens, slab, at_once);
        fits = bytes <= room && slab >= (least < cols ? least : cols);
      };
      for (int t = Traits::kMostTilesAtOnce; !fits && t >= Traits::kFewestTilesAtOnce; t /= 2) try_with(t, cols);
      if (Traits::kPairs) {
        for (int t = Traits::kMostTilesAtOnce; !fits && t > 0; t /= 2) {
          if (t > 1 && int(t / 2 * blocks) >= tiles) continue;  // half as many are all
          try_with(t, t > 1 ? Traits::kStages * Traits::kLeastSlab : 0);
        }
      }
      if (fits) return;
    }
  }

  // Shared memory of a block such that a processor, which keeps 1 KB of each for itself, has room for kBlocks of them,
  // of this launch and of the next like it, and no more. Where an H200 had room for twice as many, so that the next
  // product could ask for its first weights early, half of the blocks of gate and up of 8B had ended after 26 us and
  // the last after 38, as if some processors had got two of them and others none. An older kernel, without that room,
  // took 27.
  int64_t bytes_alone(const Stream& stream) const {
    const int64_t share = stream.shared_of_processor / (Traits::kBlocks + 1);
    return bytes < share ? share : bytes;
  }
};

}  // namespace qgen::QGEN_BACKEND
