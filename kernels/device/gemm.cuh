// Many tokens: tiles of W by tokens, whose codes stay codes until they are in registers. A warp takes 32 rows and 64
// tokens, eight of them 128 and 128, or 256 and 64. Where W has a scale for groups of columns, each group's sum is
// scaled before it is added. gemm_split.cuh has the same tiles for tokens that have two columns each.
#pragma once

#include <utility>

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kStepColumns = 64;
constexpr int kTileWarps = 8, kTileThreads = kTileWarps * kWarp;
constexpr int kWarpRows = 32, kWarpTokens = 64;  // of a warp's part of a tile
constexpr int kAsMany = -1;                      // turns of tiles of tokens, asked for before each

// The GridTraits of a weight, and the tile that a block has of a product: as many warps have rows of their own, the
// others the same rows and other tokens.
template <typename Grid, int kRowWarps>
struct TileTraits : Grid {
  static constexpr int kTokenWarps = kTileWarps / kRowWarps;
  static constexpr int kBlockRows = kRowWarps * kWarpRows, kBlockTokens = kTokenWarps * kWarpTokens;
  QGEN_DEVICE static int row_warp() { return warp_index() / kTokenWarps; }
  QGEN_DEVICE static int token_warp() { return warp_index() % kTokenWarps; }
  // Stages of shared memory, whose copies are under way by turns: codes and inputs of kStepColumns columns.
  static constexpr int kStageBytes = (kBlockRows * kCodeBytes<Grid::kCodes> + kBlockTokens * 2) * kStepColumns;
  static constexpr int kStages = (96 << 10) / kStageBytes;
  static constexpr int kBytes = kStages * kStageBytes;
  static_assert(kStages > 2);
  // Floats between the sums of a token and of the next: lanes that store them together use different banks.
  static constexpr int kSumsRow = kBlockRows + 4;
};
template <typename Grid>
using SquareTile = TileTraits<Grid, 4>;
// Of twice the rows, whose codes are converted once for all tokens: half as much to do where those are few.
template <typename Grid>
using TallTile = TileTraits<Grid, 8>;

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
template <typename Tile>
struct GemmWarp {
  static constexpr Codes kCodes = Tile::kCodes;
  static constexpr int kLane = Tile::kLane;
  static constexpr bool kGrouped = Tile::kGrouped;
  static constexpr int kBytes = kCodeBytes<kCodes>, kRowBytes = kStepColumns * kBytes;
  static constexpr int kWindow = 4 * kLane, kWindows = kStepColumns / kWindow;                  // columns; of a step
  static constexpr int kGroups = GroupLoads<Tile>::kGroups, kGroupSteps = kLane / 4 / kGroups;  // of a window, a group
  static constexpr int kTokenTiles = kWarpTokens / 8;
  // Tiles of tokens whose products do not wait for each other, as many as there are registers for: fewer where groups
  // of integers bring zero points or scales of two levels.
  static constexpr int kAtOnce = Tile::kMinimums                                                      ? 1
                                 : kCodes == Codes::kI8 && kGrouped && Tile::kForm != ScaleForm::kF16 ? 2
                                                                                                      : 4;
  // Whether there are registers to load the inputs of some tiles while others are multiplied, which ptxas does where no
  // branch is between them.
  static constexpr bool kOverlaps = kAtOnce > 2;
  // Whether there are some for a step's last inputs and the next step's first codes as well, so that the tensor cores
  // have something to do while warps meet and ask for copies. Not for E5M2, which hardly any model has.
  static constexpr bool kMeetsWithin = (kLane == 16 && kCodes != Codes::kE5M2) || kBytes == 2;
  using Groups = GroupLoads<Tile>[2][2];
  using WindowCodes = uint32_t[2][2][kLane * kBytes / 4];  // of row tile i and half h

  float sum[2][kTokenTiles][4] = {};

