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

// Where byte `byte` of a row's codes of a step lies, in turns of rows so that lanes that read together find different
// banks: a row has 64 bytes, which lanes read as 16 or, where a window has 32 columns, as 8 or 4, or 128.
template <int kBytes, int kLane>
QGEN_DEVICE int code_place(int row, int byte) {
  const int turn = kBytes == 2 ? row % 2 * 64 : kLane == 8 ? row / 2 % 2 * 32 : 0;
  return row * kStepColumns * kBytes + (byte ^ turn);
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
  // Tiles of tokens whose products do not wait for each other, as many as there are registers for.
  static constexpr int kAtOnce = Grid::kMinimums ? 1 : kCodes == Codes::kI8 && kGrouped ? 2 : 4;
  using Groups = GroupLoads<Grid>[2][2];

  float sum[2][kTokenTiles][4] = {};

  // += the products of window `window` of a step whose `codes` and `x` are in shared memory, for the first `tiles`
  // tiles of tokens and up to kMost - 1 behind them. zero_bias(i, h, group): i8_bias() of the zero point of a group
  // of the window. kMinimumsFirst: minimums are added before scaled sums, as gemv() does it, and not behind, which
  // takes fewer registers.
  template <bool kMinimumsFirst, int kMost, typename ZeroBias>
  QGEN_DEVICE void multiply_window(const uint8_t* codes, const uint16_t* x, int window, const Groups& groups, int tiles,
                                   const ZeroBias& zero_bias) {
    const int g = lane_index() / 4, q = lane_index() % 4;
    const int warp_row = warp_index() / 2 * kWarpRows;
    uint32_t a[kLane / 4][2][4];
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        const uint32_t* from = reinterpret_cast<const uint32_t*>(
            codes + code_place<kBytes, kLane>(warp_row + i * 16 + g + 8 * h,
                                              (window * kWindow + q * kLane / kGroups) * kBytes));
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
    for (int n = 0; n < kTokenTiles; n += kMost) {
      if (n < tiles) multiply_tiles<kMinimumsFirst, kMost>(a, x, window, groups, n);  // no break: sums are registers
    }
  }

 private:
  // Of kMost tiles of tokens from `first` on.
  template <bool kMinimumsFirst, int kMost>
  QGEN_DEVICE void multiply_tiles(const uint32_t (&a)[kLane / 4][2][4], const uint16_t* x, int window,
                                  const Groups& groups, int first) {
    uint32_t b[kMost][kLane / 4][2];
    QGEN_UNROLL
    for (int n = 0; n < kMost; ++n)
      load_inputs(x, warp_index() % 2 * kWarpTokens + (first + n) * 8 + lane_index() / 4, window, b[n]);
    QGEN_UNROLL
    for (int of = 0; of < kGroups; ++of) {
      [[maybe_unused]] float x_sum[kMost][4] = {}, part[kMost][2][4] = {};
      QGEN_UNROLL
      for (int s = of * kGroupSteps; s < (of + 1) * kGroupSteps; ++s) {
        QGEN_UNROLL
        for (int n = 0; n < kMost; ++n) {
          if constexpr (Grid::kMinimums) add_inputs(x_sum[n], b[n][s]);
          QGEN_UNROLL
          for (int i = 0; i < 2; ++i) multiply_add<kCodes>(kGrouped ? part[n][i] : sum[i][first + n], a[s][i], b[n][s]);
        }
      }
      if constexpr (kGrouped) {
        QGEN_UNROLL
        for (int n = 0; n < kMost; ++n) {
          QGEN_UNROLL
          for (int i = 0; i < 2; ++i) {
            QGEN_UNROLL
            for (int j = 0; j < 4; ++j) {
              float& to = sum[i][first + n][j];
              if constexpr (Grid::kMinimums && kMinimumsFirst)
                to = fused_product(groups[i][j / 2].minimum(of), x_sum[n][j], to);
              to = fused_product(groups[i][j / 2].scale(of), part[n][i][j], to);
              if constexpr (Grid::kMinimums && !kMinimumsFirst)
                to = fused_product(groups[i][j / 2].minimum(of), x_sum[n][j], to);
            }
          }
        }
      }
    }
  }

  // This lane's columns of a window of a token.
  QGEN_DEVICE static void load_inputs(const uint16_t* x, int token, int window, uint32_t (&b)[kLane / 4][2]) {
    const int q = lane_index() % 4;
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
  }
};

// What a thread copies of a tile's codes: 16 bytes of some of its rows, the same in every step.
template <typename Grid>
class TileCodes {
  static constexpr int kRowBytes = GemmWarp<Grid>::kRowBytes, kPieces = kRowBytes / 16;
  static constexpr int kRowsAtOnce = kTileThreads / kPieces, kCopies = kBlockRows / kRowsAtOnce;

