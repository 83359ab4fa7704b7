// A few tokens: the weights stream by once, straight from memory into the registers of matrix products (MMA), weights
// as the product's 16 rows and tokens as its 8 columns. Since any order of the columns of W is as good as another, as
// long as x has the same, each lane loads 16 (or 8) neighbouring codes of a row at once. (Field notes on such kernels:
// ONNX Runtime, docs/contrib_ops/cuda/matmul_block_scaled_fp8_experiments.md.)
//
// x goes in as the sum of two 16-bit floats, together 22 bits: up to 4 tokens use columns 2 t and 2 t + 1 for them,
// more tokens two products. Either way each token's numbers meet the same operations in the same order.
#pragma once

#include "kernels/device/codes.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/split.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kMmaRows = 16;
constexpr int kSlabPadding = 8;  // elements between the columns of x, against bank conflicts

// What a gemv kernel is made for, and the shape of a block's work, the same on host and device.
template <typename GridType, int kRowTilesOfBlock, bool kTwoProducts>
struct GemvTraits {
  using Grid = GridType;
  static constexpr Codes kCodes = Grid::kCodes;
  static constexpr int kLane = Grid::kLane;
  static constexpr int kRowTiles = kRowTilesOfBlock;  // MMA tiles of rows that a block has
  static constexpr bool kPairs = kTwoProducts;        // the parts of x are two products; else neighbouring columns
  static constexpr int kSums = kPairs ? 2 : 1;
  static constexpr bool kBf16 = kCodes == Codes::kBf16;
  static constexpr int kLaneBytes = kLane * kCodeBytes<kCodes>;  // 16 or 8
  static constexpr int kWindow = 4 * kLane;                      // columns that a warp takes at once
  // Blocks that share a processor: two, but where minimums take too many registers. Where few suffice a block of the
  // next launch has room beside them, and its weights come before its inputs.
  static constexpr bool kAlone = Grid::kMinimums && kRowTiles == 2;
  static constexpr bool kLean = kRowTiles == 1 && !(kCodes == Codes::kI8 && Grid::kGrouped);
  static constexpr int kBlocks = kPairs || kAlone ? 1 : 2, kResident = kBlocks + (kLean ? kEarlyBlocks : 0);
  // Stages of the ring of weights: windows that a warp has under way, some 4 KB, or 8 where few tokens leave room. The
  // loop over them is unrolled by as many, so that each has its place as a constant.
  static constexpr int kStages = kPairs ? 32 / kLaneBytes : kRowTiles == 2 ? 4 : 64 / kLaneBytes;
  static constexpr int kRound = kStages * kGemvWarps * kWindow;  // columns that a block takes at once
  static constexpr int kPieces = 2 * kRowTiles;  // of a lane in a window: rows g and g + 8 of each MMA tile
  static constexpr int kHeld =
      Grid::kGroups == 2 && kRowTiles == 2 ? 2 : 4;  // pieces of HeldInputs; few registers are left
  // Scales, then minimums, that come through the ring with the codes: (kinds, groups, rows). Numbers of two levels, of
  // one byte each, are loaded from where they lie.
  static constexpr int kRows = kRowTiles * kMmaRows, kGroups = Grid::kGroups < 1 ? 1 : Grid::kGroups;
  static constexpr bool kRingNumbers = Grid::kGrouped && Grid::kForm != ScaleForm::kTwoLevels;
  static constexpr int kNumbers = kRingNumbers ? kRows * kGroups * (Grid::kMinimums ? 2 : 1) : 0;
  static constexpr int kLaneNumbers = (kNumbers + kWarp - 1) / kWarp;  // that a lane asks for
  static constexpr int kNumberBytes = Grid::kForm == ScaleForm::kF16 ? 2 : 4;
  // Rows of the result that a tile makes: of a gate and what it gates each half.
  static constexpr int tile_rows(bool gated) { return gated ? kMmaRows : kRows; }
  // A stage of the ring: a window of a warp, and of all.
  static constexpr int kCodesBytes = kWarp * kPieces * kLaneBytes;
  static constexpr int kWarpStage = kCodesBytes + kNumbers * 4;
  static constexpr int kWarpRing = kStages * kWarpStage, kRingBytes = kGemvWarps * kWarpRing;
};

struct GemvKernelArgs {
  GemvArgs linear;
  int first_tile[4];  // of each part: what a block has at once are its tiles' rows
  int tiles;          // of all parts
  int slab;           // columns of x that are in shared memory at once, whole rounds
};