  // The codes of window `window` of a step in shared memory.
  QGEN_DEVICE static void load_window(const uint8_t* codes, int window, WindowCodes& words) {
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h)
        load_codes(codes, Tile::row_warp() * kWarpRows + i * 16 + lane_index() / 4 + 8 * h, window, words[i][h]);
    }
  }

  // += the products of the codes of window `window` of a step, whose inputs are in shared memory at `x`. zero_bias(i,
  // h, group): i8_bias() of the zero point of a group of the window. kTurns > 0: for exactly kTurns times kTilesAtOnce
  // tiles of tokens, and in the last window the warp calls meet() once its last reads of shared memory are done, then
  // copy(), and then does the rest of its products. kAsMany: for the first `tiles` tiles and up to kTilesAtOnce - 1
  // behind them.
  template <typename Block, int kTurns, typename ZeroBias, typename Meet, typename Copy>
  QGEN_DEVICE void multiply_window(const WindowCodes& words, const uint16_t* x, int window, const Groups& groups,
                                   int tiles, const ZeroBias& zero_bias, const Meet& meet, const Copy& copy) {
    constexpr int kMost = Block::kTilesAtOnce;
    Rows a;
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        uint32_t bias[kGroups];
        QGEN_UNROLL
        for (int of = 0; of < kGroups; ++of) bias[of] = zero_bias(i, h, of);
        QGEN_UNROLL
        for (int s = 0; s < kLane / 4; ++s) {
          if constexpr (kBytes == 2) {
            a[s][i][h] = words[i][h][2 * s];
            a[s][i][h + 2] = words[i][h][2 * s + 1];
          } else {
            four_codes<kCodes>(words[i][h][s], bias[s / kGroupSteps], a[s][i][h], a[s][i][h + 2]);
          }
        }
      }
    }
    const auto multiply_some = [&](int n) {
      Tokens<kMost> b;
      load_tiles(x, window, n, b);
      multiply_tiles<Block::kMinimumsFirst>(a, b, groups, n);
    };
    if constexpr (kTurns > 0) {
      static_assert(kGroups == 1);
      constexpr int kLast = (kTurns - 1) * kMost;
      QGEN_UNROLL
      for (int n = 0; n < kLast; n += kMost) multiply_some(n);
      if (window < kWindows - 1) return multiply_some(kLast);
      Tokens<kMost> b;
      Parts<kMost> parts;
      load_tiles(x, window, kLast, b);
      meet();
      QGEN_UNROLL
      for (int s = 0; s < kLane / 4; ++s) {
        static_assert(kLane / 4 > 1);
        if (s == 1) copy();
        multiply_columns(a, b, s, parts, kLast);
      }
      add_parts<Block::kMinimumsFirst>(groups, 0, parts, kLast);
    } else {
      const bool all = Block::kOverlaps && tiles == kTokenTiles;
      if (all) {
        QGEN_UNROLL
        for (int n = 0; n < kTokenTiles; n += kMost) multiply_some(n);
      } else {
        QGEN_UNROLL
        for (int n = 0; n < kTokenTiles; n += kMost) {
          if (n < tiles) multiply_some(n);  // no break: sums are registers
        }
      }
    }
  }

 private:
  using Rows = uint32_t[kLane / 4][2][4];  // operands of a window
  template <int kMost>
  using Tokens = uint32_t[kMost][kLane / 4][2];  // of kMost tiles of tokens
  // Sums of a group, which are still to be scaled.
  template <int kMost>
  struct Parts {
    float x_sum[kMost][4] = {}, product[kMost][2][4] = {};
  };

  // Of tiles of tokens from `first` on. kMinimumsFirst: minimums are added before scaled sums, as gemv() does it, and
  // not behind, which takes fewer registers.
  template <bool kMinimumsFirst, int kMost>
  QGEN_DEVICE void multiply_tiles(const Rows& a, const Tokens<kMost>& b, const Groups& groups, int first) {
    QGEN_UNROLL
    for (int of = 0; of < kGroups; ++of) {
      Parts<kMost> parts;
      QGEN_UNROLL
      for (int s = of * kGroupSteps; s < (of + 1) * kGroupSteps; ++s) multiply_columns(a, b, s, parts, first);
      add_parts<kMinimumsFirst>(groups, of, parts, first);
    }
  }
  template <int kMost>
  QGEN_DEVICE void multiply_columns(const Rows& a, const Tokens<kMost>& b, int s, Parts<kMost>& parts, int first) {
    QGEN_UNROLL
    for (int n = 0; n < kMost; ++n) {
      if constexpr (Tile::kMinimums) add_inputs(parts.x_sum[n], b[n][s]);
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i)
        multiply_add<kCodes>(kGrouped ? parts.product[n][i] : sum[i][first + n], a[s][i], b[n][s]);
    }
  }
  template <bool kMinimumsFirst, int kMost>
  QGEN_DEVICE void add_parts(const Groups& groups, int of, const Parts<kMost>& parts, int first) {
    if constexpr (kGrouped) {
      QGEN_UNROLL
      for (int n = 0; n < kMost; ++n) {
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) {
          QGEN_UNROLL
          for (int j = 0; j < 4; ++j) {
            float& to = sum[i][first + n][j];
            if constexpr (Tile::kMinimums && kMinimumsFirst)
              to = fused_product(groups[i][j / 2].minimum(of), parts.x_sum[n][j], to);
            to = fused_product(groups[i][j / 2].scale(of), parts.product[n][i][j], to);
            if constexpr (Tile::kMinimums && !kMinimumsFirst)
              to = fused_product(groups[i][j / 2].minimum(of), parts.x_sum[n][j], to);
          }
        }
      }
    }
  }

  // This lane's columns of a window of a row, in one load where they are neighbours: by words of four bytes the lanes
  // of four rows would meet in a bank.
  template <int kWords>
  QGEN_DEVICE static void load_codes(const uint8_t* codes, int row, int window, uint32_t (&word)[kWords]) {
    const auto at = [&](int column) {
      return codes + code_place<kBytes, kLane>(row, (window * kWindow + column) * kBytes);
    };
    const int q = lane_index() % 4;
    if constexpr (kGroups == 2) {
      QGEN_UNROLL
      for (int s = 0; s < kWords; ++s) word[s] = *reinterpret_cast<const uint32_t*>(at(16 * s + 4 * q));
    } else {
      using Load = std::conditional_t<kWords == 4, Bytes16, Bytes8>;
      const Load v = *reinterpret_cast<const Load*>(at(kLane * q));
      QGEN_UNROLL
      for (int s = 0; s < kWords; ++s) word[s] = v.word[s];
    }
  }

  template <int kMost>
  QGEN_DEVICE static void load_tiles(const uint16_t* x, int window, int first, Tokens<kMost>& b) {
    QGEN_UNROLL
    for (int n = 0; n < kMost; ++n)
      load_inputs(x, Tile::token_warp() * kWarpTokens + (first + n) * 8 + lane_index() / 4, window, b[n]);
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
template <typename Tile>
class TileCodes {
  static constexpr int kRowBytes = GemmWarp<Tile>::kRowBytes, kPieces = kRowBytes / 16;
  static constexpr int kRowsAtOnce = kTileThreads / kPieces, kCopies = Tile::kBlockRows / kRowsAtOnce;

 public:
  // block.matrix(tile) has the rows of an MMA tile, row_of(row) where a row of the tile is there.
  template <typename Block>
  QGEN_DEVICE void begin(const Block& block) {
    static_assert(kRowsAtOnce % 32 == 0);  // so that the rows of a thread are of one matrix
    const Matrix& w = block.matrix(first() / 16);
    const int from = block.row_of(first()), turn = block.row_of(kRowsAtOnce) - block.row_of(0);
    row_ = w.codes + from * w.row_bytes;
    bytes_ = int(w.row_bytes);
    turn_bytes_ = turn * bytes_;
    while (count_ < kCopies && from + count_ * turn < w.rows) ++count_;
  }
  // Of a step, the byte that the thread's 16 begin with.
  QGEN_DEVICE static int byte() { return thread_index() % kPieces * 16; }
  // at: where it is in a row of the matrix.
  QGEN_DEVICE void copy(int at, uint8_t* codes) const {
    QGEN_UNROLL
    for (int i = 0; i < kCopies; ++i)
      copy_once16(codes + code_place<GemmWarp<Tile>::kBytes, Tile::kLane>(first() + i * kRowsAtOnce, byte()),
                  row_ + (i * turn_bytes_ + at), i < count_ && at < bytes_);
  }

 private:
  QGEN_DEVICE static int first() { return thread_index() / kPieces; }

  const uint8_t* row_ = nullptr;    // the thread's first, read where there is one,
  int count_ = 0, turn_bytes_ = 0;  // how many it has, and what is between two of them
  int bytes_ = 0;                   // of a row
};

// What a thread copies of a tile's inputs: 16 bytes of some rows of x, the same in every step.
template <typename Tile>
class TileInputs {
  static constexpr int kPieces = kStepColumns / 8, kRowsAtOnce = kTileThreads / kPieces;
  static constexpr int kCopies = Tile::kBlockTokens / kRowsAtOnce;

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
      copy_async16(x + x_place<Tile::kLane>(first() + i * kRowsAtOnce, column() / 8),
                   values + int64_t{row_[i]} * 8 + at, row_[i] != uint32_t(kZeros) && there);
    }
  }

 private:
  QGEN_DEVICE static int first() { return thread_index() / kPieces; }

  uint32_t row_[kCopies];  // where it begins, in 16 bytes
};

