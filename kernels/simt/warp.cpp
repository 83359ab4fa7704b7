#include "kernels/simt/warp.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace qgen::simt {
namespace {

template <typename T>
T& in_slot(std::byte* slots, int lane) {
  return *reinterpret_cast<T*>(slots + size_t(lane) * kExchangeBytes);
}

template <typename Combine>
void combine_floats(std::byte* slots, int lanes, const Combine& combine) {
  float values[kWarp];
  for (int i = 0; i < kWarp; ++i) values[i] = in_slot<float>(slots, i);
  for (int first = 0; first < kWarp; first += lanes) {
    float* const own = values + first;
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
      for (int i = 0; i < mask; ++i) own[i] = combine(own[i], own[i + mask]);
    }
    for (int i = first; i < first + lanes; ++i) in_slot<float>(slots, i) = own[0];
  }
}

template <typename Combine>
void combine_bits(std::byte* slots, const Combine& combine) {
  uint32_t value = in_slot<uint32_t>(slots, 0);
  for (int i = 1; i < kWarp; ++i) value = combine(value, in_slot<uint32_t>(slots, i));
  for (int i = 0; i < kWarp; ++i) in_slot<uint32_t>(slots, i) = value;
}

// Two numbers side by side, of neighbouring columns of a product.
using Two = double __attribute__((vector_size(2 * sizeof(double))));
using TwoBits = int64_t __attribute__((vector_size(2 * sizeof(int64_t))));
constexpr int64_t kExponent = int64_t{0x7FF} << 52;

inline Two size_of(Two x) { return Two(TwoBits(x) & INT64_MAX); }

// (Rounds by adding and subtracting: not to be compiled with -ffast-math.)
// Two sums and their products as a tensor core adds them: all are cut off 24 bits below the largest, added, and the
// result is cut off to F32, toward zero. Chains of products drift by that, where rounding would cancel out. (Measured
// on A100s: Fasi, Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science
// 7:e330, 2021.)
template <size_t kCount>
inline void add_products(float* sums, const Two (&products)[kCount]) {
  const Two sum = {sums[0], sums[1]};
  Two largest = size_of(sum), plain = sum;
  for (const Two& p : products) {
    const Two size = size_of(p);
    largest = largest < size ? size : largest;  // passes over NaN
    plain += p;
  }
  const TwoBits exponent = TwoBits(largest) & kExponent;
  const Two unit = Two(exponent - (int64_t{24} << 52)), large = Two(exponent + (int64_t{52 - 24} << 52));
  const auto cut_off = [&](Two x) {
    const Two size = size_of(x), near = (size + large) - large;  // numbers as large are multiples of the unit
    const Two below = near > size ? near - unit : near;
    return Two(TwoBits(below) | (TwoBits(x) & INT64_MIN));
  };
  Two total = cut_off(sum);
  for (const Two& p : products) total += cut_off(p);
  // The 29 bits that a float has not. Below a float's normal numbers the total has none: the unit is in their reach.
  total = Two(TwoBits(total) & ~int64_t{0x1FFFFFFF});
  const Two out = largest > 0x1p-120 && largest < 0x1p127 && plain == plain ? total : plain;
  for (int i = 0; i < 2; ++i) sums[i] = float(out[i]);
}

}  // namespace

void sum_slots(std::byte* slots, int lanes) {
  combine_floats(slots, lanes, [](float a, float b) { return a + b; });
}
void find_largest_slots(std::byte* slots, int lanes) { combine_floats(slots, lanes, larger); }
void find_largest_bits(std::byte* slots, int) { combine_bits(slots, larger_bits); }
void find_smallest_bits(std::byte* slots, int) {
  combine_bits(slots, [](uint32_t a, uint32_t b) { return std::min(a, b); });
}

template <int kEach>
void multiply_matrices(std::byte* slots, int) {
  constexpr int kDepth = 8 * kEach, kTogether = 4 * kEach;  // so many products are added at a time
  constexpr int kPairs = 4;                                 // of columns
  static_assert(sizeof(MatrixParts<kEach>) <= kExchangeBytes);
  double a[16][kDepth];
  Two b[kDepth][kPairs];
  float c[16][2 * kPairs];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto& parts = in_slot<const MatrixParts<kEach>>(slots, lane);
    const int g = lane / 4, q = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kEach; ++i) {
        const int at = kTogether * half + kEach * q + i;
        a[g][at] = parts.a[2 * kEach * half + i];
        a[g + 8][at] = parts.a[2 * kEach * half + kEach + i];
        b[at][g / 2][g % 2] = parts.b[kEach * half + i];
      }
      for (int j = 0; j < 2; ++j) c[g + 8 * half][2 * q + j] = parts.c[2 * half + j];
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int pair = 0; pair < kPairs; ++pair) {
      for (int first = 0; first < kDepth; first += kTogether) {
        Two products[kTogether];
        for (int k = 0; k < kTogether; ++k) products[k] = a[row][first + k] * b[first + k][pair];
        add_products(c[row] + 2 * pair, products);
      }
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    auto& parts = in_slot<MatrixParts<kEach>>(slots, lane);
    for (int i = 0; i < 4; ++i) parts.c[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

template void multiply_matrices<1>(std::byte* slots, int);
template void multiply_matrices<2>(std::byte* slots, int);

}  // namespace qgen::simt
