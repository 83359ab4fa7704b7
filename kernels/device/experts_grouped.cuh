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
    const int choices = args.tokens * args.chosen;
    for (int number = thread_index(); number < choices; number += kGroupThreads) {
      const int token = number / args.chosen, i = number - token * args.chosen;
      use(number, expert_of(args.route, args.route_stride, args.chosen, token, i));
    }
  };
  for (int e = thread_index(); e < args.experts; e += kGroupThreads) count[e] = 0;
  barrier();
  for_choices([&](int, int expert) { add_to(count + expert, 1); });
  barrier();
  const auto tiles_of = [&](int expert) { return int(count[expert] + kTileChoices - 1) / kTileChoices; };
  for (int e = thread_index(); e < args.experts; e += kGroupThreads) {
    int first = 0, tile = 0;
    for (int before = 0; before < e; ++before) {
      first += int(count[before]);
      tile += tiles_of(before);
    }
    place[e] = uint32_t(first);
    for (int left = int(count[e]); left > 0; left -= kTileChoices, first += kTileChoices)
      args.tile[tile++] = {e, first, left < kTileChoices ? left : kTileChoices};
    if (e == args.experts - 1) {
      for (; tile < args.tiles; ++tile) args.tile[tile] = {0, 0, 0};
    }
  }
  barrier();
  for_choices([&](int number, int expert) { args.choice[add_to(place + expert, 1)] = number; });
}

// As GemmBlock: tile y of the grid, whose choices lie where tokens do, and rows x.
template <typename Grid>
class GroupedBlock {
 public:
  using Warp = GemmWarp<Grid>;
  static constexpr bool kMinimumsFirst = false;

  // `w`: the expert's matrices, in shared memory.
  QGEN_DEVICE GroupedBlock(const GroupedArgs& args, const ExpertTile& tile, const Matrix* w)
      : args_(args), tile_(tile), w_(w), gated_(args.product.gate != nullptr) {
    first_row_ = args.first_row + int(block_index().x) * (gated_ ? kBlockRows / 2 : kBlockRows);
    QGEN_UNROLL
    for (int i = 0; i < kCopiedRows; ++i) {
      const int slot = thread_index() / kRowPieces + i * kRowsAtOnce;
      if (slot >= tile.count) continue;
      x_row_[i] = x_row(tile.first + slot);
    }
  }

  QGEN_DEVICE int steps() const { return (w_->cols + kStepColumns - 1) / kStepColumns; }
  // Of gated products, tiles of 16 rows of the gate and of what it gates by turns.
  QGEN_DEVICE const Matrix& matrix(int tile) const { return w_[gated_ ? tile % 2 : 0]; }
  QGEN_DEVICE int row_of(int row) const { return first_row_ + (gated_ ? row / 32 * 16 + row % 16 : row); }
  QGEN_DEVICE int column_of(int step, int window) const { return step * kStepColumns + window * Warp::kWindow; }
  // Of this warp's, those that choices are in.
  QGEN_DEVICE int tiles() const {
    const int left = (tile_.count - warp_index() % 2 * kWarpTokens + 7) / 8;
    return left < 0 ? 0 : left < Warp::kTokenTiles ? left : Warp::kTokenTiles;
  }
  QGEN_DEVICE void copy_step(int step, uint8_t* codes, uint16_t* x) const {
    constexpr int kPieces = Warp::kRowBytes / 16;
    for (int i = thread_index(); i < kBlockRows * kPieces; i += kTileThreads) {
      const int row = i / kPieces, piece = i % kPieces, from = row_of(row);
      const Matrix& w = matrix(row / 16);
      const int64_t at = int64_t(step) * Warp::kRowBytes + piece * 16;
      copy_async16(codes + row * Warp::kRowBytes + piece * 16, w.codes + from * w.row_bytes + at,
                   from < w.rows && at < w.row_bytes);
    }
    QGEN_UNROLL
    for (int i = 0; i < kCopiedRows; ++i) {
      const int slot = thread_index() / kRowPieces + i * kRowsAtOnce, piece = thread_index() % kRowPieces;
      if (slot / 8 * 8 >= tile_.count) continue;  // no warp looks at it
      const bool there = slot < tile_.count;
      const int64_t at = (there ? x_row_[i] : 0) * args_.x.stride + int64_t(step) * kStepColumns + piece * 8;
      copy_async16(x + x_place<Grid::kLane>(slot, piece), args_.x.values + at, there);
    }
  }
  QGEN_DEVICE void end_step(int, const Warp&) const {}

  QGEN_DEVICE void write_results(const Warp& warp) const {
    const ExpertsProduct& product = args_.product;
    const int g = lane_index() / 4, q = lane_index() % 4;
    QGEN_UNROLL
    for (int n = 0; n < Warp::kTokenTiles; ++n) {
      QGEN_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int slot = warp_index() % 2 * kWarpTokens + n * 8 + 2 * q + j;
        if (slot >= tile_.count) continue;
        const int place = tile_.first + slot;
        const Choice choice = choice_of(product, args_.groups.choice[place]);
        const float factor = args_.x.factor[x_row(place)] * choice.factor;
        float* const y =
            (args_.y_in_places ? product.y + place * product.y_choice_stride : result_of(product, choice)) -
            args_.first_row;
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
          float result[2];
          QGEN_UNROLL
          for (int i = 0; i < 2; ++i) {
            const Matrix& w = matrix(i);
            const int row = row_of(warp_index() / 2 * kWarpRows + i * 16 + g + 8 * h);
            if (row >= args_.first_row + args_.rows) continue;
            const float scale = Grid::kGrouped ? 1 : scale_at(w, first_group(w, row));
            result[i] = warp.sum[i][n][2 * h + j] * scale * factor;
            if (gated_ && i == 0) continue;
            y[row] = expert_result(product, tile_.expert, row, result[0], result[i]);
          }
        }
      }
    }
  }

 private:
  // Of x: threads that copy 16 bytes each of a row's columns of a step, and rows that a thread has.
  static constexpr int kRowPieces = kStepColumns / 8, kRowsAtOnce = kTileThreads / kRowPieces;
  static constexpr int kCopiedRows = kBlockTokens / kRowsAtOnce;

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
  int x_row_[kCopiedRows] = {};
};

template <typename Grid>
constexpr int kGroupedBytes = kStages* kStageBytes<Grid::kCodes>;  // before the matrices

template <typename Grid>
QGEN_KERNEL(kTileThreads, 1)
grouped_kernel(const GroupedArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const ExpertTile tile = args.groups.tile[block_index().y];
  if (tile.count == 0) return;
  Matrix* const w = reinterpret_cast<Matrix*>(shared_memory<uint8_t>() + kGroupedBytes<Grid>);
  copy_matrices(args.product, tile.expert, w);
  barrier();
  GroupedBlock<Grid> block(args, tile, w);
  GemmWarp<Grid> warp;
  multiply_steps(block, warp);
  block.write_results(warp);
}

}  // namespace qgen::QGEN_BACKEND
