// Many tokens: tiles of 128 rows of W by 128 tokens, whose codes stay codes until they are in registers. A warp takes
// 32 rows and 64 tokens. Where W has a scale for groups of columns, each group's sum is scaled before it is added.
// gemm_split.cuh has the same tiles for tokens that have two columns each.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kBlockRows = 128, kBlockTokens = 128, kStepColumns = 64;
constexpr int kTileWarps = 8, kTileThreads = kTileWarps * kWarp;
constexpr int kWarpRows = 32, kWarpTokens = 64;
constexpr int kStages = 3;

template <Codes kCodes>
constexpr int kStageBytes = kBlockRows* kStepColumns* kCodeBytes<kCodes> + kBlockTokens* kStepColumns * 2;

// Where the piece of 8 columns `piece` (of 8) of a token's 64 lies in shared memory: lanes q = 0..3 read a product's
// columns as 16 bytes each, which then are neighbours; tokens in turns have the halves the other way round, so that two
// of them are in different banks. kLane: codes that a lane takes at once.
template <int kLane>
QGEN_DEVICE int x_place(int token, int piece) {
  const int half = kLane == 16 ? piece % 2 : piece / 4, q = kLane == 16 ? piece / 2 : piece % 4;
  return token * kStepColumns + ((half ^ token % 2) * 4 + q) * 8;
}

// A warp's part of a tile: rows i * 16 + 8 * h + lane / 4 of its 32, for i and h = 0, 1, and its 64 tokens.
template <typename Grid>
struct GemmWarp {
  static constexpr Codes kCodes = Grid::kCodes;
  static constexpr int kLane = Grid::kLane;
  static constexpr bool kGrouped = Grid::kGrouped;
  static constexpr int kBytes = kCodeBytes<kCodes>, kRowBytes = kStepColumns * kBytes;
  static constexpr int kWindow = 4 * kLane, kWindows = kStepColumns / kWindow;                  // columns; of a step
  static constexpr int kGroups = GroupLoads<Grid>::kGroups, kGroupSteps = kLane / 4 / kGroups;  // of a window, a group
  static constexpr int kTokenTiles = kWarpTokens / 8;
  using Groups = GroupLoads<Grid>[2][2];

  float sum[2][kTokenTiles][4] = {};

  // += the products of window `window` of a step whose `codes` and `x` are in shared memory, for the first `tiles`
  // tiles of tokens. zero_bias(i, h, group): i8_bias() of the zero point of a group of the window.
  // kMinimumsFirst: minimums are added before scaled sums, as gemv() does it, and not behind, which takes fewer
  // registers.
  template <bool kMinimumsFirst, typename ZeroBias>
  QGEN_DEVICE void multiply_window(const uint8_t* codes, const uint16_t* x, int window, const Groups& groups, int tiles,
                                   const ZeroBias& zero_bias) {
    const int g = lane_index() / 4, q = lane_index() % 4;
    const int warp_row = warp_index() / 2 * kWarpRows, warp_token = warp_index() % 2 * kWarpTokens;
    uint32_t a[kLane / 4][2][4];
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        const uint32_t* from = reinterpret_cast<const uint32_t*>(codes + (warp_row + i * 16 + g + 8 * h) * kRowBytes +
                                                                 (window * kWindow + q * kLane / kGroups) * kBytes);
        uint32_t bias[kGroups];
        QGEN_UNROLL
        for (int of = 0; of < kGroups; ++of) bias[of] = zero_bias(i, h, of);
        QGEN_UNROLL
        for (int s = 0; s < kLane / 4; ++s) {
          if constexpr (kBytes == 2) {
            a[s][i][h] = from[2 * s];
            a[s][i][h + 2] = from[2 * s + 1];
          } else {
            four_codes<kCodes>(from[kGroups == 2 ? 4 * s : s], bias[s / kGroupSteps], a[s][i][h], a[s][i][h + 2]);
          }
        }
      }
    }
    QGEN_UNROLL
    for (int n = 0; n < kTokenTiles; ++n) {
      if (n >= tiles) continue;  // not break: sums are registers, whose loop is unrolled
      const int token = warp_token + n * 8 + g;
      uint32_t b[kLane / 4][2];
      if constexpr (kGroups == 2) {
        // Lanes have 4 neighbouring columns of each group, as part_groups() (gemv.cuh) leaves the codes there.
        QGEN_UNROLL
        for (int s = 0; s < 2; ++s) {
          const int piece = 4 * window + 2 * s + q / 2;
          const Bytes8 v = *reinterpret_cast<const Bytes8*>(x + x_place<kLane>(token, piece) + q % 2 * 4);
          b[s][0] = v.word[0];
          b[s][1] = v.word[1];
        }
      } else {
        QGEN_UNROLL
        for (int half = 0; half < kLane / 8; ++half) {
          const int piece = kLane == 16 ? 2 * q + half : 4 * window + q;
          const Bytes16 v = *reinterpret_cast<const Bytes16*>(x + x_place<kLane>(token, piece));
          QGEN_UNROLL
          for (int j = 0; j < 4; ++j) b[2 * half + j / 2][j % 2] = v.word[j];
        }
      }
      QGEN_UNROLL
      for (int of = 0; of < kGroups; ++of) {
        [[maybe_unused]] float x_sum[4] = {};
        if constexpr (Grid::kMinimums) {
          QGEN_UNROLL
          for (int s = of * kGroupSteps; s < (of + 1) * kGroupSteps; ++s) add_inputs(x_sum, b[s]);
        }
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) {
          float part[4] = {};
          float(&into)[4] = kGrouped ? part : sum[i][n];
          QGEN_UNROLL
          for (int s = of * kGroupSteps; s < (of + 1) * kGroupSteps; ++s) multiply_add<kCodes>(into, a[s][i], b[s]);
          if constexpr (kGrouped) {
            QGEN_UNROLL
            for (int j = 0; j < 4; ++j) {
              float& to = sum[i][n][j];
              if constexpr (Grid::kMinimums && kMinimumsFirst)
                to = fused_product(groups[i][j / 2].minimum(of), x_sum[j], to);
              to = fused_product(groups[i][j / 2].scale(of), part[j], to);
              if constexpr (Grid::kMinimums && !kMinimumsFirst)
                to = fused_product(groups[i][j / 2].minimum(of), x_sum[j], to);
            }
          }
        }
      }
    }
  }
};