// Columns of x that are in shared memory at once: as many rounds as stay below so many bytes, at least one.
template <typename Traits>
constexpr int slab_of(int tokens, int64_t cols, int64_t bytes) {
  const int64_t rounds = bytes / (2 * tokens * Traits::kRound * 2),
                wanted = (cols + Traits::kRound - 1) / Traits::kRound;
  return int(Traits::kRound * (rounds < 1 ? 1 : rounds < wanted ? rounds : wanted));
}
// Bytes of shared memory that a block takes beside its ring.
template <typename Traits>
constexpr int64_t gemv_bytes(int tokens, int slab) {
  const int64_t floats =
      2 * kGemvWarps * tokens + 2 * tokens + int64_t{2} * kGemvWarps * Traits::kRowTiles * kMmaRows * tokens;
  return round_up(2 * tokens * int64_t{slab + kSlabPadding} * 2 + floats * 4, 16);
}
// Floats of shared memory that x takes: `columns` of 16-bit numbers.
QGEN_DEVICE int gemv_x_floats(int columns, int slab) { return columns * (slab + kSlabPadding) / 2; }

template <int kLaneBytes>
struct LaneBytes;
template <>
struct LaneBytes<16> {
  using Type = Bytes16;
  static QGEN_DEVICE void copy(void* to, const uint8_t* from, bool valid) { copy_once16(to, from, valid); }
};
template <>
struct LaneBytes<8> {
  using Type = Bytes8;
  static QGEN_DEVICE void copy(void* to, const uint8_t* from, bool valid) { copy_once8(to, from, valid); }
};

// A lane's codes of one window, and the numbers of its groups: of rows g and g + 8 of each MMA tile.
template <typename Traits>
struct GemvWindow {
  typename LaneBytes<Traits::kLaneBytes>::Type codes[Traits::kRowTiles][2];
  float scale[Traits::kRowTiles][2][Traits::kGroups], minimum[Traits::kRowTiles][2][Traits::kGroups];
  GroupLoads<typename Traits::Grid> groups[Traits::kRowTiles][2];  // of two levels
};

// What becomes of the sum of a row and a token before the epilogue. `scale`: of a row that has one; `inverse`:
// InputFactors.
template <typename Grid>
QGEN_DEVICE float product_of(const Matrix& w, int row, float total, float scale, float inverse) {
  if (!Grid::kGrouped) total *= scale;
  return fused_product(total, inverse, w.bias != nullptr ? w.bias[row] : 0);
}

// A block's work: ask_first(), keep_norm() and load_first_groups(), which do not wait for the inputs, measure_inputs()
// and fill_first_inputs(), then for each of its tiles multiply_tile(), store_sums() and write_results().
//
// Weights come through a ring in shared memory. Each lane asks for its own codes, some windows ahead and on into the
// block's next tiles, and reads back what it has asked for itself: no barrier among warps, and loads under way at all
// times. (A pipeline in registers shared the warp's few scoreboards among its stages: waiting for the oldest loads was
// waiting for the newest as well, which gave half of the bandwidth of an H200.)
template <typename Traits>
class GemvBlock {
 public:
  static constexpr int kRowTiles = Traits::kRowTiles;
  static constexpr Codes kCodes = Traits::kCodes;
  using Window = GemvWindow<Traits>;
  using Held = HeldInputs<Traits::kHeld>;
  using Sums = float[kRowTiles][Traits::kSums][4];

  // The block has tile `first` and every `step`-th behind it.
  QGEN_DEVICE GemvBlock(const GemvKernelArgs& gemv, int first, int step)
      : gemv_(gemv), args_(gemv.linear), gated_(args_.gated), step_(step), asked_tile_(first) {
    windows_ = (cols() + Traits::kWindow - 1) / Traits::kWindow;
    const int of_row = int(args_.part[0].row_bytes / Traits::kLaneBytes);
    loads_ = of_row < 4 * windows_ ? of_row : 4 * windows_;
  }

  QGEN_DEVICE int cols() const { return args_.part[0].cols; }
  QGEN_DEVICE int pieces() const { return pieces_of(cols()); }

  // Where the stages hand each other what they made, behind `used` bytes.
  QGEN_DEVICE void place_shared_memory(int used = 0) {
    uint8_t* const begin = shared_memory<uint8_t>() + used;
    x_ = reinterpret_cast<uint16_t*>(begin);
    scratch_ = reinterpret_cast<float*>(x_) + gemv_x_floats(columns(), gemv_.slab);
    factors_ = scratch_ + 2 * kGemvWarps * args_.tokens;
    inverses_ = factors_ + args_.tokens;
    sums_ = inverses_ + args_.tokens;
    ring_ = begin + gemv_bytes<Traits>(args_.tokens, gemv_.slab) + warp_index() * Traits::kWarpRing;
  }

  // As many windows as the ring has stages.
  QGEN_DEVICE void ask_first() {
    aim();
    QGEN_UNROLL
    for (int u = 0; u < Traits::kStages; ++u) ask(u);
  }
  QGEN_DEVICE void load_first_groups(Window& window, int tile) {
    use_rows(tile);
    load_groups(window, warp_index());
  }

  // The norm's weights of the first slab, which no launch before this one writes, where token 0 will be.
  QGEN_DEVICE void keep_norm() const {
    if (args_.norm == nullptr) return;
    for (int c = thread_index(); c < kept_pieces(); c += kGemvThreads)
      keep(load_floats4(args_.norm + 4 * c), x_ + 4 * c, x_ + stride() + 4 * c);
  }