 public:
  // block.matrix(tile) has the rows of an MMA tile, row_of(row) where a row of the tile is there.
  template <typename Block>
  QGEN_DEVICE void begin(const Block& block) {
    QGEN_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int row = first() + i * kRowsAtOnce, from = block.row_of(row);
      const Matrix& w = block.matrix(row / 16);
      bytes_ = int(w.row_bytes);
      row_[i] = from < w.rows ? w.codes + from * w.row_bytes : nullptr;
    }
  }
  // Of a step, the byte that the thread's 16 begin with.
  QGEN_DEVICE static int byte() { return thread_index() % kPieces * 16; }
  // at: where it is in a row of the matrix.
  QGEN_DEVICE void copy(int at, uint8_t* codes) const {
    QGEN_UNROLL
    for (int i = 0; i < kCopies; ++i)
      copy_async16(codes + code_place<GemmWarp<Grid>::kBytes, Grid::kLane>(first() + i * kRowsAtOnce, byte()),
                   row_[i] + at, row_[i] != nullptr && at < bytes_);
  }

 private:
  QGEN_DEVICE static int first() { return thread_index() / kPieces; }

  const uint8_t* row_[kCopies];
  int bytes_ = 0;  // of a row
};

// What a thread copies of a tile's inputs: 16 bytes of some rows of x, the same in every step.
template <typename Grid>
class TileInputs {
  static constexpr int kPieces = kStepColumns / 8, kRowsAtOnce = kTileThreads / kPieces;
  static constexpr int kCopies = kBlockTokens / kRowsAtOnce;

 public:
  // Rows of a tile that are no row of x, but zeros; and those at which no warp looks.
  static constexpr int64_t kZeros = -1, kUnread = -2;

  // from(row): the element of x that a row of the tile begins with, or one of these.
  template <typename From>
  QGEN_DEVICE void begin(const From& from) {
    QGEN_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int64_t at = from(first() + i * kRowsAtOnce);
      row_[i] = uint32_t(at < 0 ? at : at / 8);
    }
  }
  // Of a step, the column that the thread's 16 bytes begin with.
  QGEN_DEVICE static int column() { return thread_index() % kPieces * 8; }
  // at: where that column is in a row of x, if it is `there`.
  QGEN_DEVICE void copy(const uint16_t* values, int64_t at, bool there, uint16_t* x) const {
    QGEN_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      if (row_[i] == uint32_t(kUnread)) continue;
      copy_async16(x + x_place<Grid::kLane>(first() + i * kRowsAtOnce, column() / 8),
                   values + int64_t{row_[i]} * 8 + at, row_[i] != uint32_t(kZeros) && there);
    }
  }

 private:
  QGEN_DEVICE static int first() { return thread_index() / kPieces; }

  uint32_t row_[kCopies];  // where it begins, in 16 bytes
};

// The first group that is loaded for the window that begins with `column`. Behind the last column any that exist will
// do: x is zero there.
template <typename Grid>
QGEN_DEVICE int window_group(const Matrix& w, int column) {
  constexpr int kGroups = GroupLoads<Grid>::kGroups;
  const int own = column >> w.group_shift, last = ((w.cols - 1) >> w.group_shift) / kGroups * kGroups;
  return own < last ? own : last;
}

// What is read of a weight of 8-bit floats but its rows, to be held in registers.
QGEN_DEVICE Matrix grid_of(const Matrix& w) {
  Matrix grid;
  grid.scale = w.scale;
  grid.rows = w.rows;
  grid.cols = w.cols;
  grid.group_rows = w.group_rows;
  grid.grid_cols = w.grid_cols;
  grid.row_origin = w.row_origin;
  grid.group_shift = w.group_shift;
  return grid;
}

