// From codes to numbers: one at a time as floats, and four at a time as pairs of the 16-bit floats that matrix products
// take. All of it is exact: the 256 values of I8, E4M3 and E5M2 are numbers of F16.
#pragma once

#include <type_traits>

#include "kernels/device/kernel_scope.cuh"
#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

template <Codes kCodes>
constexpr int kCodeBytes = kCodes == Codes::kF32                             ? 4
                           : kCodes == Codes::kF16 || kCodes == Codes::kBf16 ? 2
                                                                             : 1;

// Code i of four I8 codes as a float, without a slow conversion: a byte u in the place of the lowest one of 2^23 makes
// it 2^23 + u. `turned`: the codes with their upper bits turned, so that u is the code + 128.
QGEN_DEVICE float turned_i8_value(uint32_t turned, int i) {
  return bits_float(permute_bytes(turned, 0x4B000000, uint32_t(0x7440 + i))) - (0x1p23f + 128);
}

template <Codes kCodes>
QGEN_DEVICE float code_value(const uint8_t* codes, int64_t index) {
  if constexpr (kCodes == Codes::kF32) {
    return reinterpret_cast<const float*>(codes)[index];
  } else if constexpr (kCodes == Codes::kF16) {
    return f16_value(reinterpret_cast<const uint16_t*>(codes)[index]);
  } else if constexpr (kCodes == Codes::kBf16) {
    return bf16_value(reinterpret_cast<const uint16_t*>(codes)[index]);
  } else if constexpr (kCodes == Codes::kI8) {
    return float(int8_t(codes[index]));
  } else if constexpr (kCodes == Codes::kE4M3) {
    return e4m3_value(codes[index]);
  } else {
    static_assert(kCodes == Codes::kE5M2);
    return e5m2_value(codes[index]);
  }
}

QGEN_DEVICE float scale_at(const Matrix& w, int64_t tile) {
  if (w.scale == nullptr) return 1;
  if (w.super_scale != nullptr)
    return f16_value(w.super_scale[tile >> w.super_shift]) * float(static_cast<const int8_t*>(w.scale)[tile]);
  return w.f16_scales ? f16_value(static_cast<const uint16_t*>(w.scale)[tile])
                      : static_cast<const float*>(w.scale)[tile];
}

QGEN_DEVICE bool has_minimum(const Matrix& w) { return w.minimum != nullptr || w.super_minimum != nullptr; }
QGEN_DEVICE float minimum_at(const Matrix& w, int64_t tile) {
  if (w.super_minimum != nullptr)
    return -(f16_value(w.super_minimum[tile >> w.super_shift]) * float(w.minimum_codes[tile]));
  return w.minimum != nullptr ? w.minimum[tile] : 0;
}

template <bool kHere, typename T>
QGEN_DEVICE T loaded(const T* p) {
  if constexpr (kHere) return load_here(p);
  return *p;
}

// The numbers of kGroups neighbouring groups of a grid, as they were loaded: values are made of them when they are
// needed, so that nothing waits for the loads before. The first group of two is an even one.
template <int kGroups, ScaleForm kForm>
struct GroupNumbers {
  static_assert(kForm == ScaleForm::kF32);
  float number[kGroups];
  template <bool kHere>
  QGEN_DEVICE void load(const void* grid, const uint16_t*, int, int tile) {
    QGEN_UNROLL
    for (int j = 0; j < kGroups; ++j) number[j] = loaded<kHere>(static_cast<const float*>(grid) + tile + j);
  }
  QGEN_DEVICE float value(int j) const { return number[j]; }
};
template <>
struct GroupNumbers<1, ScaleForm::kF16> {
  uint16_t bits;
  template <bool kHere>
  QGEN_DEVICE void load(const void* grid, const uint16_t*, int, int tile) {
    bits = loaded<kHere>(static_cast<const uint16_t*>(grid) + tile);
  }
  QGEN_DEVICE float value(int) const { return f16_value(bits); }
};
template <int kGroups>
struct GroupNumbers<kGroups, ScaleForm::kTwoLevels> {
  std::conditional_t<kGroups == 2, uint16_t, uint8_t> codes;
  uint16_t super;
  template <bool kHere>
  QGEN_DEVICE void load(const void* grid, const uint16_t* supers, int shift, int tile) {
    const uint8_t* const from = static_cast<const uint8_t*>(grid) + tile;
    codes = *reinterpret_cast<const decltype(codes)*>(from);
    super = supers[tile >> shift];
  }
  QGEN_DEVICE float value(int j) const { return f16_value(super) * float(int8_t(codes >> (8 * j))); }
};

