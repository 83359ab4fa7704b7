// A few tokens: the weights stream by once, straight from memory into the registers of matrix products (MMA), weights
// as the product's 16 rows and tokens as its 8 columns. Since any order of the columns of W is as good as another, as
// long as x has the same, each lane loads 16 (or 8) neighbouring codes of a row at once. (Field notes on such kernels:
// ONNX Runtime, docs/contrib_ops/cuda/matmul_block_scaled_fp8_experiments.md.)
//
// x goes in as the sum of two 16-bit floats, together 22 bits: up to 4 tokens use columns 2 t and 2 t + 1 for them,
// more tokens two products. Either way each token's numbers meet the same operations in the same order.
#pragma once

#include "kernels/device/codes.cuh"
#include "kernels/device/fetch.cuh"
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
  // Blocks that share a processor: two, but where minimums take too many registers.
  static constexpr bool kAlone = Grid::kMinimums && kRowTiles == 2;
  static constexpr int kBlocks = kPairs || kAlone ? 1 : 2;
  // Windows; as many bytes of a block that is alone as of two.
  static constexpr bool kFew = kLaneBytes == 16 || Grid::kMinimums || Grid::kForm == ScaleForm::kTwoLevels;
  static constexpr int kInFlight = kAlone ? 4 : (kFew ? 4 : 6) / kRowTiles;
  static constexpr int kRound = kGemvWarps * kInFlight * kWindow;  // columns
};

struct GemvKernelArgs {
  GemvArgs linear;
  int first_block[4];  // of each part
  int slab;            // columns of x that are in shared memory at once, whole rounds
};

// Columns of x that are in shared memory at once: as many rounds as stay below so many bytes, at least one.
constexpr int64_t kSlabBytes = 64 << 10;
template <typename Traits>
constexpr int slab_of(int tokens, int64_t cols) {
  const int64_t rounds = kSlabBytes / (2 * tokens * Traits::kRound * 2),
                wanted = (cols + Traits::kRound - 1) / Traits::kRound;
  return int(Traits::kRound * (rounds < 1 ? 1 : rounds < wanted ? rounds : wanted));
}
// Bytes of shared memory that a block takes.
template <typename Traits>
constexpr int64_t gemv_bytes(int tokens, int slab) {
  const int64_t floats =
      2 * kGemvWarps * kGemvTokens + 2 * kGemvTokens + kGemvWarps * Traits::kRowTiles * kMmaRows * kGemvTokens;
  return 2 * tokens * int64_t{slab + kSlabPadding} * 2 + floats * 4;
}
// Floats of shared memory that x takes: `columns` of 16-bit numbers.
QGEN_DEVICE int gemv_x_floats(int columns, int slab) { return columns * (slab + kSlabPadding) / 2; }

template <int kLaneBytes>
struct LaneBytes;
template <>
struct LaneBytes<16> {
  using Type = Bytes16;
  static QGEN_DEVICE Bytes16 load(const uint8_t* p) { return load_once16(p); }
};
template <>
struct LaneBytes<8> {
  using Type = Bytes8;
  static QGEN_DEVICE Bytes8 load(const uint8_t* p) { return load_once8(p); }
};

// One warp's loads of one window: rows g and g + 8 of each MMA tile.
template <typename Traits>
struct GemvLoads {
  typename LaneBytes<Traits::kLaneBytes>::Type codes[Traits::kRowTiles][2];
  GroupLoads<typename Traits::Grid> groups[Traits::kRowTiles][2];
};

// What a lane needs of its two rows of an MMA tile.
struct GemvRow {
  uint32_t load;  // the first of the lane's loads of the row, counted from the first of the matrix
  int group;      // the first of the row's in the grid
};

