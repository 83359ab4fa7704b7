// A few tokens: the weights stream by once, straight from memory into the registers of matrix products, weights as the
// product's 16 rows and tokens as its 8 columns. Since any order of the columns of W is as good as another, as long as
// x has the same, each lane loads 16 (or 8) neighbouring codes of a row at once. (Field notes on such kernels: ONNX
// Runtime, docs/contrib_ops/cuda/matmul_block_scaled_fp8_experiments.md.)
//
// x goes in as the sum of two 16-bit floats, together 22 bits: up to 4 tokens use columns 2 t and 2 t + 1 for them,
// more tokens two products. Either way each token's numbers meet the same operations in the same order.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kFewWarps = 8;
constexpr int kFewThreads = kFewWarps * kWarp;
constexpr int kTileRows = 16;
constexpr int kSlabPadding = 8;  // elements between the columns of x, against bank conflicts

// The shape of a block's work, the same on host and device. kLane: codes that a lane loads at once.
template <Codes kCodes, int kLane, int kTiles>
struct FewShape {
  static constexpr int kLaneBytes = kLane * kCodeBytes<kCodes>;          // 16 or 8
  static constexpr int kWindow = 4 * kLane;                              // columns that a warp takes at once
  static constexpr int kInFlight = (kLaneBytes == 16 ? 4 : 6) / kTiles;  // windows
  static constexpr int kRound = kFewWarps * kInFlight * kWindow;         // columns
};

struct FewArgs {
  LinearArgs linear;
  int first_block[4];  // of each part
  int slab;            // columns of x that are in shared memory at once, whole rounds
};

// Words of shared memory: x, then what warps and threads hand each other.
QGEN_DEVICE int few_x_words(int columns, int slab) { return columns * (slab + kSlabPadding) / 2; }

struct alignas(16) Floats4 {
  float at[4];
};
struct alignas(8) HalfFour {
  uint16_t at[4];
};

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

// One warp's loads of one window: rows g and g + 8 of each tile.
template <Codes kCodes, int kLane, int kTiles>
struct FewLoads {
  typename LaneBytes<FewShape<kCodes, kLane, kTiles>::kLaneBytes>::Type codes[kTiles][2];
  float scale[kTiles][2];
};

// What a lane needs of its two rows of a tile.
struct FewRow {
  const uint8_t* codes;
  int tile;  // the first of the row's in the grid
};

