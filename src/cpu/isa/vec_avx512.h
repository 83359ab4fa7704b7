// Sixteen floats in AVX-512 (F, BW, DQ, VL), shared by the AVX-512 targets. Everything has internal linkage:
// each target compiles its own copy with its own flags.
#pragma once

#include <immintrin.h>

#include "cpu/isa/kernels.h"

namespace qgen::cpu {
namespace {

// Sixteen rows of sixteen 32-bit elements become columns: row(i) gives a row, take(i, column i, column i + 1) is called
// for every second i. Rows are combined as they come, so that all of it stays in registers.
template <typename Row, typename Take>
inline __attribute__((always_inline)) void transpose16(const Row& row, const Take& take) {
  __m512i r[16];
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    const __m512i a = row(g), b = row(g + 1), c = row(g + 2), d = row(g + 3);
    const __m512i ab0 = _mm512_unpacklo_epi32(a, b), ab1 = _mm512_unpackhi_epi32(a, b);
    const __m512i cd0 = _mm512_unpacklo_epi32(c, d), cd1 = _mm512_unpackhi_epi32(c, d);
    r[g] = _mm512_unpacklo_epi64(ab0, cd0);
    r[g + 1] = _mm512_unpackhi_epi64(ab0, cd0);
    r[g + 2] = _mm512_unpacklo_epi64(ab1, cd1);
    r[g + 3] = _mm512_unpackhi_epi64(ab1, cd1);
  }
  // r[g + j] now holds, in 128-bit lane l, column 4 * l + j of rows g .. g + 3.
#pragma GCC unroll 2
  for (int j = 0; j < 4; j += 2) {
    __m512i columns[2][4];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512i a = _mm512_shuffle_i32x4(r[j + i], r[4 + j + i], 0x88);  // lanes 0, 2 of rows 0 .. 7
      const __m512i b = _mm512_shuffle_i32x4(r[j + i], r[4 + j + i], 0xDD);  // lanes 1, 3
      const __m512i c = _mm512_shuffle_i32x4(r[8 + j + i], r[12 + j + i], 0x88);
      const __m512i d = _mm512_shuffle_i32x4(r[8 + j + i], r[12 + j + i], 0xDD);
      columns[i][0] = _mm512_shuffle_i32x4(a, c, 0x88);
      columns[i][1] = _mm512_shuffle_i32x4(b, d, 0x88);
      columns[i][2] = _mm512_shuffle_i32x4(a, c, 0xDD);
      columns[i][3] = _mm512_shuffle_i32x4(b, d, 0xDD);
    }
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) take(4 * l + j, columns[0][l], columns[1][l]);
  }
}

struct Vec {
  static constexpr int kWidth = 16;
  static constexpr int kRegisterTokens = 12;
  static constexpr int64_t kCodeBytes[] = {4, 2, 2, 1, 1, 1};
  static constexpr int64_t kKvBytes[] = {2, 2, 4, 1, 1};

  __m512 v;

  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  static Vec set(float x) { return {_mm512_set1_ps(x)}; }
  // The first half of the lanes and the second.
  static Vec set_halves(float first, float second) {
    return {_mm512_insertf32x8(_mm512_set1_ps(first), _mm256_set1_ps(second), 1)};
  }
  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  // sum += a * b as an instruction, for tiles of accumulators: GCC 12 moves them around for the intrinsic.
  static __attribute__((always_inline)) void accumulate(Vec& sum, Vec a, Vec b) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
  }
  static Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  static Vec scale_by_power(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
  static Vec mix_bits(Vec a, Vec b) { return {_mm512_xor_ps(a.v, b.v)}; }
  static float sum(Vec a) { return _mm512_reduce_add_ps(a.v); }
  static float highest(Vec a) { return _mm512_reduce_max_ps(a.v); }
  static float from_f16(uint16_t x) { return _cvtsh_ss(x); }
  // The f16 at p, which 6 bytes follow.
  static Vec set_f16(const uint8_t* p) { return {_mm512_broadcastss_ps(_mm_cvtph_ps(_mm_loadu_si64(p)))}; }
  static void store_f16(Vec x, uint16_t* out) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
  }

  // kWidth rows become columns, as transpose16() does it.
  template <typename Row, typename Take>
  static __attribute__((always_inline)) void transpose(const Row& row, const Take& take) {
    const auto bits = [](__m512i x) { return Vec{_mm512_castsi512_ps(x)}; };
    transpose16(
        [&](int i) __attribute__((always_inline)) { return _mm512_castps_si512(row(i).v); },
        [&](int i, __m512i first, __m512i second)
            __attribute__((always_inline)) { take(i, bits(first), bits(second)); });
  }

  static __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static __m256i load32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

  template <int kType>
  static Vec decode(const uint8_t* p) {
    if constexpr (kType == 0) {
      return load(reinterpret_cast<const float*>(p));
    } else if constexpr (kType == 1) {
      return {_mm512_cvtph_ps(load32(p))};
    } else if constexpr (kType == 2) {
      return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16))};
    } else if constexpr (kType == 3) {
      return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p)))};
    } else if constexpr (kType == 4) {  // the bits of an f16, times 2^-8: exact, subnormals included
      const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load16(p)), 7);  // the sign in bits 15 and 14
      return {_mm512_cvtph_ps(_mm256_and_si256(shifted, _mm256_set1_epi16(short(0xBFFF))))};
    } else {
      return {_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load16(p)), 8))};
    }
  }
  template <int kType>
  static void decode_two(const uint8_t* p, Vec& first, Vec& second) {
    first = decode<kType>(p);
    second = decode<kType>(p + kWidth * kCodeBytes[kType]);
  }
  template <int kKv>
  static Vec load_kv(const uint8_t* p) {
    constexpr int kType[] = {1, 2, 0, 4, 3};
    return decode<kType[kKv]>(p);
  }

  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
};