// What kernels of matrix products need of a row's groups in a window. Grid: dispatch.cuh.
template <typename Grid>
struct GroupLoads {
  static constexpr int kGroups = Grid::kGroups < 1 ? 1 : Grid::kGroups;
  using Numbers = GroupNumbers<kGroups, Grid::kForm>;
  struct None {};
  Numbers scales;
  [[no_unique_address]] std::conditional_t<Grid::kMinimums, Numbers, None> minimums;

  QGEN_DEVICE void load(const Matrix& w, int tile) {
    scales.template load<false>(w.scale, w.super_scale, w.super_shift, tile);
    if constexpr (Grid::kMinimums) {
      if constexpr (Grid::kForm == ScaleForm::kTwoLevels) {
        minimums.template load<false>(w.minimum_codes, w.super_minimum, w.super_shift, tile);
      } else {
        minimums.template load<false>(w.minimum, nullptr, 0, tile);
      }
    }
  }
  // The same of one level, by loads that stay where this stands.
  QGEN_DEVICE void load_here(const void* grid, const float* minimum, int tile) {
    scales.template load<true>(grid, nullptr, 0, tile);
    if constexpr (Grid::kMinimums) minimums.template load<true>(minimum, nullptr, 0, tile);
  }
  QGEN_DEVICE float scale(int j) const { return scales.value(j); }
  QGEN_DEVICE float minimum(int j) const {
    return Grid::kForm == ScaleForm::kTwoLevels ? -minimums.value(j) : minimums.value(j);
  }
};

// Where the scales of row n begin in the grid, if groups have neighbouring rows. Most have one or 128, for which it
// need not be divided.
QGEN_DEVICE int first_group(const Matrix& w, int n) {
  const unsigned row = unsigned(w.row_origin + n), rows = unsigned(w.group_rows);
  return int(rows == 1 ? row : rows == 128 ? row / 128 : row / rows) * w.grid_cols;
}

// W[n, stored column k].
template <Codes kCodes>
QGEN_DEVICE float element(const Matrix& w, int n, int k) {
  const int64_t first =
      w.row_period > 0 ? int64_t((w.row_origin + n) % w.row_period) * w.grid_cols : int64_t(first_group(w, n));
  const int64_t tile = w.scale == nullptr ? 0 : first + k / w.group_cols;
  float code = code_value<kCodes>(w.codes + n * w.row_bytes, k);
  if (w.zero_point != nullptr) code -= w.zero_point[tile];
  const float scale = scale_at(w, tile);
  return has_minimum(w) ? fused_product(code, scale, minimum_at(w, tile)) : code * scale;
}

// The zero point of a group for a kernel of this kind. Minimums, scales of two levels and Q8_0's scales in F16 have
// none beside them.
template <typename Grid>
QGEN_DEVICE float zero_point_at(const Matrix& w, int tile) {
  if constexpr (Grid::kMinimums || Grid::kForm != ScaleForm::kF32) {
    return 0;
  } else {
    return w.zero_point != nullptr ? w.zero_point[tile] : 0;
  }
}

// For I8 with a zero point: what add_f16_pairs() must add to a code's magic number (see below).
QGEN_DEVICE uint32_t i8_bias(float zero_point) {
  const float bias = -1152 - zero_point;
  return f16_pair(bias, bias);
}

// With a minimum, a group's part of a row is scale * sum(code * x) + minimum * sum(x). A product with ones in the place
// of codes puts sum(x) where the sums of all rows are.
QGEN_DEVICE void add_inputs(float (&sum)[4], const uint32_t (&x)[2]) {
  constexpr uint32_t kOnes = 0x3C003C00;  // two of F16
  const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
  mma_f16(sum, ones, x);
}

// Four codes of 8 bits as two pairs: codes 0 and 1, codes 2 and 3.
template <Codes kCodes>
QGEN_DEVICE void four_codes(uint32_t word, uint32_t bias, uint32_t& first, uint32_t& second) {
  if constexpr (kCodes == Codes::kI8) {
    // A byte u below the upper byte 0x64 is the F16 number 1024 + u; u is the code + 128.
    const uint32_t moved = word ^ 0x80808080u;
    first = add_f16_pairs(permute_bytes(moved, 0x64646464u, 0x4140), bias);
    second = add_f16_pairs(permute_bytes(moved, 0x64646464u, 0x4342), bias);
  } else if constexpr (kCodes == Codes::kE4M3) {
    e4m3_four_to_f16(word, first, second);
  } else {
    static_assert(kCodes == Codes::kE5M2);  // the upper byte of F16
    first = permute_bytes(word, 0, 0x1404);
    second = permute_bytes(word, 0, 0x3424);
  }
}

