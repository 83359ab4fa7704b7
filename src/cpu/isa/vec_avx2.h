// Eight floats, and sixteen 16-bit integers, in AVX2 (with FMA and F16C), shared by the AVX2 targets. Everything has
// internal linkage: each target compiles its own copy with its own flags.
#pragma once

#include <cpuid.h>
#include <immintrin.h>

#include "cpu/isa/kernels.h"

namespace qgen::cpu {
namespace {

struct Vec {
  static constexpr int kWidth = 8;
  static constexpr int kRegisterTokens = 6;
  static constexpr int64_t kCodeBytes[] = {4, 2, 2, 1, 1, 1};
  static constexpr int64_t kKvBytes[] = {2, 2, 4, 1, 1};

  __m256 v;

  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  static Vec set(float x) { return {_mm256_set1_ps(x)}; }
  // The first half of the lanes and the second.
  static Vec set_halves(float first, float second) {
    return {_mm256_set_m128(_mm_set1_ps(second), _mm_set1_ps(first))};
  }
  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  // sum += a * b as an instruction, for tiles of accumulators: GCC 12 moves them around for the intrinsic.
  static __attribute__((always_inline)) void accumulate(Vec& sum, Vec a, Vec b) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum.v) : "x"(a.v), "x"(b.v));
  }
  static Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  static Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  static Vec round(Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  static Vec scale_by_power(Vec a, Vec n) {
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
    return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(power))};
  }
  static Vec mix_bits(Vec a, Vec b) { return {_mm256_xor_ps(a.v, b.v)}; }
  static float sum(Vec a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
  }
  static float highest(Vec a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
  }
  static float from_f16(uint16_t x) { return _cvtsh_ss(x); }
  // The f16 at p, which 6 bytes follow.
  static Vec set_f16(const uint8_t* p) { return {_mm256_broadcastss_ps(_mm_cvtph_ps(_mm_loadu_si64(p)))}; }
  static void store_f16(Vec x, uint16_t* out) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
  }

  // kWidth rows become columns: row(i) gives a row, take(i, column i, column i + 1) is called for every second i.
  template <typename Row, typename Take>
  static __attribute__((always_inline)) void transpose(const Row& row, const Take& take) {
    __m256 r[8];
#pragma GCC unroll 2
    for (int g = 0; g < 8; g += 4) {
      const __m256 a = row(g).v, b = row(g + 1).v, c = row(g + 2).v, d = row(g + 3).v;
      const __m256 ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
      const __m256 cd0 = _mm256_unpacklo_ps(c, d), cd1 = _mm256_unpackhi_ps(c, d);
      r[g] = _mm256_shuffle_ps(ab0, cd0, 0x44);
      r[g + 1] = _mm256_shuffle_ps(ab0, cd0, 0xEE);
      r[g + 2] = _mm256_shuffle_ps(ab1, cd1, 0x44);
      r[g + 3] = _mm256_shuffle_ps(ab1, cd1, 0xEE);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
      const auto low = [&](int j) { return Vec{_mm256_permute2f128_ps(r[j], r[j + 4], 0x20)}; };
      const auto high = [&](int j) { return Vec{_mm256_permute2f128_ps(r[j], r[j + 4], 0x31)}; };
      take(i, low(i), low(i + 1));
      take(i + 4, high(i), high(i + 1));
    }
  }

  static __m128i load8(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
  static __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

  template <int kType>
  static Vec decode(const uint8_t* p) {
    if constexpr (kType == 0) {
      return load(reinterpret_cast<const float*>(p));
    } else if constexpr (kType == 1) {
      return {_mm256_cvtph_ps(load16(p))};
    } else if constexpr (kType == 2) {
      return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16))};
    } else if constexpr (kType == 3) {
      return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p)))};
    } else if constexpr (kType == 4) {  // the bits of an f16, times 2^-8: exact, subnormals included
      const __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(load8(p)), 7);  // the sign in bits 15 and 14
      return {_mm256_cvtph_ps(_mm_and_si128(shifted, _mm_set1_epi16(short(0xBFFF))))};
    } else {
      return {_mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load8(p)), 8))};
    }
  }
  // The vector at p and the one behind it.
  template <int kType>
  static void decode_two(const uint8_t* p, Vec& first, Vec& second) {
    if constexpr (kType == 4) {
      const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load16(p)), 7);
      const __m256i bits = _mm256_and_si256(shifted, _mm256_set1_epi16(short(0xBFFF)));
      first = {_mm256_cvtph_ps(_mm256_castsi256_si128(bits))};
      second = {_mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
    } else {
      first = decode<kType>(p);
      second = decode<kType>(p + kWidth * kCodeBytes[kType]);
    }
  }
  template <int kKv>
  static Vec load_kv(const uint8_t* p) {
    constexpr int kType[] = {1, 2, 0, 4, 3};
    return decode<kType[kKv]>(p);
  }

  friend Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
};