  // What the tokens' factors are made of. `held`: of token 0, which become weighted.
  QGEN_DEVICE void measure_inputs(Held& held) {
    for (int t = args_.tokens - 1; t > 0; --t) {
      InputMeasure measure;
      measure_pieces(t, 0, measure);
      measure.store_of_warp(scratch_ + t * kGemvWarps * 2);
    }
    InputMeasure measure;
    QGEN_UNROLL
    for (int u = 0; u < Held::kPieces; ++u) {
      const int c = held.at(u);
      if (c >= pieces()) continue;
      const Floats4 x = held.piece[u];
      if (args_.norm != nullptr)
        held.piece[u] =
            product(x, c < kept_pieces() ? kept(x_ + 4 * c, x_ + stride() + 4 * c) : load_floats4(args_.norm + 4 * c));
      measure.add(x, held.piece[u]);
    }
    measure_pieces(0, Held::kPieces * kGemvThreads, measure);
    measure.store_of_warp(scratch_);
    barrier();
  }

  // The first slab of x as pairs of 16-bit floats, zeros behind the last column. Of one token every thread works out
  // the factor for itself, of several each warp that of one.
  QGEN_DEVICE void fill_first_inputs(const Held& held) {
    float of_only = 0;
    if (args_.tokens == 1) {
      of_only = find_factors(0, thread_index() == 0);
    } else {
      static_assert(kGemvTokens <= kGemvWarps);
      if (warp_index() < args_.tokens) find_factors(warp_index(), lane_index() == 0);
      barrier();
    }
    for (int t = 0; t < args_.tokens; ++t) {
      const float factor = args_.tokens == 1 ? of_only : factors_[t];
      if (args_.part[0].column_order != nullptr) {
        fill_ordered(t, 0, factor);
        continue;
      }
      const int there = kept_pieces();
      int first = 0;
      if (t == 0) {
        QGEN_UNROLL
        for (int u = 0; u < Held::kPieces; ++u) {
          if (held.at(u) < there) put(0, held.at(u), held.piece[u], factor);
        }
        first = Held::kPieces * kGemvThreads;
      }
      QGEN_UNROLL_BY(4)
      for (int c = first + thread_index(); c < there; c += kGemvThreads)
        put(t, c, kept(highs_of(t) + 4 * c, lows_of(t) + 4 * c), factor);
      fill_zeros(t, there);
    }
    barrier();
  }
  // The same of columns [begin, begin + slab) of a later slab.
  QGEN_DEVICE void fill_inputs(int begin) {
    for (int t = 0; t < args_.tokens; ++t) {
      const float factor = factors_[t];
      if (args_.part[0].column_order != nullptr) {
        fill_ordered(t, begin, factor);
        continue;
      }
      const int left = pieces() - begin / 4, there = left < gemv_.slab / 4 ? left : gemv_.slab / 4;
      for_pieces(args_.x + t * args_.x_stride + begin, 0, there, [&](int c, const Floats4& x) {
        put(t, c, args_.norm != nullptr ? product(x, load_floats4(args_.norm + begin + 4 * c)) : x, factor);
      });
      fill_zeros(t, there);
    }
  }

