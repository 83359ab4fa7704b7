// Many tokens and their experts: choices are brought into the order of their experts, and those of an expert go through
// the tiles of gemm.cuh together.
#pragma once

#include "kernels/device/experts.cuh"
#include "kernels/device/gemm.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kGroupThreads = 1024;

// One block. shared: how many choices each expert has, how many of them have a place.
QGEN_KERNEL(kGroupThreads, 1) group_kernel(const GroupChoicesArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  uint32_t* const count = shared_memory<uint32_t>();
  uint32_t* const place = count + args.experts;
  const auto for_choices = [&](const auto& use) {
    constexpr int kAtOnce = 4;  // loads before the first of them is used
    const int choices = args.tokens * args.chosen;
    QGEN_UNROLL_BY(1)
    for (int first = thread_index(); first < choices; first += kAtOnce * kGroupThreads) {
      int expert[kAtOnce];
      QGEN_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        const int number = first + u * kGroupThreads, token = number / args.chosen, i = number - token * args.chosen;
        expert[u] = number < choices ? expert_of(args.route, args.route_stride, args.chosen, token, i) : -1;
      }
      QGEN_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        if (expert[u] >= 0) use(first + u * kGroupThreads, expert[u]);
      }
    }
  };
  for (int e = thread_index(); e < args.experts; e += kGroupThreads) count[e] = 0;
  barrier();
  for_choices([&](int, int expert) { add_to(count + expert, 1); });
  barrier();
  const int of_tile = 1 << args.tile_shift;
  for (int e = thread_index(); e < args.experts; e += kGroupThreads) {
    int first = 0, tile = 0;
    for (int before = 0; before < e; ++before) {
      first += int(count[before]);
      tile += (int(count[before]) + of_tile - 1) >> args.tile_shift;
    }
    place[e] = uint32_t(first);
    for (int left = int(count[e]); left > 0; left -= of_tile, first += of_tile)
      args.tile[tile++] = {e, first, left < of_tile ? left : of_tile};
    if (e == args.experts - 1) {
      for (; tile < args.tiles; ++tile) args.tile[tile] = {0, 0, 0};
    }
  }
  barrier();
  for_choices([&](int number, int expert) { args.choice[add_to(place + expert, 1)] = number; });
}

// As GemmBlock: tile y of the grid, whose choices lie where tokens do, and rows x.
template <typename Tile>
class GroupedBlock {
 public:
  using Warp = GemmWarp<Tile>;
  static constexpr bool kMinimumsFirst = false;
  static constexpr int kTilesAtOnce = Warp::kAtOnce;
  static constexpr bool kOverlaps = Warp::kOverlaps;

  // `w`: the expert's matrices, in shared memory.
  QGEN_DEVICE GroupedBlock(const GroupedArgs& args, const ExpertTile& tile, const Matrix* w)
      : args_(args), tile_(tile), w_(w), gated_(args.product.gate != nullptr) {
    first_row_ = args.first_row + int(block_index().x) * (gated_ ? Tile::kBlockRows / 2 : Tile::kBlockRows);
    codes_.begin(*this);
    constexpr int kTurn = Tile::kTokenWarps * 8;  // choices that the warps which share rows have a tile of each
    const int most_tiles = (tile.count + kTurn - 1) / kTurn;
    if (warp_has_rows<Tile>(*this))
      tiles_ = most_tiles - (Tile::token_warp() * 8 >= tile.count - (most_tiles - 1) * kTurn);
    const int read = int(round_up(most_tiles, kTilesAtOnce)) * 8;  // rows of x of each of them
    inputs_.begin([&](int row) {
      const int slot = slot_of(row);
      return slot < tile.count          ? x_row(tile.first + slot) * args.x.stride
             : row % kWarpTokens < read ? TileInputs<Tile>::kZeros
                                        : TileInputs<Tile>::kUnread;
    });
  }