// c += a b in the kind of floats that the codes become.
template <Codes kCodes>
QGEN_DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kCodes == Codes::kBf16) {
    mma_bf16(c, a, b);
  } else {
    mma_f16(c, a, b);
  }
}

QGEN_DEVICE bool finite(float x) { return x - x == 0; }

// Of all values of a block of kWarps: the sum of `a` and the largest `b`, in all its threads. `shared` has two numbers
// for each warp.
template <int kWarps>
QGEN_DEVICE void reduce(float& a, float& b, float* shared) {
  a = sum_lanes(a);
  b = largest_lane(b);
  if (lane_index() == 0) {
    shared[2 * warp_index()] = a;
    shared[2 * warp_index() + 1] = b;
  }
  barrier();
  a = shared[0];
  b = shared[1];
  QGEN_UNROLL
  for (int w = 1; w < kWarps; ++w) {
    a += shared[2 * w];
    b = larger(b, shared[2 * w + 1]);
  }
}

// True in all threads of the block that ends last, which then sees what the others wrote before. `counter` is zero
// between calls, `flag` is shared memory.
QGEN_DEVICE bool ends_last(uint32_t* counter, uint32_t blocks, uint32_t* flag) {
  barrier();
  if (thread_index() == 0) {
    fence();  // for what all threads wrote before the barrier
    const bool last = add_to(counter, 1) + 1 == blocks;
    if (last) *counter = 0;
    fence();
    *flag = last;
  }
  barrier();
  return *flag != 0;
}

// The power of two that brings numbers of at most `peak` below 2^14, where F16 has all of its 11 bits, and what undoes
// it. 1 for 0, NaN and infinity.
struct PowerOfTwo {
  float factor, inverse;
};
QGEN_DEVICE float power_of_two(int exponent) {
  union {
    uint32_t bits;
    float value;
  } out;
  out.bits = uint32_t(exponent + 127) << 23;
  return out.value;
}
QGEN_DEVICE PowerOfTwo f16_range(float peak) {
  union {
    float value;
    uint32_t bits;
  } in;
  in.value = peak;
  const int exponent = int(in.bits >> 23 & 0xFF) - 127;  // peak < 2^(exponent + 1)
  if (!(peak > 0) || exponent >= 128 || exponent < -100) return {1, 1};
  const int shift = 13 - exponent;
  return {power_of_two(shift), power_of_two(-shift)};
}

QGEN_DEVICE float sigmoid(float x) { return 1 / (1 + exp_fast(-x)); }
QGEN_DEVICE float softplus(float x) { return x > 20 ? x : log1p_exact(exp_fast(x)); }
QGEN_DEVICE float silu(float x) { return x / (1 + exp_fast(-x)); }
// As model/step.h has them.
QGEN_DEVICE float activated(Activation activation, float x) {
  constexpr float kRootHalf = 0.70710678f, kRootTwoOverPi = 0.79788456f;
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kSilu: return silu(x);
    case Activation::kGelu: return 0.5f * x * erfc_exact(-x * kRootHalf);
    case Activation::kGeluTanh: return 0.5f * x * (1 + tanh_exact(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
    case Activation::kRelu: return x > 0 || !(x == x) ? x : 0;
    case Activation::kReluSquared: return x > 0 || !(x == x) ? x * x : 0;
    case Activation::kSigmoid: return sigmoid(x);
    case Activation::kQuickGelu: return x * sigmoid(1.702f * x);
    case Activation::kSoftplus:
    case Activation::kExpm1Ratio: return x;  // of no product
  }
  return x;
}
// What the epilogue makes of a product, which its gate has been applied to: what goes to where `added` was.
QGEN_DEVICE float stored_product(const Epilogue& epilogue, float value, float added) {
  value *= epilogue.scale;
  if (epilogue.softcap > 0) value = epilogue.softcap * tanh_exact(value / epilogue.softcap);
  return epilogue.add ? added + value : value;
}
QGEN_DEVICE void store_product(const Epilogue& epilogue, float value, float* y) {
  *y = stored_product(epilogue, value, epilogue.add ? *y : 0);
}

}  // namespace qgen::QGEN_BACKEND