  // What the thread's result of a tile needs when its sum is there: asked for before the tile is multiplied, so that it
  // does not wait then.
  QGEN_DEVICE void load_result(int tile) {
    static_assert(Traits::kRows * kGemvTokens <= kGemvThreads);
    const int rows = tile_rows(), part = part_of(tile), t = thread_index() / rows,
              row = first_row_of(tile, part) + thread_index() % rows;
    if (t >= args_.tokens || row >= args_.part[part].rows) return;
    if (args_.epilogue.add) result_.added = args_.y[part][t * args_.y_stride[part] + row];
    if constexpr (!Traits::Grid::kGrouped) {
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Matrix& w = args_.part[gated_ ? i : part];
        if (i == 0 || gated_) result_.scale[i] = scale_at(w, first_group(w, row));
      }
    }
  }

  // sum = all products of a tile. `first`: whether fill_first_inputs() has just left the first slab of x.
  QGEN_DEVICE void multiply_tile(int tile, bool first, Window& now, Sums& sum) {
    const int slab = gemv_.slab;
    load_result(tile);
    load_biases();
    for (int begin = 0; begin < cols(); begin += slab) {
      if (slab < cols() && !(first && begin == 0)) {
        barrier();
        fill_inputs(begin);
        barrier();
      }
      // Each warp takes every kGemvWarps-th window; a slab has whole rounds of them.
      const int from = begin / Traits::kWindow, last = (begin + slab) / Traits::kWindow;
      const int end = last < windows_ ? last : windows_;
      QGEN_UNROLL_BY(1)
      for (int first_window = from; first_window < end; first_window += Traits::kStages * kGemvWarps) {
        aim_further();
        QGEN_UNROLL
        for (int u = 0; u < Traits::kStages; ++u) {
          const int window = first_window + u * kGemvWarps + warp_index();
          if (window < end) {
            take(now, u, window);
            multiply_window(now, window, from, sum);
            if (window + kGemvWarps < windows_) load_groups(now, window + kGemvWarps);  // of two levels
          }
          ask(u);
        }
      }
    }
    // While the sums are put together the first groups of the next tile come.
    if (tile + step_ < gemv_.tiles) load_first_groups(now, tile + step_);
  }

  // sum += the products of a window, whose first column in shared memory is that of window `first`.
  QGEN_DEVICE void multiply_window(const Window& loads, int window, int first, Sums& sum) {
    using Grid = typename Traits::Grid;
    constexpr int kGroups = GroupLoads<Grid>::kGroups, kSteps = Traits::kLane / 4 / kGroups;  // of a group
    uint32_t b[Traits::kSums][Traits::kLane / 2];
    load_inputs(window - first, b);
    const auto inputs = [&](int s, int step, uint32_t(&two)[2]) {
      two[0] = b[s][2 * step];
      two[1] = b[s][2 * step + 1];
    };
    [[maybe_unused]] float x_sum[kGroups][Traits::kSums][4] = {};
    if constexpr (Grid::kMinimums) {
      QGEN_UNROLL
      for (int step = 0; step < kGroups * kSteps; ++step) {
        QGEN_UNROLL
        for (int s = 0; s < Traits::kSums; ++s) {
          uint32_t two[2];
          inputs(s, step, two);
          add_inputs(x_sum[step / kSteps][s], two);
        }
      }
    }
    QGEN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      typename LaneBytes<Traits::kLaneBytes>::Type codes[2] = {loads.codes[i][0], loads.codes[i][1]};
      if constexpr (kGroups == 2) {
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) part_groups(codes[h]);
      }
      QGEN_UNROLL
      for (int j = 0; j < kGroups; ++j) {
        uint32_t bias[2];
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) {
          if constexpr (Grid::kGrouped) {
            bias[h] = bias_of(i, group_[i][h] + (window * Traits::kWindow >> matrix(i).group_shift) + j);
          } else {
            bias[h] = bias_[i][h];
          }
        }
        if constexpr (Grid::kMinimums) {
          QGEN_UNROLL
          for (int h = 0; h < 2; ++h) {
            const float minimum = loads.minimum[i][h][j];
            QGEN_UNROLL
            for (int s = 0; s < Traits::kSums; ++s) {
              sum[i][s][2 * h] = fused_product(minimum, x_sum[j][s][2 * h], sum[i][s][2 * h]);
              sum[i][s][2 * h + 1] = fused_product(minimum, x_sum[j][s][2 * h + 1], sum[i][s][2 * h + 1]);
            }
          }
        }
        float group_sum[Traits::kSums][4] = {};
        float(&into)[Traits::kSums][4] = Grid::kGrouped ? group_sum : sum[i];
        QGEN_UNROLL
        for (int step = j * kSteps; step < (j + 1) * kSteps; ++step) {
          uint32_t a[4];
          if constexpr (kCodeBytes<kCodes> == 2) {
            QGEN_UNROLL
            for (int h = 0; h < 2; ++h) {
              a[h] = codes[h].word[2 * step];
              a[h + 2] = codes[h].word[2 * step + 1];
            }
          } else {
            QGEN_UNROLL
            for (int h = 0; h < 2; ++h) four_codes<kCodes>(codes[h].word[step], bias[h], a[h], a[h + 2]);
          }
          QGEN_UNROLL
          for (int s = 0; s < Traits::kSums; ++s) {
            uint32_t two[2];
            inputs(s, step, two);
            multiply_add<kCodes>(into[s], a, two);
          }
        }
        if constexpr (Grid::kGrouped) {
          QGEN_UNROLL
          for (int h = 0; h < 2; ++h) {
            const float scale = loads.scale[i][h][j];
            QGEN_UNROLL
            for (int s = 0; s < Traits::kSums; ++s) {
              sum[i][s][2 * h] = fused_product(scale, group_sum[s][2 * h], sum[i][s][2 * h]);
              sum[i][s][2 * h + 1] = fused_product(scale, group_sum[s][2 * h + 1], sum[i][s][2 * h + 1]);
            }
          }
        }
      }
    }
  }

  // High and low parts together, into shared memory: of two tiles by turns, so that the next one's need not wait until
  // these are read.
  QGEN_DEVICE void store_sums(const Sums& sum) {
    second_sums_ = !second_sums_;
    QGEN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        float* const out = sums_of(warp_index(), i, g() + 8 * h);
        if constexpr (Traits::kPairs) {
          if (2 * q() < args_.tokens) out[2 * q()] = sum[i][0][2 * h] + sum[i][1][2 * h];
          if (2 * q() + 1 < args_.tokens) out[2 * q() + 1] = sum[i][0][2 * h + 1] + sum[i][1][2 * h + 1];
        } else {
          if (q() < args_.tokens) out[q()] = sum[i][0][2 * h] + sum[i][0][2 * h + 1];
        }
      }
    }
    barrier();
  }

  // The warps' sums together, scales, biases, the epilogue.
  QGEN_DEVICE void write_results(int tile) const {
    const int part = part_of(tile);
    for_results(tile, [&](int t, int row, const float(&result)[2]) {
      const float activation = activated(args_.epilogue.activation, result[0]);
      args_.y[part][t * args_.y_stride[part] + row] =
          stored_product(args_.epilogue, gated_ ? activation * result[1] : activation, result_.added);
    });
  }

  // store(token, row, its product, or those of the gate and of what it gates) for all results before the epilogue.
  template <typename Store>
  QGEN_DEVICE void for_results(int tile, const Store& store) const {
    const int rows = tile_rows(), part = part_of(tile), first_row = first_row_of(tile, part);
    const int t = thread_index() / rows, r = thread_index() % rows, row = first_row + r;
    if (t >= args_.tokens || row >= args_.part[part].rows) return;
    float result[2] = {};
    QGEN_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (i == 1 && !gated_) continue;
      float total = 0;
      QGEN_UNROLL
      for (int from = 0; from < kGemvWarps; ++from) total += sums_of(from, gated_ ? i : r / kMmaRows, r % kMmaRows)[t];
      result[i] =
          product_of<typename Traits::Grid>(args_.part[gated_ ? i : part], row, total, result_.scale[i], inverses_[t]);
    }
    store(t, row, result);
  }

 private:
  QGEN_DEVICE static int g() { return lane_index() / 4; }
  QGEN_DEVICE static int q() { return lane_index() % 4; }
  // Rows of a tile, the part that it is of, and its first row there.
  QGEN_DEVICE int tile_rows() const { return Traits::tile_rows(gated_); }
  QGEN_DEVICE int part_of(int tile) const {
    int part = 0;
    while (!gated_ && part + 1 < args_.parts && tile >= gemv_.first_tile[part + 1]) ++part;
    return part;
  }
  QGEN_DEVICE int first_row_of(int tile, int part) const { return (tile - gemv_.first_tile[part]) * tile_rows(); }
  // The row of `w`, a part's matrix, that is row r of MMA tile i of a tile that begins at `first_row`; or the last one
  // behind it. A gate and what it gates are two matrices.
  QGEN_DEVICE int row_of(const Matrix& w, int first_row, int i, int r) const {
    const int row = first_row + (gated_ ? 0 : i * kMmaRows) + r;
    return row < w.rows ? row : w.rows - 1;
  }
  // use(i, h, matrix, row) for the lane's rows: g and g + 8 of MMA tile i.
  template <typename Use>
  QGEN_DEVICE void for_rows(int tile, const Use& use) const {
    const int part = part_of(tile), first_row = first_row_of(tile, part);
    QGEN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      const Matrix& w = args_.part[gated_ ? i : part];
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) use(i, h, w, row_of(w, first_row, i, g() + 8 * h));
    }
  }

  // A stage of the warp's ring, and in it the lane's codes of row g + 8 h of MMA tile i.
  QGEN_DEVICE uint8_t* stage(int u) const { return ring_ + u * Traits::kWarpStage; }
  QGEN_DEVICE uint8_t* codes_at(int u, int i, int h) const {
    return stage(u) + ((2 * i + h) * kWarp + lane_index()) * Traits::kLaneBytes;
  }
  // What is asked for next: the first windows of a tile, or of none behind the last.
  QGEN_DEVICE void aim() {
    asked_windows_ = asked_tile_ < gemv_.tiles ? windows_ : 0;
    asked_first_ = 0;
    if (asked_windows_ == 0) return;
    for_rows(asked_tile_, [&](int i, int h, const Matrix& w, int row) {
      asked_[i][h] = w.codes + row * w.row_bytes + (4 * warp_index() + q()) * Traits::kLaneBytes;
    });
    if constexpr (Traits::kRingNumbers) {
      const int part = part_of(asked_tile_), r = lane_index() % Traits::kRows, i = r / kMmaRows;
      const Matrix& w = args_.part[gated_ ? i : part];
      asked_group_ = first_group(w, row_of(w, first_row_of(asked_tile_, part), i, r % kMmaRows));
      group_shift_ = w.group_shift;
      QGEN_UNROLL
      for (int m = 0; m < Traits::kLaneNumbers; ++m) {
        const int n = (m * kWarp + lane_index()) / Traits::kRows, j = n % Traits::kGroups;
        const void* const grid = n < Traits::kGroups ? w.scale : static_cast<const void*>(w.minimum);
        asked_numbers_[m] = static_cast<const uint8_t*>(grid) + int64_t{j} * Traits::kNumberBytes;
      }
    }
  }
  // The next windows of the tile, as many as the ring has stages, or the first of the next tile.
  QGEN_DEVICE void aim_further() {
    asked_first_ += Traits::kStages * kGemvWarps;
    if (asked_first_ < asked_windows_) {
      QGEN_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) asked_[i][h] += Traits::kStages * 4 * kGemvWarps * Traits::kLaneBytes;
      }
    } else {
      asked_tile_ += step_;
      aim();
    }
  }
  QGEN_DEVICE void ask(int u) {
    const int window = asked_first_ + u * kGemvWarps + warp_index();
    if (window < asked_windows_) {
      const bool inside = 4 * window + q() < loads_;
      QGEN_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h)
          LaneBytes<Traits::kLaneBytes>::copy(codes_at(u, i, h), asked_[i][h] + u * 4 * kGemvWarps * Traits::kLaneBytes,
                                              inside);
      }
      if constexpr (Traits::kRingNumbers) {
        const int group = asked_group_ + (window * Traits::kWindow >> group_shift_);
        QGEN_UNROLL
        for (int m = 0; m < Traits::kLaneNumbers; ++m) {
          const int number = m * kWarp + lane_index();
          if (number < Traits::kNumbers)
            copy_async4(stage(u) + Traits::kCodesBytes + number * 4,
                        whole_word(asked_numbers_[m] + int64_t{group} * Traits::kNumberBytes), true);
        }
      }
    }
    copy_async_commit();
  }
  // The four bytes that a number lies in: copies have no fewer.
  QGEN_DEVICE static const uint8_t* whole_word(const uint8_t* number) {
    if constexpr (Traits::kNumberBytes == 4) return number;
    return number - (reinterpret_cast<uintptr_t>(number) & 2);
  }
  // The window that was asked for first.
  QGEN_DEVICE void take(Window& now, int u, [[maybe_unused]] int window) const {
    copy_async_wait<Traits::kStages - 1>();
    // Numbers have been asked for by other lanes.
    if constexpr (Traits::kRingNumbers) warp_barrier();
    QGEN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        using Type = typename LaneBytes<Traits::kLaneBytes>::Type;
        now.codes[i][h] = *reinterpret_cast<const Type*>(codes_at(u, i, h));
        QGEN_UNROLL
        for (int j = 0; j < Traits::kGroups; ++j) {
          if constexpr (Traits::kRingNumbers) {
            const uint8_t* const words = stage(u) + Traits::kCodesBytes + (i * kMmaRows + g() + 8 * h) * 4;
            now.scale[i][h][j] = number_in(words + j * Traits::kRows * 4, i, h, window, j);
            if constexpr (Traits::Grid::kMinimums)
              now.minimum[i][h][j] = number_in(words + (Traits::kGroups + j) * Traits::kRows * 4, i, h, window, j);
          } else if constexpr (Traits::Grid::kGrouped) {
            now.scale[i][h][j] = now.groups[i][h].scale(j);
            if constexpr (Traits::Grid::kMinimums) now.minimum[i][h][j] = now.groups[i][h].minimum(j);
          }
        }
      }
    }
    if constexpr (Traits::kRingNumbers) warp_barrier();
  }
  QGEN_DEVICE float number_in(const uint8_t* word, int i, int h, int window, int j) const {
    if constexpr (Traits::kNumberBytes == 4) return *reinterpret_cast<const float*>(word);
    const Matrix& w = matrix(i);
    const uint32_t at = uint32_t(reinterpret_cast<uintptr_t>(w.scale) / 2) +
                        uint32_t(group_[i][h] + (window * Traits::kWindow >> w.group_shift) + j);
    return f16_value(reinterpret_cast<const uint16_t*>(word)[at & 1]);
  }

  // The tile whose rows are multiplied.
  QGEN_DEVICE void use_rows(int tile) {
    part_ = part_of(tile);
    for_rows(tile, [&](int i, int h, const Matrix& w, int row) { group_[i][h] = first_group(w, row); });
  }
  QGEN_DEVICE const Matrix& matrix(int i) const { return args_.part[gated_ ? i : part_]; }
  QGEN_DEVICE void load_groups(Window& window, int index) const {
    if constexpr (Traits::Grid::kGrouped && !Traits::kRingNumbers) {
      // Behind the last window any scale will do: the codes are zeros.
      const int column = (index < windows_ ? index : windows_ - 1) * Traits::kWindow;
      QGEN_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        const Matrix& w = matrix(i);
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) window.groups[i][h].load(w, group_[i][h] + (column >> w.group_shift));
      }
    }
  }
  // Zero points of whole rows, as biases that are added to codes. Those of groups are read with each group: kept here,
  // they would take registers that the loop does not have.
  QGEN_DEVICE void load_biases() {
    if constexpr (!Traits::Grid::kGrouped) {
      QGEN_UNROLL
      for (int i = 0; i < kRowTiles; ++i) {
        QGEN_UNROLL
        for (int h = 0; h < 2; ++h) bias_[i][h] = bias_of(i, group_[i][h]);
      }
    }
  }
  // (warps, MMA tiles, 16, tokens), twice.
  QGEN_DEVICE float* sums_of(int warp, int tile, int row) const {
    return sums_ + (((second_sums_ * kGemvWarps + warp) * kRowTiles + tile) * kMmaRows + row) * args_.tokens;
  }
  // Of x in shared memory: high and low of token 0, of token 1, ...
  QGEN_DEVICE int columns() const { return 2 * args_.tokens; }
  QGEN_DEVICE int stride() const { return gemv_.slab + kSlabPadding; }
  QGEN_DEVICE uint32_t bias_of(int i, int group) const {
    return i8_bias(zero_point_at<typename Traits::Grid>(matrix(i), group));
  }

  // Of a window of two groups, lanes q = 0, 1 have loaded the codes of the first and 2, 3 those of the second. Each
  // gives half of them away, so that word j of every lane is of group j.
  QGEN_DEVICE static void part_groups(Bytes8& codes) {
    const bool second = q() >= 2;
    const uint32_t taken = shuffle_xor_bits(second ? codes.word[0] : codes.word[1], 2);
    codes = second ? Bytes8{{taken, codes.word[1]}} : Bytes8{{codes.word[0], taken}};
  }
  // The first column of x of this lane's codes in a window; of two groups, that of the first, whose second is 16
  // behind.
  QGEN_DEVICE static int first_column() {
    return Traits::Grid::kGroups == 2 ? q() % 2 * 8 + q() / 2 * 4 : q() * Traits::kLane;
  }

  // Pieces of x that stay between measure_inputs() and fill_first_inputs(): those of the first slab.
  QGEN_DEVICE int kept_pieces() const {
    if (args_.part[0].column_order != nullptr) return 0;
    return pieces() < gemv_.slab / 4 ? pieces() : gemv_.slab / 4;
  }

  // += a token's squares and largest weighted input, of pieces from `first` on. The weighted inputs of the first slab
  // stay in shared memory for fill_first_inputs(), in place of the norm's weights at last: a thread reads there what it
  // has written.
  QGEN_DEVICE void measure_pieces(int t, int first, InputMeasure& measure) const {
    const float* const row = args_.x + t * args_.x_stride;
    const bool norm = args_.norm != nullptr;
    const int there = kept_pieces(), behind = first < there ? there : first;
    for_pieces(row, first, there, [&](int c, const Floats4& x) {
      const Floats4 weighted = norm ? product(x, kept(x_ + 4 * c, x_ + stride() + 4 * c)) : x;
      measure.add(x, weighted);
      keep(weighted, highs_of(t) + 4 * c, lows_of(t) + 4 * c);
    });
    for_pieces(row, behind, pieces(), [&](int c, const Floats4& x) {
      measure.add(x, norm ? product(x, load_floats4(args_.norm + 4 * c)) : x);
    });
  }

  // A token's factor: that of its norm, times the power of two that suits F16.
  QGEN_DEVICE float find_factors(int t, bool stores) const {
    const InputFactors of_token =
        input_factors<Traits::kBf16>(scratch_ + t * kGemvWarps * 2, cols(), args_.norm != nullptr, args_.norm_eps);
    if (stores) {
      factors_[t] = of_token.factor;
      inverses_[t] = of_token.inverse;
    }
    return of_token.factor;
  }

  QGEN_DEVICE uint16_t* highs_of(int t) const { return x_ + 2 * t * stride(); }
  QGEN_DEVICE uint16_t* lows_of(int t) const { return highs_of(t) + stride(); }
  // Piece c of the slab.
  QGEN_DEVICE void put(int t, int c, const Floats4& weighted, float factor) const {
    store_split<Traits::kBf16>(weighted, factor, highs_of(t) + 4 * c, lows_of(t) + 4 * c);
  }
  QGEN_DEVICE void fill_zeros(int t, int there) const {
    for (int c = there + thread_index(); c < gemv_.slab / 4; c += kGemvThreads) put(t, c, {}, 1);
  }
  QGEN_DEVICE void fill_ordered(int t, int begin, float factor) const {
    const float* const row = args_.x + t * args_.x_stride;
    for (int c = thread_index(); c < gemv_.slab; c += kGemvThreads) {
      float value = 0;
      if (begin + c < cols()) {
        const int from = args_.part[0].column_order[begin + c];
        value = rounded_product(rounded_product(row[from], args_.norm != nullptr ? args_.norm[from] : 1), factor);
      }
      split<Traits::kBf16>(value, highs_of(t)[c], lows_of(t)[c]);
    }
  }

  // The columns of x of this lane's codes: of the high part and, for pairs, of the low part.
  QGEN_DEVICE void load_inputs(int window_of_slab, uint32_t (&b)[Traits::kSums][Traits::kLane / 2]) const {
    QGEN_UNROLL
    for (int s = 0; s < Traits::kSums; ++s) {
      const int column = Traits::kPairs ? 2 * g() + s : g();
      const uint16_t* const x =
          x_ + (column < columns() ? column : 0) * stride() + window_of_slab * Traits::kWindow + first_column();
      if constexpr (Traits::Grid::kGroups == 2) {
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) {
          Bytes8 v = {};
          if (column < columns()) v = reinterpret_cast<const Bytes8*>(x)[4 * i];
          b[s][2 * i] = v.word[0];
          b[s][2 * i + 1] = v.word[1];
        }
      } else {
        QGEN_UNROLL
        for (int i = 0; i < Traits::kLane / 8; ++i) {
          Bytes16 v = {};
          if (column < columns()) v = reinterpret_cast<const Bytes16*>(x)[i];
          QGEN_UNROLL
          for (int j = 0; j < 4; ++j) b[s][4 * i + j] = v.word[j];
        }
      }
    }
  }

  const GemvKernelArgs& gemv_;
  const GemvArgs& args_;
  const bool gated_;
  const int step_;
  int windows_ = 0;  // of a row
  int loads_ = 0;    // of a row
  // What is asked for next.
  int asked_tile_, asked_first_ = 0, asked_windows_ = 0;
  const uint8_t* asked_[kRowTiles][2];
  [[maybe_unused]] const uint8_t* asked_numbers_[Traits::kLaneNumbers > 0 ? Traits::kLaneNumbers : 1];
  [[maybe_unused]] int asked_group_ = 0, group_shift_ = 0;
  // What is multiplied.
  int part_ = 0;
  int group_[kRowTiles][2];      // the first of the row's in the grid
  uint32_t bias_[kRowTiles][2];  // of rows with one zero point each
  // Shared memory.
  uint16_t* x_ = nullptr;      // (columns, stride)
  float* scratch_ = nullptr;   // (tokens, warps, 2)
  float* factors_ = nullptr;   // (tokens): of the norm, times the power of two
  float* inverses_ = nullptr;  // (tokens): what undoes the power of two
  float* sums_ = nullptr;      // sums_of()
  uint8_t* ring_ = nullptr;    // the warp's
  bool second_sums_ = true;
  struct {
    float added = 0, scale[2] = {1, 1};
  } result_;
};

