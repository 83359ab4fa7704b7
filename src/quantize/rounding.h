// The arithmetic of quantizing on runs of F32 values, vectorized for each instruction set. All of them give the same
// bits: sums are taken in kSumLanes interleaved lanes, and nothing is contracted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qgen::quantize {

// Sums of a run have this many partial sums, element i in lane i % kSumLanes, which are added up in order.
constexpr int kSumLanes = 16;

// Every function works on n values. `scale` must be positive and finite; a value is divided by it.
struct RoundingKernels {
  const char* name;
  // BF16 and F16 in memory, possibly unaligned, to F32; exact.
  void (*widen_bf16)(const std::byte* from, int64_t n, float* out);
  void (*widen_f16)(const std::byte* from, int64_t n, float* out);
  // The bits of the largest magnitude: above 0x7F800000 if there is a NaN, that if there is an infinity.
  uint32_t (*largest_magnitude)(const float* values, int64_t n);
  // The sum of (w / largest)^2, each times the weight of its column where there are weights (else nullptr); `largest`
  // keeps the squares in range.
  double (*sum_of_squares)(const float* values, const float* weights, int64_t n, float largest);
  // E4M3 codes (OCP OFP8) to the nearest, ties to even, saturated at 448.
  void (*to_e4m3)(const float* values, int64_t n, float scale, uint8_t* out);
  // Integers to the nearest within +-127: ties to even, or away from zero.
  void (*to_int8)(const float* values, int64_t n, float scale, bool ties_away, int8_t* out);
  // The sum of (w / scale - code)^2, in units of codes, each times the weight of its column where there are weights.
  double (*e4m3_error)(const float* values, const float* weights, int64_t n, float scale);
  double (*int8_error)(const float* values, const float* weights, int64_t n, float scale, bool ties_away);
};

// For the best instruction set of this processor; `name` (a kernel table's) asks for that one, nullptr where the
// processor does not have it.
const RoundingKernels& rounding_kernels();
const RoundingKernels* rounding_kernels(const char* name);

}  // namespace qgen::quantize