// The first group that is loaded for the window that begins with `column`. Behind the last column any that exist will
// do: x is zero there.
template <typename Grid>
QGEN_DEVICE int window_group(const Matrix& w, int column) {
  constexpr int kGroups = GroupLoads<Grid>::kGroups;
  const int own = column >> w.group_shift, last = ((w.cols - 1) >> w.group_shift) / kGroups * kGroups;
  return own < last ? own : last;
}

// What a block of tiles multiplies, step by step, through kStages stages of shared memory. `Block`: GemmBlock has a
// description of its functions.
template <typename Grid, typename Block>
QGEN_DEVICE void multiply_steps(Block& block, GemmWarp<Grid>& warp) {
  using Warp = GemmWarp<Grid>;
  constexpr bool kGrouped = Grid::kGrouped;
  // All windows of a step, their scales loaded a step ahead; more numbers than a scale would not fit in registers.
  constexpr bool kOneWindow = Grid::kMinimums || Grid::kForm == ScaleForm::kTwoLevels;
  constexpr int kWindowsAtOnce = kOneWindow ? 1 : Warp::kWindows;
  uint8_t* const memory = shared_memory<uint8_t>();
  const auto codes_of = [&](int step) { return memory + step % kStages * kStageBytes<Grid::kCodes>; };
  const auto x_of = [&](int step) {
    return reinterpret_cast<uint16_t*>(codes_of(step) + kBlockRows * Warp::kRowBytes);
  };
  const int steps = block.steps();
  const auto copy_step = [&](int step) {
    if (step < steps) block.copy_step(step, codes_of(step), x_of(step));
    copy_async_commit();
  };

  // Of this lane's rows: where their scale groups begin in the grid.
  int group[2][2];
  uint32_t bias[2][2];
  QGEN_UNROLL
  for (int i = 0; i < 2; ++i) {
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Matrix& w = block.matrix(i);
      const int row = block.row_of(warp_index() / 2 * kWarpRows + i * 16 + lane_index() / 4 + 8 * h);
      group[i][h] = first_group(w, row < w.rows ? row : w.rows - 1);
      bias[i][h] = i8_bias(kGrouped ? 0 : zero_point_at<Grid>(w, group[i][h]));
    }
  }

  QGEN_UNROLL
  for (int s = 0; s < kStages - 1; ++s) copy_step(s);
  for (int step = 0; step < steps; ++step) {
    typename Warp::Groups groups[kWindowsAtOnce];
    const auto load_groups = [&](int window, typename Warp::Groups& into) {
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Matrix& w = block.matrix(i);
        const int of_row = window_group<Grid>(w, block.column_of(step, window));
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) into[i][h].load(w, group[i][h] + of_row);
      }
    };
    if constexpr (kGrouped && !kOneWindow) {
      QGEN_UNROLL
      for (int window = 0; window < Warp::kWindows; ++window) load_groups(window, groups[window]);
    }
    copy_async_wait<kStages - 2>();
    barrier();  // all copies of this step have arrived, and no thread still reads the stage that is written next
    copy_step(step + kStages - 1);
    QGEN_UNROLL_BY(kWindowsAtOnce)
    for (int window = 0; window < Warp::kWindows; ++window) {
      typename Warp::Groups& of_window = groups[kOneWindow ? 0 : window];
      if constexpr (kOneWindow) load_groups(window, of_window);
      const int column = block.column_of(step, window);
      const auto zero_bias = [&](int i, int h, int of) {
        if constexpr (kGrouped) {
          const Matrix& w = block.matrix(i);
          // Behind the last column any will do.
          const int tile = group[i][h] + (column >> w.group_shift) + of;
          return i8_bias(column < w.cols ? zero_point_at<Grid>(w, tile) : 0);
        } else {
          return bias[i][h];
        }
      };
      warp.template multiply_window<Block::kMinimumsFirst>(codes_of(step), x_of(step), window, of_window, block.tiles(),
                                                           zero_bias);
    }
    block.end_step(step, warp);
  }
  copy_async_wait<0>();
}