// store(tile) for each tile of a block whose first weights and inputs are on their way, when its sums are there.
template <typename Traits, typename Store>
QGEN_DEVICE void multiply_tiles(GemvBlock<Traits>& block, const GemvKernelArgs& args, GemvWindow<Traits>& window,
                                HeldInputs<Traits::kHeld>& held, int first, int step, const Store& store) {
  block.measure_inputs(held);
  block.fill_first_inputs(held);
  QGEN_UNROLL_BY(1)
  for (int tile = first; tile < args.tiles; tile += step) {
    float sum[Traits::kRowTiles][Traits::kSums][4] = {};
    block.multiply_tile(tile, tile == first, window, sum);
    block.store_sums(sum);
    store(tile);
  }
  copy_async_wait<0>();
}

template <typename Traits>
QGEN_KERNEL(kGemvThreads, Traits::kResident)
gemv_kernel(const GemvKernelArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  const int first = int(block_index().x), step = int(grid_size().x);
  GemvBlock<Traits> block(args, first, step);

  // The first weights are on their way before the inputs are there.
  GemvWindow<Traits> window;
  block.place_shared_memory();
  block.ask_first();
  block.keep_norm();
  block.load_first_groups(window, first);
  scope.wait_for_inputs();
  HeldInputs<Traits::kHeld> held;
  held.load(args.linear.x, block.pieces());
  multiply_tiles(block, args, window, held, first, step, [&](int tile) { block.write_results(tile); });
}