// What becomes of the sum of a row and a token before the epilogue. `inverse`: InputFactors.
template <typename Grid>
QGEN_DEVICE float product_of(const Matrix& w, int row, float total, float inverse) {
  if (!Grid::kGrouped) total *= scale_at(w, first_group(w, row));
  return fused_product(total, inverse, w.bias != nullptr ? w.bias[row] : 0);
}

// A block's work, in stages: load_window(), measure_inputs(), then for each slab of columns fill_inputs() and
// multiply_window(), at last store_sums() and write_results(). keep_norm() and the first load_window() do not wait for
// the inputs.
template <typename Traits>
class GemvBlock {
 public:
  static constexpr int kRowTiles = Traits::kRowTiles;
  static constexpr Codes kCodes = Traits::kCodes;
  using Loads = GemvLoads<Traits>;
  using Sums = float[kRowTiles][Traits::kSums][4];

  // `block`: of those that all parts' rows make.
  QGEN_DEVICE GemvBlock(const GemvKernelArgs& gemv, int block) : gemv_(gemv), args_(gemv.linear), gated_(args_.gated) {
    while (!gated_ && part_ + 1 < args_.parts && block >= gemv.first_block[part_ + 1]) ++part_;
    first_row_ = (block - gemv.first_block[part_]) * (gated_ ? kMmaRows : kRowTiles * kMmaRows);
    QGEN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      const Matrix& w = matrix(i);
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int row = first_row_ + (gated_ ? 0 : i * kMmaRows) + g() + 8 * h;
        const int valid = row < w.rows ? row : w.rows - 1;
        rows_[i][h] = {uint32_t(valid * w.row_bytes / Traits::kLaneBytes + q()), first_group(w, valid)};
      }
    }
    windows_ = (cols() + Traits::kWindow - 1) / Traits::kWindow;
    const int of_row = int(shape().row_bytes / Traits::kLaneBytes);
    loads_ = of_row < 4 * windows_ ? of_row : 4 * windows_;
  }

  QGEN_DEVICE int cols() const { return shape().cols; }
  QGEN_DEVICE int windows() const { return windows_; }

  QGEN_DEVICE void load_window(Loads& loads, int window) const {
    const uint32_t load = 4 * uint32_t(window);
    const bool inside = int(load) + q() < loads_;
    // Behind the last window any scale will do: the codes are zeros.
    const int column = (window < windows_ ? window : windows_ - 1) * Traits::kWindow;
    QGEN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      const Matrix& w = matrix(i);
      [[maybe_unused]] const int group = column >> w.group_shift;
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        if (inside) {
          const int64_t at = int64_t(rows_[i][h].load + load) * Traits::kLaneBytes;
          loads.codes[i][h] = LaneBytes<Traits::kLaneBytes>::load(w.codes + at);
        } else {
          loads.codes[i][h] = {};
        }
        if constexpr (Traits::Grid::kGrouped) loads.groups[i][h].load(w, rows_[i][h].group + group);
      }
    }
  }

  // Where the stages hand each other what they made, behind `used` bytes.
  QGEN_DEVICE void place_shared_memory(int used = 0) {
    x_ = reinterpret_cast<uint16_t*>(shared_memory<uint8_t>() + used);
    scratch_ = reinterpret_cast<float*>(x_) + gemv_x_floats(columns(), gemv_.slab);
    factors_ = scratch_ + 2 * kGemvWarps * kGemvTokens;
    inverses_ = factors_ + kGemvTokens;
    sums_ = inverses_ + kGemvTokens;
  }

  // The norm's weights of the first slab, which no launch before this one writes, where token 0 will be.
  QGEN_DEVICE void keep_norm() const {
    if (args_.norm == nullptr) return;
    for (int c = thread_index(); c < kept_pieces(); c += kGemvThreads)
      keep(load_floats4(args_.norm + 4 * c), x_ + 4 * c, x_ + stride() + 4 * c);
  }

  // Each token's factor: that of its norm, times the power of two that suits F16.
  QGEN_DEVICE void measure_inputs() {
    for (int t = args_.tokens - 1; t >= 0; --t) measure_token(t);
    barrier();
    if (const int t = thread_index(); t < args_.tokens) {
      const InputFactors of_token =
          input_factors<Traits::kBf16>(scratch_ + t * kGemvWarps * 2, cols(), args_.norm != nullptr, args_.norm_eps);
      factors_[t] = of_token.factor;
      inverses_[t] = of_token.inverse;
    }
    barrier();
  }

  // Columns [begin, begin + slab) of x as pairs of 16-bit floats, zeros behind the last. kFirst: begin is 0.
  template <bool kFirst>
  QGEN_DEVICE void fill_inputs(int begin) {
    for (int t = 0; t < args_.tokens; ++t) {
      uint16_t* const highs = x_ + 2 * t * stride();
      if (shape().column_order != nullptr) {
        fill_ordered(t, begin, highs, highs + stride());
      } else {
        fill_token<kFirst>(t, begin, highs, highs + stride());
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
        for (int h = 0; h < 2; ++h) bias_[i][h] = bias_of(i, rows_[i][h].group);
      }
    }
  }

  // sum += the products of a window, whose first column in shared memory is that of window `first`.
  QGEN_DEVICE void multiply_window(const Loads& loads, int window, int first, Sums& sum) {
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
            bias[h] = bias_of(i, rows_[i][h].group + (window * Traits::kWindow >> matrix(i).group_shift) + j);
          } else {
            bias[h] = bias_[i][h];
          }
        }
        if constexpr (Grid::kMinimums) {
          QGEN_UNROLL
          for (int h = 0; h < 2; ++h) {
            const float minimum = loads.groups[i][h].minimum(j);
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
            const float scale = loads.groups[i][h].scale(j);
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

  // High and low parts together, into shared memory.
  QGEN_DEVICE void store_sums(const Sums& sum) {
    QGEN_UNROLL
    for (int i = 0; i < kRowTiles; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        float* const out = sums_ + ((warp_index() * kRowTiles + i) * kMmaRows + g() + 8 * h) * kGemvTokens;
        if constexpr (Traits::kPairs) {
          out[2 * q()] = sum[i][0][2 * h] + sum[i][1][2 * h];
          out[2 * q() + 1] = sum[i][0][2 * h + 1] + sum[i][1][2 * h + 1];
        } else {
          out[q()] = sum[i][0][2 * h] + sum[i][0][2 * h + 1];
        }
      }
    }
    barrier();
  }

  // The warps' sums together, scales, biases, the epilogue.
  QGEN_DEVICE void write_results() const {
    for_results([&](int t, int row, const float(&result)[2]) {
      const float activation = activated(args_.epilogue.activation, result[0]);
      store_product(args_.epilogue, gated_ ? activation * result[1] : activation,
                    args_.y[part_] + t * args_.y_stride[part_] + row);
    });
  }

  // store(token, row, its product, or those of the gate and of what it gates) for all results before the epilogue.
  template <typename Store>
  QGEN_DEVICE void for_results(const Store& store) const {
    const int rows = (gated_ ? 1 : kRowTiles) * kMmaRows;
    for (int index = thread_index(); index < rows * args_.tokens; index += kGemvThreads) {
      const int t = index / rows, r = index % rows, row = first_row_ + r;
      if (row >= shape().rows) continue;
      float result[2] = {};
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (i == 1 && !gated_) continue;
        const Matrix& w = matrix(i);
        const int tile = gated_ ? i : r / kMmaRows;
        float total = 0;
        for (int from = 0; from < kGemvWarps; ++from)
          total += sums_[((from * kRowTiles + tile) * kMmaRows + r % kMmaRows) * kGemvTokens + t];
        result[i] = product_of<typename Traits::Grid>(w, row, total, inverses_[t]);
      }
      store(t, row, result);
    }
  }

 private:
  QGEN_DEVICE static int g() { return lane_index() / 4; }
  QGEN_DEVICE static int q() { return lane_index() % 4; }
  // Of MMA tile i: a gate and what it gates are two matrices.
  QGEN_DEVICE const Matrix& matrix(int i) const { return args_.part[gated_ ? i : part_]; }
  QGEN_DEVICE const Matrix& shape() const { return args_.part[part_]; }
  // Of x in shared memory: high and low of token 0, of token 1, ...
  QGEN_DEVICE int columns() const { return 2 * args_.tokens; }
  QGEN_DEVICE int stride() const { return gemv_.slab + kSlabPadding; }
  // Rows of x and norms end in zeros, up to whole pieces of four.
  QGEN_DEVICE int pieces() const { return int(round_up(cols(), kPad) / 4); }

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

  // Pieces of x that stay in shared memory between measure_token() and fill_token(): those of the first slab.
  QGEN_DEVICE int kept_pieces() const {
    if (shape().column_order != nullptr) return 0;
    return pieces() < gemv_.slab / 4 ? pieces() : gemv_.slab / 4;
  }

  // Four floats where split() will put their parts: the upper halves of their bits, and the lower ones.
  QGEN_DEVICE static void keep(const Floats4& values, uint16_t* highs, uint16_t* lows) {
    Fp16Four high, low;
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) {
      high.at[j] = uint16_t(float_bits(values.at[j]) >> 16);
      low.at[j] = uint16_t(float_bits(values.at[j]));
    }
    *reinterpret_cast<Fp16Four*>(highs) = high;
    *reinterpret_cast<Fp16Four*>(lows) = low;
  }
  QGEN_DEVICE static Floats4 kept(const uint16_t* highs, const uint16_t* lows) {
    const Fp16Four high = *reinterpret_cast<const Fp16Four*>(highs), low = *reinterpret_cast<const Fp16Four*>(lows);
    Floats4 out;
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) out.at[j] = bits_float(uint32_t(high.at[j]) << 16 | low.at[j]);
    return out;
  }

  // A token's sum of squares and largest weighted input, of each warp. The weighted inputs of the first slab stay in
  // shared memory for fill_token(), in place of the norm's weights at last: a thread reads there what it has written.
  QGEN_DEVICE void measure_token(int t) const {
    uint16_t* const highs = x_ + 2 * t * stride();
    const float* const row = args_.x + t * args_.x_stride;
    const bool norm = args_.norm != nullptr;
    InputMeasure measure;
    for_pieces(row, 0, kept_pieces(), [&](int c, const Floats4& x) {
      const Floats4 weighted = norm ? product(x, kept(x_ + 4 * c, x_ + stride() + 4 * c)) : x;
      measure.add(x, weighted);
      keep(weighted, highs + 4 * c, highs + stride() + 4 * c);
    });
    for_pieces(row, kept_pieces(), pieces(), [&](int c, const Floats4& x) {
      measure.add(x, norm ? product(x, load_floats4(args_.norm + 4 * c)) : x);
    });
    measure.store_of_warp(scratch_ + t * kGemvWarps * 2);
  }

  QGEN_DEVICE void fill_ordered(int t, int begin, uint16_t* highs, uint16_t* lows) const {
    const float* const row = args_.x + t * args_.x_stride;
    for (int c = thread_index(); c < gemv_.slab; c += kGemvThreads) {
      float value = 0;
      if (begin + c < cols()) {
        const int from = shape().column_order[begin + c];
        value = rounded_product(rounded_product(row[from], args_.norm != nullptr ? args_.norm[from] : 1), factors_[t]);
      }
      split<Traits::kBf16>(value, highs[c], lows[c]);
    }
  }

  template <bool kFirst>
  QGEN_DEVICE void fill_token(int t, int begin, uint16_t* highs, uint16_t* lows) const {
    const float factor = factors_[t];
    const auto put = [&](int c, const Floats4& values) {
      Fp16Four high, low;
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) split<Traits::kBf16>(rounded_product(values.at[j], factor), high.at[j], low.at[j]);
      *reinterpret_cast<Fp16Four*>(highs + 4 * c) = high;
      *reinterpret_cast<Fp16Four*>(lows + 4 * c) = low;
    };
    const int left = pieces() - begin / 4, there = left < gemv_.slab / 4 ? left : gemv_.slab / 4;
    if constexpr (kFirst) {
      QGEN_UNROLL_BY(4)
      for (int c = thread_index(); c < there; c += kGemvThreads) put(c, kept(highs + 4 * c, lows + 4 * c));
    } else {
      for_pieces(args_.x + t * args_.x_stride + begin, 0, there, [&](int c, const Floats4& x) {
        put(c, args_.norm != nullptr ? product(x, load_floats4(args_.norm + begin + 4 * c)) : x);
      });
    }
    for (int c = there + thread_index(); c < gemv_.slab / 4; c += kGemvThreads) put(c, {});
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
  int part_ = 0;
  int first_row_ = 0;
  int windows_ = 0;  // of a row
  int loads_ = 0;    // of a row
  GemvRow rows_[kRowTiles][2];
  uint32_t bias_[kRowTiles][2];  // of rows with one zero point each
  // Shared memory.
  uint16_t* x_ = nullptr;      // (columns, stride)
  float* scratch_ = nullptr;   // (tokens, warps, 2)
  float* factors_ = nullptr;   // (tokens): of the norm, times the power of two
  float* inverses_ = nullptr;  // (tokens): what undoes the power of two
  float* sums_ = nullptr;      // (warps, MMA tiles, 16, tokens)
};