// The first group that is loaded for the window that begins with `column`. Behind the last column any that exist will
// do: x is zero there.
template <typename Tile>
QGEN_DEVICE int window_group(const Matrix& w, int column) {
  constexpr int kGroups = GroupLoads<Tile>::kGroups;
  const int own = column >> w.group_shift, last = ((w.cols - 1) >> w.group_shift) / kGroups * kGroups;
  return own < last ? own : last;
}

// What is read of a weight of 8-bit floats but its rows, to be held in registers.
QGEN_DEVICE Matrix grid_of(const Matrix& w) {
  Matrix grid;
  grid.scale = w.scale;
  grid.rows = w.rows;
  grid.group_rows = w.group_rows;
  grid.grid_cols = w.grid_cols;
  grid.row_origin = w.row_origin;
  return grid;
}

// What a block of tiles multiplies, step by step, through Tile::kStages stages of shared memory. `Block`: GemmBlock has
// a description of its functions.
template <typename Tile, typename Block, typename Wait>
QGEN_DEVICE void multiply_steps(Block& block, GemmWarp<Tile>& warp, const Wait& wait_for_inputs) {
  using Warp = GemmWarp<Tile>;
  constexpr bool kGrouped = Tile::kGrouped;
  // Scales of all windows of a step, where a code has no more numbers than that: else registers run out. Those of
  // floats of 8 bits are loaded a step ahead, with their grids in registers.
  constexpr bool kOneWindow = Tile::kMinimums || Tile::kForm == ScaleForm::kTwoLevels;
  constexpr bool kAhead = kGrouped && Tile::kCodes != Codes::kI8;
  constexpr int kWindowsAtOnce = kOneWindow ? 1 : Warp::kWindows;
  uint8_t* const memory = shared_memory<uint8_t>();
  const auto codes_of = [&](int step) { return memory + step % Tile::kStages * Tile::kStageBytes; };
  const auto x_of = [&](int step) {
    return reinterpret_cast<uint16_t*>(codes_of(step) + Tile::kBlockRows * Warp::kRowBytes);
  };
  const int steps = block.steps();
  const auto copy_step = [&](int step, bool codes, bool inputs) {
    if (step >= steps) return;
    if (codes) block.copy_codes(step, codes_of(step));
    if (inputs) block.copy_inputs(step, x_of(step));
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
      const int row = block.row_of(Tile::row_warp() * kWarpRows + i * 16 + lane_index() / 4 + 8 * h);
      group[i][h] = first_group(w, row < w.rows ? row : w.rows - 1);
      bias[i][h] = i8_bias(kGrouped ? 0 : zero_point_at<Tile>(w, group[i][h]));
    }
  }
  const auto load_groups = [&](int step, int window, typename Warp::Groups& into) {
    const int of_row = window_group<Tile>(block.like(), block.column_of(step, window));
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
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
  for (int s = 0; s < Tile::kStages; ++s) copy_step(s, true, false);
  if constexpr (kGrouped && !kOneWindow) load_step(0, kAhead ? ahead : groups);
  wait_for_inputs();
  QGEN_UNROLL
  for (int s = 0; s < Tile::kStages; ++s) {
    copy_step(s, false, true);
    copy_async_commit();
  }
  copy_async_wait<Tile::kStages - 1>();
  barrier();
  // kTurns: as in multiply_window(). 0: the warp has no tiles, and only copies.
  const auto multiply = [&]<int kTurns>() {
    constexpr bool kWithin = kTurns > 0;
    [[maybe_unused]] typename Warp::WindowCodes next_words;
    if constexpr (kWithin) Warp::load_window(codes_of(0), 0, next_words);
    QGEN_UNROLL_BY(1)
    for (int step = 0; step < steps; ++step) {
      if constexpr (kAhead && kTurns != 0) {
        QGEN_UNROLL
        for (int i = 0; i < kWindowsAtOnce * 4; ++i) groups[i / 4][i / 2 % 2][i % 2] = ahead[i / 4][i / 2 % 2][i % 2];
        if (step + 1 < steps) load_step(step + 1, ahead);
      }
      const auto meet = [&] {
        copy_async_wait<Tile::kStages - 2>();
        barrier();  // the next step's copies have arrived, and no thread still reads the stage that is written then
        if constexpr (kWithin) {
          if (step + 1 < steps) Warp::load_window(codes_of(step + 1), 0, next_words);
        }
      };
      const auto copy_next = [&] {
        copy_step(step + Tile::kStages, true, true);
        copy_async_commit();
      };
      if constexpr (kTurns != 0) {
        QGEN_UNROLL_BY(kWindowsAtOnce)
        for (int window = 0; window < Warp::kWindows; ++window) {
          typename Warp::Groups& of_window = groups[kOneWindow ? 0 : window];
          if constexpr (kOneWindow) load_groups(step, window, of_window);
          [[maybe_unused]] const int column = block.column_of(step, window);
          const auto zero_bias = [&](int i, int h, int of) {
            if constexpr (kGrouped) {
              const Matrix& w = matrix(i);
              // Behind the last column any will do.
              const int tile = group[i][h] + (column >> block.like().group_shift) + of;
              return i8_bias(column < block.like().cols ? zero_point_at<Tile>(w, tile) : 0);
            } else {
              return bias[i][h];
            }
          };
          typename Warp::WindowCodes own, &words = kWithin ? next_words : own;
          if (!kWithin || window > 0) Warp::load_window(codes_of(step), window, words);
          warp.template multiply_window<Block, kTurns>(words, x_of(step), window, of_window, block.tiles(), zero_bias,
                                                       meet, copy_next);
        }
        block.end_step(step, warp);
        if constexpr (kGrouped && !kAhead && !kOneWindow) {
          if (step + 1 < steps) load_step(step + 1, groups);
        }
      }
      if constexpr (!kWithin) {
        meet();
        copy_next();
      }
    }
  };
  if constexpr (Block::kOverlaps && Warp::kMeetsWithin) {
    constexpr int kMost = Block::kTilesAtOnce, kMostTurns = Warp::kTokenTiles / kMost;
    const int turns = (block.tiles() + kMost - 1) / kMost;
    [&]<int... kTurns>(std::integer_sequence<int, kTurns...>) {
      ((turns == kTurns ? multiply.template operator()<kTurns>() : void()), ...);
    }
    (std::make_integer_sequence<int, kMostTurns + 1>{});
  } else {
    multiply.template operator()<kAsMany>();
  }
  copy_async_wait<0>();
}

