// The kernels for any processor: vectors of eight floats that the compiler lowers to what it may use.
#include "cpu/isa/kernels.h"

namespace qgen::cpu {
namespace {

struct Vec {
  static constexpr int kWidth = 8;
  static constexpr int kRegisterTokens = 2;
  static constexpr int64_t kCodeBytes[] = {4, 2, 2, 1, 1, 1};
  static constexpr int64_t kKvBytes[] = {2, 2, 4, 1, 1};

  typedef float Lanes __attribute__((vector_size(32)));
  typedef int32_t Ints __attribute__((vector_size(32)));
  Lanes v;

  static Vec load(const float* p) {
    Vec out;
    __builtin_memcpy(&out.v, p, sizeof out.v);
    return out;
  }
  void store(float* p) const { __builtin_memcpy(p, &v, sizeof v); }
  static Vec set(float x) { return {Lanes{x, x, x, x, x, x, x, x}}; }
  static Vec zero() { return set(0); }
  static Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
  static void accumulate(Vec& sum, Vec a, Vec b) { sum = fma(a, b, sum); }
  static Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
  static Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
  static Vec round(Vec a) {  // for |a| < 2^22: adding 1.5 * 2^23 rounds to an integer
    const Vec magic = set(12582912.0f);
    return {(a.v + magic.v) - magic.v};
  }
  static Vec scale_by_power(Vec a, Vec n) {
    const Ints power = (__builtin_convertvector(n.v, Ints) + 127) << 23;
    Lanes factor;
    __builtin_memcpy(&factor, &power, sizeof factor);
    return {a.v * factor};
  }
  static Vec mix_bits(Vec a, Vec b) { return {(Lanes)((Ints)a.v ^ (Ints)b.v)}; }
  static float sum(Vec a) {
    float total = 0;
    for (int i = 0; i < kWidth; ++i) total += a.v[i];
    return total;
  }
  static float highest(Vec a) {
    float best = a.v[0];
    for (int i = 1; i < kWidth; ++i) best = a.v[i] > best ? a.v[i] : best;
    return best;
  }

  // kWidth rows become columns: row(i) gives a row, take(i, column i, column i + 1) is called for every second i.
  template <typename Row, typename Take>
  static void transpose(const Row& row, const Take& take) {
    Vec columns[kWidth];
    for (int i = 0; i < kWidth; ++i) {
      const Vec values = row(i);
      for (int j = 0; j < kWidth; ++j) columns[j].v[i] = values.v[j];
    }
    for (int i = 0; i < kWidth; i += 2) take(i, columns[i], columns[i + 1]);
  }

  static float from_f16(uint32_t bits) {
    // Shifted into place the exponent is 112 too small, which a product puts right, subnormals included.
    const uint32_t magnitude = (bits & 0x7FFF) << 13;
    float value;
    __builtin_memcpy(&value, &magnitude, 4);
    value *= 0x1p112f;
    if ((bits & 0x7C00) == 0x7C00) {
      const uint32_t special = 0x7F800000 | (bits & 0x3FF) << 13;
      __builtin_memcpy(&value, &special, 4);
    }
    return bits & 0x8000 ? -value : value;
  }
  static uint16_t to_f16(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);
    if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);
    if (magnitude < 0x38800000) {
      float scaled;
      __builtin_memcpy(&scaled, &magnitude, 4);
      const float rounded = scaled * 0x1p24f + 0x1p23f;
      uint32_t out;
      __builtin_memcpy(&out, &rounded, 4);
      return static_cast<uint16_t>(sign | (out & 0x7FF));
    }
    return static_cast<uint16_t>(sign | (((magnitude + 0xFFF + (magnitude >> 13 & 1)) >> 13) - (112u << 10)));
  }
  static void store_f16(Vec x, uint16_t* out) {
    for (int i = 0; i < kWidth; ++i) out[i] = to_f16(x.v[i]);
  }

  static float decode_scalar(int type, const uint8_t* p) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, p, kCodeBytes[type]);
    float value = 0;
    switch (type) {
      case 0: break;
      case 1: return from_f16(bits);
      case 2: bits <<= 16; break;
      case 3: return static_cast<int8_t>(bits);
      case 4: return from_f16((bits & 0x80) << 8 | (bits & 0x7F) << 7);  // times 2^-8, see decode_scale
      default: return from_f16(bits << 8);
    }
    __builtin_memcpy(&value, &bits, 4);
    return value;
  }
  template <int kType>
  static Vec decode(const uint8_t* p) {
    Vec out;
    for (int i = 0; i < kWidth; ++i) out.v[i] = decode_scalar(kType, p + i * kCodeBytes[kType]);
    return out;
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

  friend Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
  friend Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
  friend Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
  friend Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
};

// In the order of their dependence:
// clang-format off
#include "cpu/isa/common.inc"
#include "cpu/isa/f32_linear.inc"
#include "cpu/isa/column_groups.inc"
#include "cpu/isa/elementwise.inc"
#include "cpu/isa/recurrence.inc"
#include "cpu/isa/kv_store.inc"
#include "cpu/isa/inputs.inc"
#include "cpu/isa/attention.inc"
#include "cpu/isa/panels.inc"
#include "cpu/isa/tables.inc"
// clang-format on

bool supported() { return true; }

}  // namespace

const IsaTarget kPortableTarget = {.name = "portable",
                                   .supported = supported,
                                   .kernels = QGEN_ALL_F32_KERNELS,
                                   .fallback = QGEN_ALL_F32_KERNELS,
                                   .int8_groups = {},
                                   .int8_inputs = {},
                                   .panel_rows = kPanel,
                                   .attend_int16 = {},
                                   .attend_int8 = nullptr,
                                   .to_int16 = nullptr,
                                   .to_int8 = nullptr,
                                   .float_peak = fma_peak,
                                   .int8_peak = fma_peak,
                                   QGEN_COMMON_FIELDS};

}  // namespace qgen::cpu
