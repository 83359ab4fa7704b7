// AVX-512 with VNNI, VBMI and BF16 (Zen 4, Sapphire Rapids): FP8 codes become bf16 by table lookup in
// registers and are multiplied with vdpbf16ps, as are bf16 weights; INT8 weights by integer dot products.
// x is a pair of bf16 (16 bits of mantissa); for many tokens, where arithmetic is the bound, it is rounded to bf16.
#include "cpu/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/generic.inc"
#include "cpu/int8_vnni.inc"
#include "cpu/words.inc"
#include "cpu/words_attention.inc"
#include "cpu/words_linear.inc"

bool supported() {
  return supports_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512bf16");
}

// The upper and lower bytes of the bf16 of every e4m3 magnitude (0 to 127), made by the rules of OFP8.
struct Tables {
  uint8_t high[128];
  uint8_t low[128];
};
constexpr Tables make_tables() {
  Tables tables{};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> 3, mantissa = code & 7;
    int bits = 0;
    if (code == 0x7F) {
      bits = 0x7FC0;  // NaN
    } else if (exponent > 0) {
      bits = (exponent + 120) << 7 | mantissa << 4;
    } else if (mantissa > 0) {  // mantissa * 2^-9, made normal
      int shift = 0;
      while ((mantissa << shift & 8) == 0) ++shift;
      bits = (121 - shift) << 7 | (mantissa << shift & 7) << 4;
    }
    tables.high[code] = static_cast<uint8_t>(bits >> 8);
    tables.low[code] = static_cast<uint8_t>(bits);
  }
  return tables;
}
alignas(64) constexpr Tables kTables = make_tables();

// The order of bytes for which unpacking the two halves gives elements 0..31 and 32..63.
alignas(64) constexpr uint8_t kUnpackOrder[64] = {0,  1,  2,  3,  4,  5,  6,  7,  32, 33, 34, 35, 36, 37, 38, 39,
                                                  8,  9,  10, 11, 12, 13, 14, 15, 40, 41, 42, 43, 44, 45, 46, 47,
                                                  16, 17, 18, 19, 20, 21, 22, 23, 48, 49, 50, 51, 52, 53, 54, 55,
                                                  24, 25, 26, 27, 28, 29, 30, 31, 56, 57, 58, 59, 60, 61, 62, 63};

struct Decoder {
  __m512i order = _mm512_load_si512(kUnpackOrder);
  __m512i high0 = _mm512_load_si512(kTables.high), high1 = _mm512_load_si512(kTables.high + 64);
  __m512i low0 = _mm512_load_si512(kTables.low), low1 = _mm512_load_si512(kTables.low + 64);

  // 64 codes as two times 32 bf16 in their order.
  void operator()(__m512i codes, __m512i& first, __m512i& second) const {
    codes = _mm512_permutexvar_epi8(order, codes);
    // The lookup uses the low seven bits of each code; its sign bit is put on top: high | (codes & 0x80).
    const __m512i high = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high0, codes, high1), codes,
                                                   _mm512_set1_epi8(static_cast<char>(0x80)), 0xF8);
    const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
    first = _mm512_unpacklo_epi8(low, high);
    second = _mm512_unpackhi_epi8(low, high);
  }
};