// The blocks of a launch, and how much of x each holds at once: as many blocks as the processors have room for at once,
// where there are as many tiles.
template <typename Traits>
struct GemvLaunch {
  unsigned blocks = 0;
  int slab = 0;
  int64_t bytes = 0;

  // `extra` bytes of a block for its caller.
  GemvLaunch(const Stream& stream, int tokens, int64_t cols, int tiles, int64_t extra = 0) {
    constexpr int64_t kKept = 1 << 10;    // of each block, by the driver
    constexpr int64_t kSomeX = 32 << 10;  // bytes of x, where not all of it has room; else one round
    for (int count = Traits::kBlocks; count > 0; --count) {
      const int at_once = count * stream.processors;
      blocks = unsigned(at_once < tiles ? at_once : tiles);
      const int64_t share = stream.shared_of_processor / count - kKept,
                    room = share < stream.shared_of_block ? share : stream.shared_of_block;
      for (const int64_t x : {int64_t{1} << 30, kSomeX, int64_t{0}}) {
        slab = slab_of<Traits>(tokens, cols, x);
        bytes = extra + gemv_bytes<Traits>(tokens, slab) + Traits::kRingBytes;
        if (bytes <= room) return;
      }
    }
  }
};

}  // namespace qgen::QGEN_BACKEND