// Sixteen 16-bit integers, in pairs whose products are added to 32-bit sums.
struct Int16Vec {
  static constexpr bool kWinograd = false;

  __m256i v;

  static Int16Vec zero() { return {_mm256_setzero_si256()}; }
  static Int16Vec load(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
  // Sixteen signed bytes.
  static Int16Vec widen(const uint8_t* bytes) { return {_mm256_cvtepi8_epi16(Vec::load16(bytes))}; }
  // Two rows of 8 signed bytes, the elements of `first` in the lower halves.
  static Int16Vec widen_pairs(const uint8_t* first, const uint8_t* second) {
    return {_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(Vec::load8(first), Vec::load8(second)))};
  }
  static Int16Vec add(Int16Vec a, Int16Vec b) { return {_mm256_add_epi32(a.v, b.v)}; }
  static Int16Vec subtract(Int16Vec a, Int16Vec b) { return {_mm256_sub_epi32(a.v, b.v)}; }
  static Int16Vec add_halves(Int16Vec a, Int16Vec b) { return {_mm256_add_epi16(a.v, b.v)}; }
  static Int16Vec keep(Int16Vec a, Int16Vec mask) { return {_mm256_and_si256(a.v, mask.v)}; }
  static Int16Vec swap_pairs(Int16Vec a) { return {_mm256_shuffle_epi32(a.v, 0xB1)}; }  // two and two
  // Modulo 2^32.
  static int32_t total(Int16Vec a) {
    alignas(32) uint32_t sums[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums), a.v);
    for (int i = 1; i < 8; ++i) sums[0] += sums[i];
    return int32_t(sums[0]);
  }
  Vec bits() const { return {_mm256_castsi256_ps(v)}; }
  void store(Int16Vec* p) const { _mm256_storeu_si256(&p->v, v); }
  static Int16Vec broadcast(const int32_t* pair) { return {_mm256_set1_epi32(*pair)}; }
  // The sums of the products of each pair.
  static Int16Vec multiply(Int16Vec a, Int16Vec b) { return {_mm256_madd_epi16(a.v, b.v)}; }
  // sum += a * b, as instructions for the reason that accumulate() has.
  static __attribute__((always_inline)) void dot(Int16Vec& sum, Int16Vec a, Int16Vec b) {
#if defined(__AVXVNNI__)
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum.v) : "x"(a.v), "x"(b.v));
#elif defined(__AVX512VNNI__)  // the same instruction in another encoding: for tests on processors that have that one
    asm("vpdpwssd %2, %1, %0" : "+x"(sum.v) : "x"(a.v), "x"(b.v));
#else
    __m256i products;
    asm("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(a.v), "x"(b.v));
    asm("vpaddd %1, %0, %0" : "+x"(sum.v) : "x"(products));
#endif
  }
  Vec to_floats() const { return {_mm256_cvtepi32_ps(v)}; }
  // The nearest integers: those of `low` in the lower halves.
  static Int16Vec pair(Vec low, Vec high) {
    return {_mm256_blend_epi16(_mm256_cvtps_epi32(low.v), _mm256_slli_epi32(_mm256_cvtps_epi32(high.v), 16), 0xAA)};
  }
  // Those of x one after the other.
  static void store_halves(Vec x, int32_t* out) {
    const __m256i int16s = _mm256_cvtps_epi32(x.v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm_packs_epi32(_mm256_castsi256_si128(int16s), _mm256_extracti128_si256(int16s, 1)));
  }
};

bool supports_avx2() {
  unsigned eax, ebx, ecx = 0, edx;  // not every compiler's cpu_supports knows F16C: bit 29 of ECX
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
}

}  // namespace
}  // namespace qgen::cpu