// sum + a b, as an instruction for the reason that dot_bytes has.
inline __attribute__((always_inline)) __m512 dot_bf16(__m512 sum, __m512i a, __m512i b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
inline __mmask32 first_words(int64_t count) { return count >= 32 ? ~0u : count <= 0 ? 0u : (1u << count) - 1; }

inline __m512i load512(const void* p) { return _mm512_loadu_si512(p); }

// How far ahead of its codes a row asks for memory: their decoding leaves the processor too few loads in flight.
constexpr int64_t kPrefetchBytes = 2048;

float e4m3_dot_row(const Decoder& decode, const Matrix& w, const Input& x, int64_t n) {
  const uint8_t* row = row_codes(w, n);
  const float* scales = row_values(w.scales, w, n);
  const uint16_t *high = x.bf16_high, *low = x.bf16_low;
  __m512 total = _mm512_setzero_ps();
  for (int64_t tile = 0; tile < w.tile_cols; ++tile) {
    const int64_t begin = tile * w.group_cols;
    const int64_t end = begin + w.group_cols < w.cols ? begin + w.group_cols : w.cols;
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    int64_t k = begin;
    for (; k + 64 <= end; k += 64) {
      __m512i w0, w1;
      _mm_prefetch(row + k + kPrefetchBytes, _MM_HINT_T0);
      decode(load512(row + k), w0, w1);
      sum[0] = dot_bf16(sum[0], w0, load512(high + k));
      sum[1] = dot_bf16(sum[1], w0, load512(low + k));
      sum[2] = dot_bf16(sum[2], w1, load512(high + k + 32));
      sum[3] = dot_bf16(sum[3], w1, load512(low + k + 32));
    }
    if (k < end) {
      const __mmask32 mask0 = first_words(end - k), mask1 = first_words(end - k - 32);
      __m512i w0, w1;
      decode(_mm512_maskz_loadu_epi8(first_bytes(end - k), row + k), w0, w1);
      sum[0] = dot_bf16(sum[0], w0, _mm512_maskz_loadu_epi16(mask0, high + k));
      sum[1] = dot_bf16(sum[1], w0, _mm512_maskz_loadu_epi16(mask0, low + k));
      sum[2] = dot_bf16(sum[2], w1, _mm512_maskz_loadu_epi16(mask1, high + k + 32));
      sum[3] = dot_bf16(sum[3], w1, _mm512_maskz_loadu_epi16(mask1, low + k + 32));
    }
    const __m512 sums = _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
    total = _mm512_fmadd_ps(sums, _mm512_set1_ps(scales[tile]), total);
  }
  return _mm512_reduce_add_ps(total);
}

void e4m3_one(const Matrix& w, const Input& x, int64_t row_begin, int64_t row_end, float* y, int64_t, void*) {
  const Decoder decode;
  for (int64_t n = row_begin; n < row_end; ++n) y[n - row_begin] = e4m3_dot_row(decode, w, x, n);
}

void bf16_one(const Matrix& w, const Input& x, int64_t row_begin, int64_t row_end, float* y, int64_t, void*) {
  for (int64_t n = row_begin; n < row_end; ++n) {
    const uint8_t* row = row_codes(w, n);
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    int64_t k = 0;
    for (; k + 64 <= w.cols; k += 64) {
      const __m512i w0 = load512(row + 2 * k), w1 = load512(row + 2 * k + 64);
      sum[0] = dot_bf16(sum[0], w0, load512(x.bf16_high + k));
      sum[1] = dot_bf16(sum[1], w0, load512(x.bf16_low + k));
      sum[2] = dot_bf16(sum[2], w1, load512(x.bf16_high + k + 32));
      sum[3] = dot_bf16(sum[3], w1, load512(x.bf16_low + k + 32));
    }
    for (; k < w.cols; k += 32) {  // x is padded with zeros
      const __m512i w0 = _mm512_maskz_loadu_epi16(first_words(w.cols - k), row + 2 * k);
      sum[0] = dot_bf16(sum[0], w0, load512(x.bf16_high + k));
      sum[1] = dot_bf16(sum[1], w0, load512(x.bf16_low + k));
    }
    y[n - row_begin] =
        _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
  }
}

// Thirty-two rows as [K / 2][32 rows][2 bf16].
template <bool kFp8>
void bf16_pack(const Matrix& w, int64_t row_begin, int64_t row_end, uint8_t* panel) {
  const Decoder decode;
  for (int group = 0; group < 2; ++group) {
    const int64_t first = row_begin + group * 16;
    for (int64_t k = 0; k < w.cols; k += 64) {
      const __mmask64 mask = first_bytes(w.cols - k);
      __m512i r0[16], r1[16];
      for (int i = 0; i < 16; ++i) {
        r0[i] = r1[i] = _mm512_setzero_si512();
        if (first + i >= row_end) continue;
        const uint8_t* row = row_codes(w, first + i);
        if constexpr (kFp8) {
          decode(_mm512_maskz_loadu_epi8(mask, row + k), r0[i], r1[i]);
        } else {
          r0[i] = _mm512_maskz_loadu_epi16(first_words(w.cols - k), row + k * 2);
          r1[i] = _mm512_maskz_loadu_epi16(first_words(w.cols - k - 32), row + k * 2 + 64);
        }
      }
      transpose16(r0);
      transpose16(r1);
      for (int i = 0; i < 16; ++i) {
        _mm512_storeu_si512(panel + ((k / 2 + i) * 2 + group) * 64, r0[i]);
        _mm512_storeu_si512(panel + ((k / 2 + 16 + i) * 2 + group) * 64, r1[i]);
      }
    }
  }
}

// Tokens t, t + 1, … times a panel, columns begin to end, added to `out`. kPair: x is a pair of bf16.
template <bool kPair, int... i>
void bf16_tile(Indices<i...>, const uint8_t* panel, const Input& x, int64_t t, int64_t begin, int64_t end,
               const float* scales, float (*out)[32]) {
  constexpr int kTokens = sizeof...(i);
  const uint16_t* const high[kTokens] = {x.bf16_high + (t + i) * x.stride...};
  const uint16_t* const low[kTokens] = {x.bf16_low + (kPair ? (t + i) * x.stride : 0)...};
  __m512 sum0[kTokens] = {((void)i, _mm512_setzero_ps())...}, sum1[kTokens] = {((void)i, _mm512_setzero_ps())...};
  for (int64_t k = begin; k < end; k += 2) {
    const __m512i w0 = load512(panel + k * 64), w1 = load512(panel + k * 64 + 64);
    const auto step = [&](const uint16_t* row, __m512& s0, __m512& s1) __attribute__((always_inline)) {
      const __m512i xi = broadcast_dword(row + k);
      s0 = dot_bf16(s0, w0, xi);
      s1 = dot_bf16(s1, w1, xi);
    };
    (step(high[i], sum0[i], sum1[i]), ...);
    if constexpr (kPair) (step(low[i], sum0[i], sum1[i]), ...);
  }
  const auto finish = [&](float* y, __m512 sum, int group) __attribute__((always_inline)) {
    const __m512 scale = scales == nullptr ? _mm512_set1_ps(1) : _mm512_loadu_ps(scales + group * 16);
    _mm512_storeu_ps(y + group * 16, _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(y + group * 16)));
  };
  ((finish(out[i], sum0[i], 0), finish(out[i], sum1[i], 1)), ...);
}