  QGEN_DEVICE int steps() const { return (w_->cols + kStepColumns - 1) / kStepColumns; }
  QGEN_DEVICE const Matrix& matrix(int tile) const { return w_[gated_ ? tile % 2 : 0]; }
  QGEN_DEVICE const Matrix& like() const { return args_.product.like; }
  QGEN_DEVICE int row_of(int row) const { return first_row_ + (gated_ ? gated_row(row) : row); }
  QGEN_DEVICE int column_of(int step, int window) const { return step * kStepColumns + window * Warp::kWindow; }
  // Of this warp's, those that choices are in.
  QGEN_DEVICE int tiles() const { return tiles_; }
  QGEN_DEVICE void copy_codes(int step, uint8_t* codes) const {
    codes_.copy(step * Warp::kRowBytes + codes_.byte(), codes);
  }
  QGEN_DEVICE void copy_inputs(int step, uint16_t* x) const {
    inputs_.copy(args_.x.values, step * kStepColumns + inputs_.column(), true, x);
  }
  QGEN_DEVICE void end_step(int, const Warp&) const {}

  QGEN_DEVICE void write_results(const Warp& warp) const {
    float* const sums = shared_memory<float>();
    share_sums<Tile>(warp.sum, sums,
                     [](int n, int column) { return slot_of(Tile::token_warp() * kWarpTokens + n * 8 + column); });
    const ExpertsProduct& product = args_.product;
    Place* const places = reinterpret_cast<Place*>(sums + Tile::kBlockTokens * Tile::kSumsRow);
    if (const int slot = thread_index(); slot < tile_.count) {
      const int place = tile_.first + slot;
      const Choice choice = choice_of(product, args_.groups.choice[place]);
      places[slot].y = args_.y_in_places ? product.y + place * product.y_choice_stride : result_of(product, choice);
      places[slot].factor = args_.x.factor[x_row(place)] * choice.factor;
    }
    barrier();
    const int rows = gated_ ? Tile::kBlockRows / 2 : Tile::kBlockRows, end = args_.first_row + args_.rows;
    QGEN_UNROLL_BY(1)
    for (int r = lane_index(); r < rows; r += kWarp) {
      const int row = first_row_ + r, at = gated_ ? gate_place(r) : r;
      if (row >= end) break;
      const auto scale_of = [&](const Matrix& w) { return Tile::kGrouped ? 1 : scale_at(w, first_group(w, row)); };
      const float scale = scale_of(w_[0]), up_scale = gated_ ? scale_of(w_[1]) : 0;
      QGEN_UNROLL_BY(1)
      for (int slot = warp_index(); slot < tile_.count; slot += kTileWarps) {
        const float* const of_slot = sums + slot * Tile::kSumsRow + at;
        const auto [y, factor] = places[slot];
        const float first = of_slot[0] * scale * factor;
        y[row - args_.first_row] =
            gated_ ? expert_result(product, tile_.expert, row, first, of_slot[kTurnRows] * up_scale * factor)
                   : expert_result(product, tile_.expert, row, 0, first);
      }
    }
  }

 private:
  // Where a choice's results go, and what they are multiplied by.
  struct Place {
    float* y;
    float factor;
  };
  static_assert(Tile::kBlockTokens * (Tile::kSumsRow * 4 + sizeof(Place)) <= Tile::kBytes);
  // Which of the tile's choices a row of x has: by turns eight for each of the warps that share rows of W, so that they
  // have as much to do.
  QGEN_DEVICE static int slot_of(int row) {
    return (row % kWarpTokens / 8 * Tile::kTokenWarps + row / kWarpTokens) * 8 + row % 8;
  }

  QGEN_DEVICE int x_row(int place) const {
    if (args_.x_row == GroupedArgs::Of::kPlace) return place;
    const int number = args_.groups.choice[place];
    return args_.x_row == GroupedArgs::Of::kChoice ? number : number / args_.product.chosen;
  }

  const GroupedArgs& args_;
  const ExpertTile tile_;
  const Matrix* const w_;
  const bool gated_;
  int first_row_ = 0;
  int tiles_ = 0;  // of this warp
  TileCodes<Tile> codes_;
  TileInputs<Tile> inputs_;
};

template <typename Tile>
QGEN_KERNEL(kTileThreads, 1)
grouped_kernel(const GroupedArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const ExpertTile tile = args.groups.tile[block_index().y];
  if (tile.count == 0) return;
  Matrix* const w = reinterpret_cast<Matrix*>(shared_memory<uint8_t>() + Tile::kBytes);
  copy_matrices(args.product, tile.expert, w);
  barrier();
  GroupedBlock<Tile> block(args, tile, w);
  GemmWarp<Tile> warp;
  multiply_steps(block, warp, [] {});
  block.write_results(warp);
}

}  // namespace qgen::QGEN_BACKEND
