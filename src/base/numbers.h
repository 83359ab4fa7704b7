// The number formats of checkpoints, as plain functions on their bits. Everything here is exact; the
// only rounding is in float_to_f16 and float_to_bf16 (to nearest, ties to even).
// f16, bf16: IEEE 754 and its upper half. e4m3, e5m2: OCP 8-bit floating point (OFP8, 2023). e8m0: OCP MX.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace qgen {

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1F;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays NaN
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);   // NaN
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // rounds to infinity
  if (magnitude < 0x38800000) {                                              // subnormal: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;          // exact
    const float rounded = scaled + 0x1p23f;                                  // rounds to an integer, ties to even
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) & 0x7FF));
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

// e4m3fn: no infinity; 0x7F and 0xFF are NaN; the largest value is 448.
inline float e4m3_to_float(uint8_t bits) {
  const uint32_t exponent = bits >> 3 & 0xF;
  const uint32_t mantissa = bits & 7;
  float magnitude;
  if ((bits & 0x7F) == 0x7F) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    magnitude = std::bit_cast<float>((exponent + 120) << 23 | mantissa << 20);
  }
  return bits & 0x80 ? -magnitude : magnitude;
}

inline float e5m2_to_float(uint8_t bits) { return f16_to_float(static_cast<uint16_t>(bits << 8)); }

// e8m0: a power of two, 2^(bits - 127); 0xFF is NaN. 2^-127 is a subnormal float.
inline float e8m0_to_float(uint8_t bits) {
  if (bits == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  if (bits == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(uint32_t{bits} << 23);
}

}  // namespace qgen
