// Rounding to codes: every value that matters, the same on all instruction sets.
#include "quantize/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/numbers.h"
#include "tests/support.h"

namespace qgen::quantize {
namespace {

std::vector<const RoundingKernels*> all_kernels() {
  std::vector<const RoundingKernels*> out;
  for (const char* name : {"portable", "avx2", "avx512"}) {
    if (const RoundingKernels* kernels = rounding_kernels(name)) out.push_back(kernels);
  }
  return out;
}

// All finite magnitudes of E4M3 in order, and what lies between them: the quarters and the middle.
std::vector<float> around_codes() {
  std::vector<float> out;
  for (int code = 0; code < 0x7E; ++code) {
    const float low = e4m3_to_float(uint8_t(code)), high = e4m3_to_float(uint8_t(code + 1));
    const float middle = (low + high) / 2;
    for (const float value : {low, (low + middle) / 2, std::nextafter(middle, 0.0f), middle,
                              std::nextafter(middle, 1e9f), (middle + high) / 2, high}) {
      out.push_back(value);
      out.push_back(-value);
    }
  }
  for (const float value : {449.0f, 464.0f, 480.0f, 1e6f, 3e38f}) out.push_back(value);
  return out;
}

// To the nearest code, ties to the even one, by looking at all of them.
uint8_t nearest_e4m3(float value) {
  uint8_t best = 0;
  for (int code = 1; code <= 0x7E; ++code) {
    const double error = std::fabs(std::fabs(double(value)) - double(e4m3_to_float(uint8_t(code))));
    const double least = std::fabs(std::fabs(double(value)) - double(e4m3_to_float(best)));
    if (error < least || (error == least && code % 2 == 0)) best = uint8_t(code);
  }
  return uint8_t(best | (std::signbit(value) ? 0x80 : 0));
}

TEST_CASE("E4M3 codes are the nearest, ties to even, saturated") {
  const std::vector<float> values = around_codes();
  for (const RoundingKernels* kernels : all_kernels()) {
    for (const float scale : {1.0f, 0x1p-20f, 0x1p60f}) {
      std::vector<float> scaled;
      for (const float value : values) scaled.push_back(std::fabs(value) < 1e30f ? value * scale : 448 * scale);
      std::vector<uint8_t> codes(values.size());
      kernels->to_e4m3(scaled.data(), int64_t(values.size()), scale, codes.data());
      for (size_t i = 0; i < values.size(); ++i) {
        INFO(kernels->name, " ", values[i]);
        REQUIRE(int(codes[i]) == int(nearest_e4m3(values[i])));
      }
    }
  }
}

TEST_CASE("int8 codes are the nearest, ties to even or away from zero, within 127") {
  std::vector<float> values;
  for (int code = -128; code <= 128; ++code) {
    for (const float part : {0.0f, 0.25f, 0.5f, 0.75f}) values.push_back(float(code) + part);
  }
  for (const float value : {0.49999997f, -0.49999997f, 1e9f, -1e9f, -0.0f}) values.push_back(value);
  for (const RoundingKernels* kernels : all_kernels()) {
    for (const bool away : {false, true}) {
      std::vector<int8_t> codes(values.size());
      kernels->to_int8(values.data(), int64_t(values.size()), 1, away, codes.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const float rounded = away ? std::round(values[i]) : std::nearbyint(values[i]);
        INFO(kernels->name, " ", values[i], " ", away);
        REQUIRE(int(codes[i]) == int(std::clamp(rounded, -127.0f, 127.0f)));
      }
    }
  }
}

TEST_CASE("16-bit floats are widened exactly") {
  std::vector<uint16_t> bits(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = uint16_t(i);
  std::vector<std::byte> bytes(1 + 2 * bits.size());
  std::memcpy(bytes.data() + 1, bits.data(), 2 * bits.size());  // unaligned
  for (const RoundingKernels* kernels : all_kernels()) {
    std::vector<float> f16(bits.size()), bf16(bits.size());
    kernels->widen_f16(bytes.data() + 1, int64_t(bits.size()), f16.data());
    kernels->widen_bf16(bytes.data() + 1, int64_t(bits.size()), bf16.data());
    for (size_t i = 0; i < bits.size(); ++i) {
      const float expected = f16_to_float(bits[i]);
      REQUIRE((std::isnan(expected) ? std::isnan(f16[i])
                                    : std::bit_cast<uint32_t>(f16[i]) == std::bit_cast<uint32_t>(expected)));
      REQUIRE(std::bit_cast<uint32_t>(bf16[i]) == uint32_t(bits[i]) << 16);
    }
  }
}

TEST_CASE("Sums and errors are the same bits on all instruction sets, and right") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const int64_t n : {1, 15, 16, 17, 128, 255, 256, 257, 1000}) {
    std::vector<float> values, weights;
    for (int64_t i = 0; i < n; ++i) {
      values.push_back(normal(random));
      weights.push_back(std::fabs(normal(random)));
    }
    const RoundingKernels& portable = *rounding_kernels("portable");
    const float scale = 0.01f;
    double squares = 0, fp8_error = 0, int8_error = 0;
    std::vector<uint8_t> codes(values.size());
    std::vector<int8_t> integers(values.size());
    portable.to_e4m3(values.data(), n, scale, codes.data());
    portable.to_int8(values.data(), n, scale, false, integers.data());
    for (size_t i = 0; i < values.size(); ++i) {
      squares += double(values[i]) * values[i] * weights[i];
      fp8_error += std::pow(double(values[i]) / scale - e4m3_to_float(codes[i]), 2) * weights[i];
      int8_error += std::pow(double(values[i]) / scale - integers[i], 2) * weights[i];
    }
    CHECK(portable.sum_of_squares(values.data(), weights.data(), n, 1) == doctest::Approx(squares).epsilon(1e-5));
    CHECK(portable.e4m3_error(values.data(), weights.data(), n, scale) == doctest::Approx(fp8_error).epsilon(1e-3));
    CHECK(portable.int8_error(values.data(), weights.data(), n, scale, false) ==
          doctest::Approx(int8_error).epsilon(1e-3));
    for (const RoundingKernels* kernels : all_kernels()) {
      for (const float* w : {static_cast<const float*>(nullptr), const_cast<const float*>(weights.data())}) {
        CHECK(kernels->sum_of_squares(values.data(), w, n, 3) == portable.sum_of_squares(values.data(), w, n, 3));
        CHECK(kernels->e4m3_error(values.data(), w, n, scale) == portable.e4m3_error(values.data(), w, n, scale));
        for (const bool away : {false, true}) {
          CHECK(kernels->int8_error(values.data(), w, n, scale, away) ==
                portable.int8_error(values.data(), w, n, scale, away));
        }
      }
      CHECK(kernels->largest_magnitude(values.data(), n) == portable.largest_magnitude(values.data(), n));
    }
  }
}

TEST_CASE("The largest magnitude shows infinities and NaN") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const RoundingKernels* kernels : all_kernels()) {
    for (size_t at = 0; at < 40; ++at) {
      std::vector<float> values(40, -1.0f);
      CHECK(kernels->largest_magnitude(values.data(), 40) == std::bit_cast<uint32_t>(1.0f));
      values[at] = -infinity;
      CHECK(kernels->largest_magnitude(values.data(), 40) == 0x7F800000);
      values[at] = nan;
      CHECK(kernels->largest_magnitude(values.data(), 40) > 0x7F800000);
    }
  }
}

}  // namespace
}  // namespace qgen::quantize