template <typename Grid>
class GemmBlock {
 public:
  using Warp = GemmWarp<Grid>;
  static constexpr bool kMinimumsFirst = false;

  QGEN_DEVICE explicit GemmBlock(const GemmArgs& args)
      : args_(args), first_row_(int(block_index().x) * kBlockRows), first_token_(int(block_index().y) * kBlockTokens) {}

  // Where things are in W: rows of the tile, 16 of which are of matrix(i), and the first columns of a step's windows.
  QGEN_DEVICE int steps() const { return (args_.w.cols + kStepColumns - 1) / kStepColumns; }
  QGEN_DEVICE const Matrix& matrix(int) const { return args_.w; }
  QGEN_DEVICE int row_of(int row) const { return first_row_ + row; }
  QGEN_DEVICE int column_of(int step, int window) const { return step * kStepColumns + window * Warp::kWindow; }
  QGEN_DEVICE int tiles() const { return Warp::kTokenTiles; }
  // Begins the copies of a step's codes and inputs to shared memory.
  QGEN_DEVICE void copy_step(int step, uint8_t* codes, uint16_t* x) const {
    constexpr int kPieces = Warp::kRowBytes / 16;
    const Matrix& w = args_.w;
    for (int i = thread_index(); i < kBlockRows * kPieces; i += kTileThreads) {
      const int row = i / kPieces, piece = i % kPieces;
      const int64_t at = int64_t(step) * Warp::kRowBytes + piece * 16;
      const bool valid = first_row_ + row < w.rows && at < w.row_bytes;
      copy_async16(codes + row * Warp::kRowBytes + piece * 16, w.codes + (first_row_ + row) * w.row_bytes + at, valid);
    }
    for (int i = thread_index(); i < kBlockTokens * kStepColumns / 8; i += kTileThreads) {
      const int token = i / (kStepColumns / 8), piece = i % (kStepColumns / 8);
      const int64_t at = (first_token_ + token) * args_.x.stride + int64_t(step) * kStepColumns + piece * 8;
      copy_async16(x + x_place<Grid::kLane>(token, piece), args_.x.values + at, first_token_ + token < args_.tokens);
    }
  }
  QGEN_DEVICE void end_step(int, const Warp&) const {}

  QGEN_DEVICE void write_results(const Warp& warp) const {
    const Matrix& w = args_.w;
    const int g = lane_index() / 4, q = lane_index() % 4;
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int row = first_row_ + warp_index() / 2 * kWarpRows + i * 16 + g + 8 * h;
        if (row >= w.rows) continue;
        const float scale = Grid::kGrouped ? 1 : scale_at(w, first_group(w, row));
        const float add = w.bias != nullptr ? w.bias[row] : 0;
        QGEN_UNROLL
        for (int n = 0; n < Warp::kTokenTiles; ++n) {
          QGEN_UNROLL
          for (int j = 0; j < 2; ++j) {
            const int token = first_token_ + warp_index() % 2 * kWarpTokens + n * 8 + 2 * q + j;
            if (token >= args_.tokens) continue;
            float* const y = args_.y + token * args_.y_stride + row;
            const float result = warp.sum[i][n][2 * h + j] * scale * args_.x.factor[token] + add;
            *y = args_.add ? *y + result : result;
          }
        }
      }
    }
  }

 private:
  const GemmArgs& args_;
  const int first_row_, first_token_;
};

template <typename Grid>
QGEN_KERNEL(kTileThreads, 1)
gemm_kernel(const GemmArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  GemmBlock<Grid> block(args);
  GemmWarp<Grid> warp;
  multiply_steps(block, warp);
  block.write_results(warp);
}

}  // namespace qgen::QGEN_BACKEND