constexpr int64_t kBf16Tokens = 12;
using Bf16Tile = void (*)(const uint8_t* panel, const Input& x, int64_t t, int64_t begin, int64_t end,
                          const float* scales, float (*out)[32]);
template <bool kPair, int kTokens>
void bf16_tile_of(const uint8_t* panel, const Input& x, int64_t t, int64_t begin, int64_t end, const float* scales,
                  float (*out)[32]) {
  bf16_tile<kPair>(Count<kTokens>{}, panel, x, t, begin, end, scales, out);
}
template <bool kPair, int... i>
constexpr TileTable<Bf16Tile, sizeof...(i)> make_bf16_tiles(Indices<i...>) {
  return {{bf16_tile_of<kPair, i + 1>...}};
}

template <bool kFp8, bool kPair>
void bf16_many(const Matrix& w, const Input& x, int64_t row_begin, int64_t row_end, float* y, int64_t y_stride,
               void* scratch) {
  static constexpr auto kTiles = make_bf16_tiles<kPair>(Count<kBf16Tokens>{});
  const int64_t tiles = w.scales == nullptr ? 1 : w.tile_cols;
  const int64_t width = w.scales == nullptr ? w.cols : w.group_cols;
  float* scales = static_cast<float*>(scratch);
  uint8_t* panel = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(scales + 32 * tiles) + 63) / 64 * 64);
  const __m512 one = _mm512_set1_ps(1);
  for (int64_t n = row_begin; n < row_end; n += 32) {
    bf16_pack<kFp8>(w, n, row_end, panel);
    if (w.scales != nullptr) pack_scales(w, n, row_end, scales);
    for (int64_t t = 0; t < x.tokens; t += kBf16Tokens) {
      const int64_t step = x.tokens - t < kBf16Tokens ? x.tokens - t : kBf16Tokens;
      float out[kBf16Tokens][32] = {};
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t begin = tile * width;
        const int64_t end = begin + width < w.cols ? begin + width : w.cols;
        kTiles.tiles[step - 1](panel, x, t, begin, end, w.scales == nullptr ? nullptr : scales + tile * 32, out);
      }
      for (int64_t i = 0; i < step; ++i)
        store_rows(out[i], row_end - n, one, one, y + (t + i) * y_stride + n - row_begin);
    }
  }
}

template <int... i>
int64_t bf16_rounds(Indices<i...>, int64_t rounds) {
  __m512 sums[] = {((void)i, _mm512_setzero_ps())...};
  const __m512i ones = _mm512_set1_epi16(0x3F80);
  for (int64_t round = 0; round < rounds; ++round) ((sums[i] = dot_bf16(sums[i], ones, ones)), ...);
  __m512 total = _mm512_setzero_ps();
  ((total = _mm512_add_ps(total, sums[i])), ...);
  [[maybe_unused]] volatile float keep = _mm512_reduce_add_ps(total);
  return rounds * int64_t{sizeof...(i)} * 32 * 2;
}
int64_t bf16_peak(int64_t rounds) { return bf16_rounds(Count<12>{}, rounds); }

}  // namespace

const Body kAvx512Bf16Body = {
    "avx512-bf16",
    supported,
    {QGEN_GENERIC_KERNELS(0),
     QGEN_GENERIC_KERNELS(1),
     {{Form::kBf16Pair, bf16_one}, {Form::kBf16Pair, bf16_many<false, true>}, {Form::kBf16, bf16_many<false, false>}},
     {{Form::kPlanes, int8_one}, {Form::kWords, words_many}, {Form::kWords, words_many}},
     {{Form::kBf16Pair, e4m3_one}, {Form::kBf16Pair, bf16_many<true, true>}, {Form::kBf16, bf16_many<true, false>}},
     QGEN_GENERIC_KERNELS(5)},
    QGEN_ALL_GENERIC_KERNELS,
    {Form::kBytes, int8_bytes_many},
    32,
    QGEN_COMMON_FUNCTIONS(QGEN_ATTEND_WORDS, to_words),
    to_bytes,
    int8_lane_starts,
    read_sum,
    bf16_peak,
    int8_peak};

}  // namespace qgen::cpu