template <Codes kCodes, int kLane, int kTiles, bool kTiled, bool kHalf, bool kPairs>
QGEN_KERNEL(kFewThreads, kPairs ? 1 : 2)
multiply_few_kernel(const FewArgs few, const LaunchTimes times) {
  using Shape = FewShape<kCodes, kLane, kTiles>;
  using Loads = FewLoads<kCodes, kLane, kTiles>;
  const LinearArgs& args = few.linear;
  constexpr bool kBf16 = kCodes == Codes::kBf16;
  constexpr int kSums = kPairs ? 2 : 1;
  const int lane = lane_index(), warp = warp_index(), g = lane / 4, q = lane % 4;
  const int columns = 2 * args.tokens;  // of x in shared memory: high and low of token 0, of token 1, ...
  KernelScope scope(times);

  // Which rows.
  const bool pair = args.result == Result::kSiluMul;
  int part = 0;
  while (!pair && part + 1 < args.parts && int(block_index().x) >= few.first_block[part + 1]) ++part;
  const int block = int(block_index().x) - few.first_block[part];
  const int first_row = block * (pair ? kTileRows : kTiles * kTileRows);
  const Matrix& shape = args.part[part];
  FewRow rows[kTiles][2];
  QGEN_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    const Matrix& w = args.part[pair ? i : part];
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + (pair ? 0 : i * kTileRows) + g + 8 * h;
      const int valid = row < w.rows ? row : w.rows - 1;
      rows[i][h] = {w.codes + valid * w.row_bytes + q * Shape::kLaneBytes, valid / w.group_rows * w.tile_cols};
    }
  }
  const int windows = (shape.cols + Shape::kWindow - 1) / Shape::kWindow;

  const auto scale_of = [&](int i, int h, int window) {
    // Behind the last window any scale will do: the codes are zeros.
    const Matrix& w = args.part[pair ? i : part];
    const int column = (window < windows ? window : windows - 1) * Shape::kWindow;
    return tile_scale<kHalf>(w, rows[i][h].tile + (column >> w.group_shift));
  };
  // With codes that may have offsets as well, registers do not suffice for scales that come early.
  constexpr bool kEarlyScales = kTiled && !(kCodes == Codes::kI8 && kLane == 16);

  const auto fetch = [&](Loads& loads, int window) {
    const int64_t at = int64_t(window) * (4 * Shape::kLaneBytes);
    const bool inside = window < windows && at + q * Shape::kLaneBytes < shape.row_bytes;
    QGEN_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        if (inside) {
          loads.codes[i][h] = LaneBytes<Shape::kLaneBytes>::load(rows[i][h].codes + at);
        } else {
          loads.codes[i][h] = {};
        }
        if constexpr (kEarlyScales) loads.scale[i][h] = scale_of(i, h, window);
      }
    }
  };

  // The first weights are on their way before the inputs are there.
  Loads loads[Shape::kInFlight];
  QGEN_UNROLL
  for (int u = 0; u < Shape::kInFlight; ++u) fetch(loads[u], warp + u * kFewWarps);
  scope.wait_for_inputs();

  uint16_t* const x = shared_memory<uint16_t>();
  float* const scratch = reinterpret_cast<float*>(x) + few_x_words(columns, few.slab);
  float* const factors = scratch + 2 * kFewWarps * kFewTokens;  // (tokens): of the norm, times the power of two
  float* const inverses = factors + kFewTokens;                 // (tokens): what undoes the power of two
  float* const sums = inverses + kFewTokens;                    // (warps, tiles, 16, tokens)
  const int stride = few.slab + kSlabPadding;

  // Each token's sum of squares and largest input; rows and norms end in zeros, up to whole pieces.
  const int pieces = int(round_up(shape.cols, kPad) / 4);
  for (int t = 0; t < args.tokens; ++t) {
    float squares = 0, peak = 0;
    const Floats4* const row = reinterpret_cast<const Floats4*>(args.x + t * args.x_stride);
    const Floats4* const norm = reinterpret_cast<const Floats4*>(args.norm);
    const auto look = [&](const Floats4& v, const Floats4& factor) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float weighted = v.at[j] * factor.at[j];
        squares = fused_product(v.at[j], v.at[j], squares);
        peak = larger(peak, weighted < 0 ? -weighted : weighted);
      }
    };
    if (norm != nullptr) {
      QGEN_UNROLL_BY(4)
      for (int c = thread_index(); c < pieces; c += kFewThreads) look(row[c], norm[c]);
    } else {
      QGEN_UNROLL_BY(4)
      for (int c = thread_index(); c < pieces; c += kFewThreads) look(row[c], {{1, 1, 1, 1}});
    }
    squares = sum_lanes(squares);
    peak = largest_lane(peak);
    if (lane == 0) {
      scratch[(t * kFewWarps + warp) * 2] = squares;
      scratch[(t * kFewWarps + warp) * 2 + 1] = peak;
    }
  }
  barrier();
  if (thread_index() < args.tokens) {
    const float* const parts = scratch + thread_index() * kFewWarps * 2;
    float squares = 0, peak = 0;
    QGEN_UNROLL
    for (int w = 0; w < kFewWarps; ++w) {
      squares += parts[2 * w];
      peak = larger(peak, parts[2 * w + 1]);
    }
    const float norm = args.norm != nullptr ? rsqrt_exact(squares / float(shape.cols) + args.norm_eps) : 1;
    const PowerOfTwo range = kBf16 ? PowerOfTwo{1, 1} : f16_range(peak * norm);
    factors[thread_index()] = norm * range.factor;
    inverses[thread_index()] = range.inverse;
  }
  barrier();

  float sum[kTiles][kSums][4] = {};
  uint32_t bias[kTiles][2];
  QGEN_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const Matrix& w = args.part[pair ? i : part];
      bias[i][h] = i8_bias(w.offset != nullptr && !kTiled ? w.offset[rows[i][h].tile] : 0);
    }
  }

  for (int begin = 0; begin < shape.cols; begin += few.slab) {
    // Columns [begin, begin + slab) of x, zeros behind the last.
    if (begin > 0) barrier();
    const auto split = [&](float value, uint16_t& high, uint16_t& low) {
      high = kBf16 ? bf16_bits(value) : f16_bits(value);
      const float rest = value - (kBf16 ? bf16_value(high) : f16_value(high));
      low = kBf16 ? bf16_bits(rest) : f16_bits(rest);
    };
    for (int t = 0; t < args.tokens; ++t) {
      const float factor = factors[t];
      const float* const row = args.x + t * args.x_stride;
      uint16_t* const highs = x + 2 * t * stride;
      uint16_t* const lows = highs + stride;
      if (shape.column_order != nullptr) {
        for (int c = thread_index(); c < few.slab; c += kFewThreads) {
          float value = 0;
          if (begin + c < shape.cols) {
            const int from = shape.column_order[begin + c];
            value = rounded_product(rounded_product(row[from], args.norm != nullptr ? args.norm[from] : 1), factor);
          }
          split(value, highs[c], lows[c]);
        }
        continue;
      }
      const auto put = [&](int c, const Floats4& v, const Floats4& norm) {
        HalfFour high, low;
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j)
          split(rounded_product(rounded_product(v.at[j], norm.at[j]), factor), high.at[j], low.at[j]);
        *reinterpret_cast<HalfFour*>(highs + 4 * c) = high;
        *reinterpret_cast<HalfFour*>(lows + 4 * c) = low;
      };
      const Floats4* const values = reinterpret_cast<const Floats4*>(row + begin);
      const Floats4* const norm = args.norm != nullptr ? reinterpret_cast<const Floats4*>(args.norm + begin) : nullptr;
      const int there = pieces - begin / 4 < few.slab / 4 ? pieces - begin / 4 : few.slab / 4;
      if (norm != nullptr) {
        QGEN_UNROLL_BY(4)
        for (int c = thread_index(); c < there; c += kFewThreads) put(c, values[c], norm[c]);
      } else {
        QGEN_UNROLL_BY(4)
        for (int c = thread_index(); c < there; c += kFewThreads) put(c, values[c], {{1, 1, 1, 1}});
      }
      for (int c = there + thread_index(); c < few.slab / 4; c += kFewThreads) put(c, {}, {});
    }
    barrier();

    const int first = begin / Shape::kWindow, last = (begin + few.slab) / Shape::kWindow;
    for (int round = first; round < last && round < windows; round += kFewWarps * Shape::kInFlight) {
      QGEN_UNROLL
      for (int u = 0; u < Shape::kInFlight; ++u) {
        const int window = round + warp + u * kFewWarps;
        if (window < windows) {
          // b: this lane's codes' columns of x, of the high part and, for pairs, of the low part.
          uint32_t b[kSums][kLane / 2];
          QGEN_UNROLL
          for (int s = 0; s < kSums; ++s) {
            const int column = kPairs ? 2 * g + s : g;
            const Bytes16* from = reinterpret_cast<const Bytes16*>(x + (column < columns ? column : 0) * stride +
                                                                   (window - first) * Shape::kWindow + q * kLane);
            QGEN_UNROLL
            for (int i = 0; i < kLane / 8; ++i) {
              Bytes16 v = {};
              if (column < columns) v = from[i];
              QGEN_UNROLL
              for (int j = 0; j < 4; ++j) b[s][4 * i + j] = v.word[j];
            }
          }
          QGEN_UNROLL
          for (int i = 0; i < kTiles; ++i) {
            if constexpr (kTiled) {
              const Matrix& w = args.part[pair ? i : part];
              if (w.offset != nullptr) {
                QGEN_UNROLL
                for (int h = 0; h < 2; ++h)
                  bias[i][h] = i8_bias(w.offset[rows[i][h].tile + (window * Shape::kWindow >> w.group_shift)]);
              }
            }
            float part_sum[kSums][4] = {};
            float(&into)[kSums][4] = kTiled ? part_sum : sum[i];
            QGEN_UNROLL
            for (int step = 0; step < kLane / 4; ++step) {
              uint32_t a[4];
              if constexpr (kCodeBytes<kCodes> == 2) {
                QGEN_UNROLL
                for (int h = 0; h < 2; ++h) {
                  a[h] = loads[u].codes[i][h].word[2 * step];
                  a[h + 2] = loads[u].codes[i][h].word[2 * step + 1];
                }
              } else {
                QGEN_UNROLL
                for (int h = 0; h < 2; ++h)
                  four_codes<kCodes>(loads[u].codes[i][h].word[step], bias[i][h], a[h], a[h + 2]);
              }
              QGEN_UNROLL
              for (int s = 0; s < kSums; ++s) {
                const uint32_t two[2] = {b[s][2 * step], b[s][2 * step + 1]};
                multiply_add<kCodes>(into[s], a, two);
              }
            }
            if constexpr (kTiled) {
              QGEN_UNROLL
              for (int h = 0; h < 2; ++h) {
                const float scale = kEarlyScales ? loads[u].scale[i][h] : scale_of(i, h, window);
                QGEN_UNROLL
                for (int s = 0; s < kSums; ++s) {
                  sum[i][s][2 * h] += scale * part_sum[s][2 * h];
                  sum[i][s][2 * h + 1] += scale * part_sum[s][2 * h + 1];
                }
              }
            }
          }
        }
        fetch(loads[u], window + kFewWarps * Shape::kInFlight);
      }
    }
  }

  // High and low together, then the warps.
  QGEN_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      float* out = sums + ((warp * kTiles + i) * kTileRows + g + 8 * h) * kFewTokens;
      if constexpr (kPairs) {
        out[2 * q] = sum[i][0][2 * h] + sum[i][1][2 * h];
        out[2 * q + 1] = sum[i][0][2 * h + 1] + sum[i][1][2 * h + 1];
      } else {
        out[q] = sum[i][0][2 * h] + sum[i][0][2 * h + 1];
      }
    }
  }
  barrier();
  const int tiles = pair ? 1 : kTiles;
  for (int index = thread_index(); index < tiles * kTileRows * args.tokens; index += kFewThreads) {
    const int t = index / (tiles * kTileRows), r = index % (tiles * kTileRows), row = first_row + r;
    if (row >= shape.rows) continue;
    float result[2] = {};
    for (int i = 0; i < (pair ? 2 : 1); ++i) {
      const Matrix& w = args.part[pair ? i : part];
      const int tile = pair ? i : r / kTileRows;
      float total = 0;
      for (int from = 0; from < kFewWarps; ++from)
        total += sums[((from * kTiles + tile) * kTileRows + r % kTileRows) * kFewTokens + t];
      if (!kTiled) total *= scale_at(w, row / w.group_rows * w.tile_cols);
      result[i] = fused_product(total, inverses[t], w.bias != nullptr ? w.bias[row] : 0);
    }
    int64_t at = t * args.y_stride + row;
    for (int before = 0; before < part; ++before) at += args.part[before].rows;
    if (pair) {
      args.y[at] = silu(result[0]) * result[1];
    } else if (args.result == Result::kAdd) {
      args.y[at] += result[0];
    } else {
      args.y[at] = result[0];
    }
  }
}

}  // namespace qgen::QGEN_BACKEND
