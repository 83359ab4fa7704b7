// Inputs of products as sums of two 16-bit floats, together 22 bits: times the norm's weights. F16 holds a slice of a
// row as it is where its largest input is at least 2^-13 and below 2^15; other slices are brought to that range by a
// power of two of their own. Which it is turns out when a slice has been split, so that the second kind is split twice.
// Lower parts are stored times 2^11: they have all of their bits wherever the upper ones do. The factor of the RMS norm
// is applied to the finished product, so that no slice has to wait for the others. A token's numbers do not depend on
// which kernel makes them.
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
QGEN_DEVICE int padded_cols(int cols) { return int((unsigned(cols) + kPad - 1) / kPad * kPad); }

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
};

// Bounds of the largest input of a slice that is split as it is: F16 has all 11 bits of that input's upper part, and
// what any input of the slice loses is below 2^-22 of it.
constexpr float kLeastPeak = 1.0f / 8192, kEndOfPeaks = 32768;
// What lower parts are stored times.
template <bool kBf16>
constexpr int kLowScale = kBf16 ? 1 : 2048;

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
  // What suits the warp's weighted inputs: nearly always 1.
  template <bool kBf16>
  QGEN_DEVICE PowerOfTwo range() const {
    if (kBf16) return {1, 1};
    const uint32_t largest = largest_lane_bits(peak);
    const uint32_t least = float_bits(kLeastPeak), end = float_bits(kEndOfPeaks);
    return largest - least < end - least ? PowerOfTwo{1, 1} : f16_range(bits_float(largest));
  }
};

// The measures of up to kTokens tokens, `tokens`, over a slice of rows of so many columns. kPieces are on their way at
// any time.
//   x(t, column)         four inputs of token t
//   weights(column, u)   what they are multiplied by; u: the lane's piece that they are
//   use(t, u, values)    the product
template <typename Slice, int kTokens, int kPieces, typename X, typename Weights, typename Use>
QGEN_DEVICE void measure_slice(int cols, int tokens, InputMeasure (&measure)[kTokens], const X& x,
                               const Weights& weights, const Use& use) {
  const int end = padded_cols(cols);
  Floats4 raw[kPieces][kTokens];
  const auto load = [&](int i, int column) {
    QGEN_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      if (column < end && (kTokens == 1 || t < tokens)) raw[i][t] = x(t, column);
    }
  };
  QGEN_UNROLL
  for (int i = 0; i < kPieces; ++i) load(i, Slice::column(i));
  QGEN_UNROLL_BY(1)
  for (int begin = 0; Slice::column(begin) < end; begin += kPieces) {
    QGEN_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const int u = begin + i, column = Slice::column(u);
      if (column >= end) break;
      const Floats4 by = weights(column, u);
      QGEN_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        if (kTokens > 1 && t >= tokens) continue;
        const Floats4 values = product(raw[i][t], by);
        measure[t].add(raw[i][t], values);
        use(t, u, values);
      }
      load(i, column + kPieces * Slice::kStep);
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

// Two numbers as sums of two 16-bit floats each: pairs of the upper parts and of the lower ones, these times kScale, a
// power of two.
template <bool kBf16, int kScale = 1>
QGEN_DEVICE void split(float first, float second, uint32_t& high, uint32_t& low) {
  high = kBf16 ? bf16_pair(first, second) : f16_pair(first, second);
  const auto value = [](uint32_t bits) { return kBf16 ? bf16_value(uint16_t(bits)) : f16_value(uint16_t(bits)); };
  const float first_rest = kScale * (first - value(high)), second_rest = kScale * (second - value(high >> 16));
  low = kBf16 ? bf16_pair(first_rest, second_rest) : f16_pair(first_rest, second_rest);
}

// Four inputs, times `factor`, as such sums, the lower parts times kLowScale.
template <bool kBf16>
QGEN_DEVICE void store_split(const Floats4& values, float factor, uint16_t* highs, uint16_t* lows) {
  Bytes8 high, low;
  QGEN_UNROLL
  for (int i = 0; i < 2; ++i)
    split<kBf16, kLowScale<kBf16>>(rounded_product(values.at[2 * i], factor),
                                   rounded_product(values.at[2 * i + 1], factor), high.word[i], low.word[i]);
  *reinterpret_cast<Bytes8*>(highs) = high;
  *reinterpret_cast<Bytes8*>(lows) = low;
}
// The product of a row and inputs from its products with their two parts.
template <bool kBf16>
QGEN_DEVICE float product_of_parts(float high, float low) {
  return fused_product(low, 1.0f / kLowScale<kBf16>, high);
}

// Four floats where store_split() will put the parts of four inputs, two in the place of each part.
QGEN_DEVICE void keep(const Floats4& values, uint16_t* highs, uint16_t* lows) {
  *reinterpret_cast<Bytes8*>(highs) = {{float_bits(values.at[0]), float_bits(values.at[1])}};
  *reinterpret_cast<Bytes8*>(lows) = {{float_bits(values.at[2]), float_bits(values.at[3])}};
}
QGEN_DEVICE Floats4 kept(const uint16_t* highs, const uint16_t* lows) {
  const Bytes8 first = *reinterpret_cast<const Bytes8*>(highs), second = *reinterpret_cast<const Bytes8*>(lows);
  return {
      {bits_float(first.word[0]), bits_float(first.word[1]), bits_float(second.word[0]), bits_float(second.word[1])}};
}

}  // namespace qgen::QGEN_BACKEND