// Thirty-two 16-bit integers, in pairs whose products are added to 32-bit sums.
struct Int16Vec {
  // Whether processors of the target add beside products.
#ifdef QGEN_ADDS_BESIDE_PRODUCTS
  static constexpr bool kWinograd = true;
#else
  static constexpr bool kWinograd = false;
#endif

  __m512i v;

  static Int16Vec zero() { return {_mm512_setzero_si512()}; }
  static Int16Vec load(const void* p) { return {_mm512_loadu_si512(p)}; }
  // 32 signed bytes.
  static Int16Vec widen(const uint8_t* bytes) {
    return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)))};
  }
  // Two rows of 16 signed bytes, the elements of `first` in the lower halves.
  static Int16Vec widen_pairs(const uint8_t* first, const uint8_t* second) {
    constexpr auto kSecond = [](int i) { return (i + 16) << 16 | i; };
    const __m512i order = _mm512_setr_epi32(kSecond(0), kSecond(1), kSecond(2), kSecond(3), kSecond(4), kSecond(5),
                                            kSecond(6), kSecond(7), kSecond(8), kSecond(9), kSecond(10), kSecond(11),
                                            kSecond(12), kSecond(13), kSecond(14), kSecond(15));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(Vec::load16(first)), Vec::load16(second), 1);
    return {_mm512_permutexvar_epi16(order, _mm512_cvtepi8_epi16(both))};
  }
  static Int16Vec add(Int16Vec a, Int16Vec b) { return {_mm512_add_epi32(a.v, b.v)}; }
  static Int16Vec subtract(Int16Vec a, Int16Vec b) { return {_mm512_sub_epi32(a.v, b.v)}; }
  static Int16Vec add_halves(Int16Vec a, Int16Vec b) { return {_mm512_add_epi16(a.v, b.v)}; }
  static Int16Vec keep(Int16Vec a, Int16Vec mask) { return {_mm512_and_si512(a.v, mask.v)}; }
  static Int16Vec swap_pairs(Int16Vec a) { return {_mm512_shuffle_epi32(a.v, _MM_PERM_CDAB)}; }  // two and two
  // The horizontal sum modulo 2^32, as Winograd inner products need it; _mm512_reduce_add_epi32() adds ints, whose
  // overflow is undefined.
  static int32_t total(Int16Vec a) {
    const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(a.v), _mm512_extracti64x4_epi64(a.v, 1));
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
  }
  Vec bits() const { return {_mm512_castsi512_ps(v)}; }
  void store(Int16Vec* p) const { _mm512_storeu_si512(p, v); }
  static Int16Vec broadcast(const int32_t* pair) { return {_mm512_set1_epi32(*pair)}; }
  // The sums of the products of each pair.
  static Int16Vec multiply(Int16Vec a, Int16Vec b) { return {_mm512_madd_epi16(a.v, b.v)}; }
  // sum += a * b, as instructions for the reason that accumulate() has.
  static __attribute__((always_inline)) void dot(Int16Vec& sum, Int16Vec a, Int16Vec b) {
#ifdef __AVX512VNNI__
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
#else
    __m512i products;
    asm("vpmaddwd %2, %1, %0" : "=v"(products) : "v"(a.v), "v"(b.v));
    asm("vpaddd %1, %0, %0" : "+v"(sum.v) : "v"(products));
#endif
  }
  Vec to_floats() const { return {_mm512_cvtepi32_ps(v)}; }
  // The nearest integers: those of `low` in the lower halves.
  static Int16Vec pair(Vec low, Vec high) {
    return {_mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_cvtps_epi32(low.v),
                                    _mm512_slli_epi32(_mm512_cvtps_epi32(high.v), 16))};
  }
  // Those of x one after the other.
  static void store_halves(Vec x, int32_t* out) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x.v)));
  }
};

bool supports_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace
}  // namespace qgen::cpu
