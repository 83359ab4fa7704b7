// Inputs of products as sums of two 16-bit floats, together 22 bits: normalized and brought to the range of F16 first.
// A token's numbers do not depend on which kernel makes them.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kGemvWarps = 8;
constexpr int kGemvThreads = kGemvWarps * kWarp;

struct alignas(8) Fp16Four {
  uint16_t at[4];
};

QGEN_DEVICE Floats4 product(const Floats4& a, const Floats4& b) {
  Floats4 out;
  QGEN_UNROLL
  for (int j = 0; j < 4; ++j) out.at[j] = rounded_product(a.at[j], b.at[j]);
  return out;
}

// use(c, piece c of `row`) for c in [begin, end), with four loads of a thread under way. Piece c is that of thread c
// % kGemvThreads wherever pieces begin, so that sums of all pieces do not depend on where a slab ends.
template <typename Use>
QGEN_DEVICE void for_pieces(const float* row, int begin, int end, const Use& use) {
  constexpr int kLoads = 4;
  const int behind = (thread_index() - begin) & (kGemvThreads - 1);
  QGEN_UNROLL_BY(1)
  for (int first = begin + behind; first < end; first += kLoads * kGemvThreads) {
    Floats4 x[kLoads];
    QGEN_UNROLL
    for (int u = 0; u < kLoads; ++u) {
      if (const int c = first + u * kGemvThreads; c < end) x[u] = load_floats4(row + 4 * c);
    }
    QGEN_UNROLL
    for (int u = 0; u < kLoads; ++u) {
      if (const int c = first + u * kGemvThreads; c < end) use(c, x[u]);
    }
  }
}

// Rows of x and norms end in zeros, up to whole pieces of four.
QGEN_DEVICE int pieces_of(int cols) { return int(round_up(cols, kPad) / 4); }

// A thread's first pieces of a row in registers, asked for as soon as they exist: four are those of 4096 columns.
template <int kCount>
struct HeldInputs {
  static constexpr int kPieces = kCount;
  Floats4 piece[kPieces];

  QGEN_DEVICE static int at(int u) { return thread_index() + u * kGemvThreads; }
  QGEN_DEVICE void load(const float* row, int pieces) {
    QGEN_UNROLL
    for (int u = 0; u < kPieces; ++u) {
      if (at(u) < pieces) piece[u] = load_floats4(row + 4 * at(u));
    }
  }
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
  // The warp's, to the two numbers that each warp has in `parts`.
  QGEN_DEVICE void store_of_warp(float* parts) const {
    const float sum = sum_lanes(squares), largest = bits_float(largest_lane_bits(peak));
    if (lane_index() != 0) return;
    parts[2 * warp_index()] = sum;
    parts[2 * warp_index() + 1] = largest;
  }
};

// What a token's weighted inputs are multiplied by: the factor of the norm, times the power of two that suits F16; and
// what undoes that power.
struct InputFactors {
  float factor, inverse;
};
// `parts`: of each warp. `fixed`: that power of two where it is the same for all tokens; else 0.
template <bool kBf16>
QGEN_DEVICE InputFactors input_factors(const float* parts, int cols, bool has_norm, float eps, float fixed = 0) {
  float squares = 0, peak = 0;
  QGEN_UNROLL
  for (int w = 0; w < kGemvWarps; ++w) {
    squares += parts[2 * w];
    peak = larger(peak, parts[2 * w + 1]);
  }
  const float norm = has_norm ? rsqrt_exact(squares / float(cols) + eps) : 1;
  const PowerOfTwo range = kBf16 ? PowerOfTwo{1, 1} : fixed > 0 ? PowerOfTwo{fixed, 1 / fixed} : f16_range(peak * norm);
  return {norm * range.factor, range.inverse};
}

// A number as the sum of two 16-bit floats.
template <bool kBf16>
QGEN_DEVICE void split(float value, uint16_t& high, uint16_t& low) {
  high = kBf16 ? bf16_bits(value) : f16_bits(value);
  const float rest = value - (kBf16 ? bf16_value(high) : f16_value(high));
  low = kBf16 ? bf16_bits(rest) : f16_bits(rest);
}

// Four floats, times `factor`, as such sums.
template <bool kBf16>
QGEN_DEVICE void store_split(const Floats4& values, float factor, uint16_t* highs, uint16_t* lows) {
  Fp16Four high, low;
  QGEN_UNROLL
  for (int j = 0; j < 4; ++j) split<kBf16>(rounded_product(values.at[j], factor), high.at[j], low.at[j]);
  *reinterpret_cast<Fp16Four*>(highs) = high;
  *reinterpret_cast<Fp16Four*>(lows) = low;
}

// Four floats where store_split() will put their parts: the upper halves of their bits, and the lower ones.
QGEN_DEVICE void keep(const Floats4& values, uint16_t* highs, uint16_t* lows) {
  Fp16Four high, low;
  QGEN_UNROLL
  for (int j = 0; j < 4; ++j) {
    high.at[j] = uint16_t(float_bits(values.at[j]) >> 16);
    low.at[j] = uint16_t(float_bits(values.at[j]));
  }
  *reinterpret_cast<Fp16Four*>(highs) = high;
  *reinterpret_cast<Fp16Four*>(lows) = low;
}
QGEN_DEVICE Floats4 kept(const uint16_t* highs, const uint16_t* lows) {
  const Fp16Four high = *reinterpret_cast<const Fp16Four*>(highs), low = *reinterpret_cast<const Fp16Four*>(lows);
  Floats4 out;
  QGEN_UNROLL
  for (int j = 0; j < 4; ++j) out.at[j] = bits_float(uint32_t(high.at[j]) << 16 | low.at[j]);
  return out;
}

}  // namespace qgen::QGEN_BACKEND