// What a block of tiles multiplies, step by step, through kStages stages of shared memory. `Block`: GemmBlock has a
// description of its functions.
template <typename Grid, typename Block>
QGEN_DEVICE void multiply_steps(Block& block, GemmWarp<Grid>& warp) {
  using Warp = GemmWarp<Grid>;
  constexpr bool kGrouped = Grid::kGrouped;
  // Scales of all windows of a step, where a code has no more numbers than that: else registers run out. Those of
  // floats of 8 bits are loaded a step ahead, with their grids in registers.
  constexpr bool kOneWindow = Grid::kMinimums || Grid::kForm == ScaleForm::kTwoLevels;
  constexpr bool kAhead = kGrouped && Grid::kCodes != Codes::kI8;
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
  [[maybe_unused]] Matrix kept[2];
  if constexpr (kAhead) {
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) kept[i] = grid_of(block.matrix(i));
  }
  const auto matrix = [&](int i) -> const Matrix& {
    if constexpr (kAhead) return kept[i];
    return block.matrix(i);
  };
  int group[2][2];
  uint32_t bias[2][2];
  QGEN_UNROLL
  for (int i = 0; i < 2; ++i) {
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Matrix& w = matrix(i);
      const int row = block.row_of(warp_index() / 2 * kWarpRows + i * 16 + lane_index() / 4 + 8 * h);
      group[i][h] = first_group(w, row < w.rows ? row : w.rows - 1);
      bias[i][h] = i8_bias(kGrouped ? 0 : zero_point_at<Grid>(w, group[i][h]));
    }
  }
  const auto load_groups = [&](int step, int window, typename Warp::Groups& into) {
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int of_row = window_group<Grid>(matrix(i), block.column_of(step, window));
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) into[i][h].load(matrix(i), group[i][h] + of_row);
    }
  };
  const auto load_step = [&](int step, typename Warp::Groups(&into)[kWindowsAtOnce]) {
    QGEN_UNROLL
    for (int window = 0; window < kWindowsAtOnce; ++window) load_groups(step, window, into[window]);
  };
  typename Warp::Groups groups[kWindowsAtOnce];
  [[maybe_unused]] typename Warp::Groups ahead[kWindowsAtOnce];

  QGEN_UNROLL
  for (int s = 0; s < kStages - 1; ++s) copy_step(s);
  if constexpr (kAhead) load_step(0, ahead);
  QGEN_UNROLL_BY(1)
  for (int step = 0; step < steps; ++step) {
    if constexpr (kAhead) {
      QGEN_UNROLL
      for (int i = 0; i < kWindowsAtOnce * 4; ++i) groups[i / 4][i / 2 % 2][i % 2] = ahead[i / 4][i / 2 % 2][i % 2];
      if (step + 1 < steps) load_step(step + 1, ahead);
    } else if constexpr (kGrouped && !kOneWindow) {
      load_step(step, groups);
    }
    copy_async_wait<kStages - 2>();
    barrier();  // all copies of this step have arrived, and no thread still reads the stage that is written next
    copy_step(step + kStages - 1);
    QGEN_UNROLL_BY(kWindowsAtOnce)
    for (int window = 0; window < Warp::kWindows; ++window) {
      typename Warp::Groups& of_window = groups[kOneWindow ? 0 : window];
      if constexpr (kOneWindow) load_groups(step, window, of_window);
      const int column = block.column_of(step, window);
      const auto zero_bias = [&](int i, int h, int of) {
        if constexpr (kGrouped) {
          const Matrix& w = matrix(i);
          // Behind the last column any will do.
          const int tile = group[i][h] + (column >> w.group_shift) + of;
          return i8_bias(column < w.cols ? zero_point_at<Grid>(w, tile) : 0);
        } else {
          return bias[i][h];
        }
      };
      warp.template multiply_window<Block::kMinimumsFirst, Block::kTilesAtOnce>(codes_of(step), x_of(step), window,
                                                                                of_window, block.tiles(), zero_bias);
    }
    block.end_step(step, warp);
  }
  copy_async_wait<0>();
}

// A block's sums go to where they belong by way of shared memory: a warp then has neighbouring rows of a token, and
// what becomes of a product is there once, and not for each of a thread's sums, which took more instructions than the
// processor's cache holds.
constexpr int kSumsRow = kBlockRows + 4;  // floats from token to token: lanes that store together use different banks
// To `shared`, (tokens, kSumsRow), from all threads of the block. slot_of(tile, column): where token `column` of a
// warp's tile of eight goes.
template <int kTiles, typename SlotOf>
QGEN_DEVICE void share_sums(const float (&sum)[2][kTiles][4], float* shared, const SlotOf& slot_of) {
  barrier();  // no thread still reads the stages of codes and inputs, which the sums overwrite
  float* const of_lane = shared + warp_index() / 2 * kWarpRows + lane_index() / 4;
  QGEN_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) {
      float* const of_slot = of_lane + slot_of(n, lane_index() % 4 * 2 + j % 2) * kSumsRow + j / 2 * 8;
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) of_slot[i * 16] = sum[i][n][j];
    }
  }
  barrier();
}
// use(slot, added) for the tokens of a block that a warp has; `added`: what added_of(slot) loads, for several tokens at
// once, since no load passes the store of another token.
template <typename AddedOf, typename Use>
QGEN_DEVICE void for_shared_sums(int tokens, const AddedOf& added_of, const Use& use) {
  constexpr int kAtOnce = 4;
  QGEN_UNROLL_BY(1)
  for (int first = warp_index(); first < tokens; first += kAtOnce * kTileWarps) {
    float added[kAtOnce];
    QGEN_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      const int slot = first + u * kTileWarps;
      added[u] = slot < tokens ? added_of(slot) : 0;
    }
    QGEN_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      const int slot = first + u * kTileWarps;
      if (slot < tokens) use(slot, added[u]);
    }
  }
}