// A block's sums go to where they belong by way of shared memory: a warp then has neighbouring rows of a token, and
// what becomes of a product is there once, and not for each of a thread's sums, which took more instructions than the
// processor's cache holds.
// To `shared`, (tokens, Tile::kSumsRow), from all threads of the block. slot_of(tile, column): where token `column` of
// a warp's tile of eight goes.
template <typename Tile, int kTiles, typename SlotOf>
QGEN_DEVICE void share_sums(const float (&sum)[2][kTiles][4], float* shared, const SlotOf& slot_of) {
  barrier();  // no thread still reads the stages of codes and inputs, which the sums overwrite
  float* const of_lane = shared + Tile::row_warp() * kWarpRows + lane_index() / 4;
  QGEN_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) {
      float* const of_slot = of_lane + slot_of(n, lane_index() % 4 * 2 + j % 2) * Tile::kSumsRow + j / 2 * 8;
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

// Whether any of the warp's rows is there.
template <typename Tile, typename Block>
QGEN_DEVICE bool warp_has_rows(const Block& block) {
  return block.row_of(Tile::row_warp() * kWarpRows) < block.matrix(0).rows;
}

template <typename Tile>
class GemmBlock {
 public:
  using Warp = GemmWarp<Tile>;
  static constexpr bool kMinimumsFirst = false;
  static constexpr int kTilesAtOnce = Warp::kAtOnce;
  static constexpr bool kOverlaps = Warp::kOverlaps;

  QGEN_DEVICE explicit GemmBlock(const GemmArgs& args)
      : args_(args),
        first_row_(int(block_index().x) * Tile::kBlockRows),
        first_token_(int(block_index().y) * Tile::kBlockTokens) {
    codes_.begin(*this);
    inputs_.begin([&](int row) {
      const int64_t token = first_token_ + row;
      return token < args_.tokens                                                       ? token * args_.x.stride
             : row % kWarpTokens < round_up(tiles(row / kWarpTokens), kTilesAtOnce) * 8 ? TileInputs<Tile>::kZeros
                                                                                        : TileInputs<Tile>::kUnread;
    });
    tiles_ = warp_has_rows<Tile>(*this) ? tiles(Tile::token_warp()) : 0;
  }

  // Where things are in W: rows of the tile, 16 of which are of matrix(i), and the first columns of a step's windows.
  QGEN_DEVICE int steps() const { return (args_.w.cols + kStepColumns - 1) / kStepColumns; }
  QGEN_DEVICE const Matrix& matrix(int) const { return args_.w; }
  QGEN_DEVICE const Matrix& like() const { return args_.w; }  // has their columns, and their groups' width
  QGEN_DEVICE int row_of(int row) const { return first_row_ + row; }
  QGEN_DEVICE int column_of(int step, int window) const { return step * kStepColumns + window * Warp::kWindow; }
  // Of the warp's tokens, as many as there are; none where it has no rows.
  QGEN_DEVICE int tiles() const { return tiles_; }
  // Begin the copies of a step's codes and of its inputs to shared memory.
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
                     [](int n, int column) { return Tile::token_warp() * kWarpTokens + n * 8 + column; });
    const Matrix& w = args_.w;
    const int left = args_.tokens - first_token_, tokens = left < Tile::kBlockTokens ? left : Tile::kBlockTokens;
    QGEN_UNROLL_BY(1)
    for (int r = lane_index(); r < Tile::kBlockRows && first_row_ + r < w.rows; r += kWarp) {
      const int row = first_row_ + r;
      const float scale = Tile::kGrouped ? 1 : scale_at(w, first_group(w, row));
      const float add = w.bias != nullptr ? w.bias[row] : 0;
      const auto y_of = [&](int slot) { return args_.y + int64_t{first_token_ + slot} * args_.y_stride + row; };
      for_shared_sums(
          tokens, [&](int slot) { return args_.add ? *y_of(slot) : 0; },
          [&](int slot, float added) {
            const float result = sums[slot * Tile::kSumsRow + r] * scale * args_.x.factor[first_token_ + slot] + add;
            *y_of(slot) = args_.add ? added + result : result;
          });
    }
  }

 private:
  static_assert(Tile::kBlockTokens * Tile::kSumsRow * 4 <= Tile::kBytes);

  // Of the tokens of a warp: tiles of eight.
  QGEN_DEVICE int tiles(int token_warp) const {
    const int left = (args_.tokens - first_token_ - token_warp * kWarpTokens + 7) / 8;
    return left < 0 ? 0 : left < Warp::kTokenTiles ? left : Warp::kTokenTiles;
  }

  const GemmArgs& args_;
  const int first_row_, first_token_;
  int tiles_ = 0;
  TileCodes<Tile> codes_;
  TileInputs<Tile> inputs_;
};

template <typename Tile>
QGEN_KERNEL(kTileThreads, 1)
gemm_kernel(const GemmArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  GemmBlock<Tile> block(args);
  GemmWarp<Tile> warp;
  multiply_steps(block, warp, [&] { scope.wait_for_inputs(); });
  block.write_results(warp);
}

}  // namespace qgen::QGEN_BACKEND
