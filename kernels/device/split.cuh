// Inputs of products as sums of two 16-bit floats, together 22 bits: times the norm's weights, and each slice of a row
// brought to the range of F16 by a power of two of its own. The factor of the RMS norm is applied to the finished
// product, so that no slice has to wait for the others. A token's numbers do not depend on which kernel makes them.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kGemvWarps = kInputSlices;
constexpr int kGemvThreads = kGemvWarps * kWarp;

QGEN_DEVICE Floats4 product(const Floats4& a, const Floats4& b) {
  Floats4 out;
  QGEN_UNROLL
  for (int j = 0; j < 4; ++j) out.at[j] = rounded_product(a.at[j], b.at[j]);
  return out;
}

// Rows of x and norms end in zeros, up to whole pieces of four.
QGEN_DEVICE int padded_cols(int cols) { return int(round_up(cols, kPad)); }

// The columns that a warp has of a row of inputs: every kWarps-th window of kColumns. Together they lie side by
// side in the warp's shared memory. A lane has every 32nd piece of four.
template <int kColumns, int kWarps = kGemvWarps>
struct InputSlice {
  static constexpr int kWindow = kColumns;
  static constexpr int kWindowPieces = kWindow / 4;
  static constexpr int kStep = 4 * kWarp * kWarps;  // columns of a row from a lane's piece to its next

  // How many numbers first, first + step, ... are below `left`.
  QGEN_DEVICE static int count(int left, int step) { return left > 0 ? (left + step - 1) / step : 0; }
  QGEN_DEVICE static int window_column(int window) { return (window * kWarps + warp_index()) * kWindow; }
  // Of the lane's piece u: its column of the row, and its place among the slice's columns.
  QGEN_DEVICE static int column(int u) {
    return window_column(lane_index() / kWindowPieces) + lane_index() % kWindowPieces * 4 + u * kStep;
  }
  QGEN_DEVICE static int place(int u) { return 4 * (lane_index() + u * kWarp); }
  // That have their place below so many columns of the slice.
  QGEN_DEVICE static int pieces_below(int columns) { return count(columns - place(0), 4 * kWarp); }
  // Of a row of so many columns.
  QGEN_DEVICE static int pieces(int cols) { return count(padded_cols(cols) - column(0), kStep); }
};

// A thread's share of a token's sum of squares and largest weighted input. Magnitudes are compared by their bits, of
// which NaN has the largest.
struct InputMeasure {
  float squares = 0;
  uint32_t peak = 0;

  QGEN_DEVICE void add(const Floats4& x, const Floats4& weighted) {
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) {
      squares = fused_product(x.at[j], x.at[j], squares);
      peak = larger_bits(peak, float_bits(weighted.at[j]) & 0x7FFFFFFF);
    }
  }
  // What suits the warp's weighted inputs.
  template <bool kBf16>
  QGEN_DEVICE PowerOfTwo range() const {
    return kBf16 ? PowerOfTwo{1, 1} : f16_range(bits_float(largest_lane_bits(peak)));
  }
};

// The measures of up to kTokens tokens, `tokens`, over the pieces of a slice, kPieces of each loaded at once:
//   x(t, u)              piece u of token t
//   weights(u)           what it is multiplied by
//   use(t, u, values)    the product
template <int kTokens, int kPieces, typename X, typename Weights, typename Use>
QGEN_DEVICE void measure_slice(int pieces, int tokens, InputMeasure (&measure)[kTokens], const X& x,
                               const Weights& weights, const Use& use) {
  QGEN_UNROLL_BY(1)
  for (int begin = 0; begin < pieces; begin += kPieces) {
    Floats4 raw[kPieces][kTokens];
    QGEN_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      QGEN_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        if (begin + i < pieces && (kTokens == 1 || t < tokens)) raw[i][t] = x(t, begin + i);
      }
    }
    QGEN_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const int u = begin + i;
      if (u >= pieces) break;
      const Floats4 by = weights(u);
      QGEN_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        if (kTokens > 1 && t >= tokens) continue;
        const Floats4 values = product(raw[i][t], by);
        measure[t].add(raw[i][t], values);
        use(t, u, values);
      }
    }
  }
}

// What normalizes a token: `squares` of each warp.
template <int kWarps>
QGEN_DEVICE float norm_factor(const float* squares, int cols, float eps) {
  float sum = 0;
  QGEN_UNROLL
  for (int w = 0; w < kWarps; ++w) sum += squares[w];
  return rsqrt_exact(sum / float(cols) + eps);
}

// Two numbers as sums of two 16-bit floats each: pairs of the upper parts and of the lower ones.
template <bool kBf16>
QGEN_DEVICE void split(float first, float second, uint32_t& high, uint32_t& low) {
  high = kBf16 ? bf16_pair(first, second) : f16_pair(first, second);
  const auto value = [](uint32_t bits) { return kBf16 ? bf16_value(uint16_t(bits)) : f16_value(uint16_t(bits)); };
  const float first_rest = first - value(high), second_rest = second - value(high >> 16);
  low = kBf16 ? bf16_pair(first_rest, second_rest) : f16_pair(first_rest, second_rest);
}

// Four floats, times `factor`, as such sums.
template <bool kBf16>
QGEN_DEVICE void store_split(const Floats4& values, float factor, uint16_t* highs, uint16_t* lows) {
  Bytes8 high, low;
  QGEN_UNROLL
  for (int i = 0; i < 2; ++i)
    split<kBf16>(rounded_product(values.at[2 * i], factor), rounded_product(values.at[2 * i + 1], factor), high.word[i],
                 low.word[i]);
  *reinterpret_cast<Bytes8*>(highs) = high;
  *reinterpret_cast<Bytes8*>(lows) = low;
}

// Four floats where store_split() will put their parts, two in the place of each.
QGEN_DEVICE void keep(const Floats4& values, uint16_t* highs, uint16_t* lows, int place) {
  *reinterpret_cast<Bytes8*>(highs + place) = {{float_bits(values.at[0]), float_bits(values.at[1])}};
  *reinterpret_cast<Bytes8*>(lows + place) = {{float_bits(values.at[2]), float_bits(values.at[3])}};
}
QGEN_DEVICE Floats4 kept(const uint16_t* highs, const uint16_t* lows, int place) {
  const Bytes8 first = *reinterpret_cast<const Bytes8*>(highs + place),
               second = *reinterpret_cast<const Bytes8*>(lows + place);
  return {
      {bits_float(first.word[0]), bits_float(first.word[1]), bits_float(second.word[0]), bits_float(second.word[1])}};
}

}  // namespace qgen::QGEN_BACKEND