// A tile of a gated product holds, by turns, kTurnRows rows of the gate and the same rows of the matrix that it gates.
// gated_row(): which row of these matrices is at row `place` of the tile. gate_place(): where the gate's row `row` is
// in the tile; the other matrix's is kTurnRows behind it.
constexpr int kTurnRows = 16;
QGEN_DEVICE int gated_row(int place) { return place / (2 * kTurnRows) * kTurnRows + place % kTurnRows; }
QGEN_DEVICE int gate_place(int row) { return row / kTurnRows * 2 * kTurnRows + row % kTurnRows; }

template <typename Grid>
class GemmBlock {
 public:
  using Warp = GemmWarp<Grid>;
  static constexpr bool kMinimumsFirst = false;
  static constexpr int kTilesAtOnce = Warp::kAtOnce;

  QGEN_DEVICE explicit GemmBlock(const GemmArgs& args)
      : args_(args), first_row_(int(block_index().x) * kBlockRows), first_token_(int(block_index().y) * kBlockTokens) {
    codes_.begin(*this);
    inputs_.begin([&](int row) {
      const int64_t token = first_token_ + row;
      return token < args_.tokens                                                       ? token * args_.x.stride
             : row % kWarpTokens < round_up(tiles(row / kWarpTokens), kTilesAtOnce) * 8 ? TileInputs<Grid>::kZeros
                                                                                        : TileInputs<Grid>::kUnread;
    });
    tiles_ = tiles(warp_index() % 2);
  }

  // Where things are in W: rows of the tile, 16 of which are of matrix(i), and the first columns of a step's windows.
  QGEN_DEVICE int steps() const { return (args_.w.cols + kStepColumns - 1) / kStepColumns; }
  QGEN_DEVICE const Matrix& matrix(int) const { return args_.w; }
  QGEN_DEVICE int row_of(int row) const { return first_row_ + row; }
  QGEN_DEVICE int column_of(int step, int window) const { return step * kStepColumns + window * Warp::kWindow; }
  // Of the warp's tokens, as many as there are.
  QGEN_DEVICE int tiles() const { return tiles_; }
  // Begins the copies of a step's codes and inputs to shared memory.
  QGEN_DEVICE void copy_step(int step, uint8_t* codes, uint16_t* x) const {
    codes_.copy(step * Warp::kRowBytes + codes_.byte(), codes);
    inputs_.copy(args_.x.values, step * kStepColumns + inputs_.column(), true, x);
  }
  QGEN_DEVICE void end_step(int, const Warp&) const {}

  QGEN_DEVICE void write_results(const Warp& warp) const {
    float* const sums = shared_memory<float>();
    share_sums(warp.sum, sums, [](int n, int column) { return warp_index() % 2 * kWarpTokens + n * 8 + column; });
    const Matrix& w = args_.w;
    const int left = args_.tokens - first_token_, tokens = left < kBlockTokens ? left : kBlockTokens;
    QGEN_UNROLL_BY(1)
    for (int r = lane_index(); r < kBlockRows && first_row_ + r < w.rows; r += kWarp) {
      const int row = first_row_ + r;
      const float scale = Grid::kGrouped ? 1 : scale_at(w, first_group(w, row));
      const float add = w.bias != nullptr ? w.bias[row] : 0;
      const auto y_of = [&](int slot) { return args_.y + int64_t{first_token_ + slot} * args_.y_stride + row; };
      for_shared_sums(
          tokens, [&](int slot) { return args_.add ? *y_of(slot) : 0; },
          [&](int slot, float added) {
            const float result = sums[slot * kSumsRow + r] * scale * args_.x.factor[first_token_ + slot] + add;
            *y_of(slot) = args_.add ? added + result : result;
          });
    }
  }

 private:
  static_assert(kBlockTokens * kSumsRow * 4 <= kStages * kStageBytes<Grid::kCodes>);

  // Of a half of the block's tokens: tiles of eight.
  QGEN_DEVICE int tiles(int half) const {
    const int left = (args_.tokens - first_token_ - half * kWarpTokens + 7) / 8;
    return left < 0 ? 0 : left < Warp::kTokenTiles ? left : Warp::kTokenTiles;
  }

  const GemmArgs& args_;
  const int first_row_, first_token_;
  int tiles_ = 0;
  TileCodes<Grid> codes_;
  TileInputs<Grid> inputs_;
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