// sum += all products of a block that has measured its inputs, and whose first weights are on their way.
template <typename Traits>
QGEN_DEVICE void multiply_slabs(GemvBlock<Traits>& block, int slab, GemvLoads<Traits> (&loads)[Traits::kInFlight],
                                typename GemvBlock<Traits>::Sums& sum) {
  const int warp = warp_index(), windows = block.windows();
  block.template fill_inputs<true>(0);
  for (int begin = 0; begin < block.cols(); begin += slab) {
    if (begin > 0) {
      barrier();
      block.template fill_inputs<false>(begin);
    }
    barrier();
    // Each warp takes every kGemvWarps-th window; a slab has whole rounds of them.
    const int first = begin / Traits::kWindow, last = (begin + slab) / Traits::kWindow;
    const int end = last < windows ? last : windows;
    for (int window = first + warp; window < end; window += kGemvWarps * Traits::kInFlight) {
      QGEN_UNROLL
      for (int u = 0; u < Traits::kInFlight; ++u) {
        const int next = window + u * kGemvWarps;
        if (next < end) block.multiply_window(loads[u], next, first, sum);
        block.load_window(loads[u], next + kGemvWarps * Traits::kInFlight);
      }
    }
  }
}

template <typename Traits>
QGEN_KERNEL(kGemvThreads, Traits::kBlocks)
gemv_kernel(const GemvKernelArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  GemvBlock<Traits> block(args, int(block_index().x));

  // The first weights are on their way before the inputs are there.
  GemvLoads<Traits> loads[Traits::kInFlight];
  QGEN_UNROLL
  for (int u = 0; u < Traits::kInFlight; ++u) block.load_window(loads[u], warp_index() + u * kGemvWarps);
  block.place_shared_memory();
  block.keep_norm();
  scope.wait_for_inputs();
  block.measure_inputs();
  block.load_biases();

  float sum[Traits::kRowTiles][Traits::kSums][4] = {};
  multiply_slabs(block, args.slab, loads, sum);
  fetch_share<kGemvThreads>(args.linear.next, block_index().x, grid_size().x);
  block.store_sums(sum);
  block.write_results();
}

}  // namespace qgen::QGEN_BACKEND
