// The primitives of kernels/primitives.cuh for the executor.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/numbers.h"
#include "kernels/simt/executor.h"
#include "kernels/simt/memory_check.h"
#include "kernels/simt/warp.h"

#define QGEN_DEVICE inline
#define QGEN_KERNEL(...) inline void
#define QGEN_UNROLL
#define QGEN_UNROLL_BY(count)

namespace qgen::simt {

constexpr bool kNextBlockHasRoom = false;

inline int thread_index() { return thread_of_block(); }
inline int not_known(int x) { return x; }
inline int thread_index_anew() { return thread_index(); }
inline int lane_index() { return thread_of_block() % kWarp; }
inline int warp_index() { return thread_of_block() / kWarp; }
inline Dim block_index() { return place().block; }
inline Dim grid_size() { return place().grid; }
template <typename T>
T* shared_memory() {
  return reinterpret_cast<T*>(shared());
}
inline void barrier() { meet(); }
inline void warp_barrier() { meet_warp(); }
// QGEN_UNCHECKED: what reads the exchanges of the executor.
template <typename T>
QGEN_UNCHECKED T exchange_xor(T value, int mask) {
  const std::byte* slots = exchange(&value, sizeof(value));
  T out;
  std::memcpy(&out, slots + size_t(lane_index() ^ mask) * kExchangeBytes, sizeof(out));
  return out;
}
inline float shuffle_xor(float value, int mask) { return exchange_xor(value, mask); }
inline uint32_t shuffle_xor_bits(uint32_t value, int mask) { return exchange_xor(value, mask); }
// What `finish` of warp.h makes of all lanes' values.
template <typename T>
QGEN_UNCHECKED T combine_lanes(T value, void (*finish)(std::byte*, int), int lanes = kWarp) {
  const std::byte* slots = exchange(&value, sizeof(value), finish, lanes);
  std::memcpy(&value, slots + size_t(lane_index()) * kExchangeBytes, sizeof(value));
  return value;
}
inline float sum_lanes(float value, int lanes = kWarp) { return combine_lanes(value, sum_slots, lanes); }
inline float largest_lane(float value, int lanes = kWarp) { return combine_lanes(value, find_largest_slots, lanes); }
inline uint32_t largest_lane_bits(uint32_t value) { return combine_lanes(value, find_largest_bits); }
inline uint32_t smallest_lane_bits(uint32_t value) { return combine_lanes(value, find_smallest_bits); }
inline bool any_lane(bool mine) { return largest_lane_bits(mine) != 0; }

inline uint32_t float_bits(float value) { return std::bit_cast<uint32_t>(value); }
inline float bits_float(uint32_t bits) { return std::bit_cast<float>(bits); }

struct alignas(16) Bytes16 {
  uint32_t word[4];
};
struct alignas(8) Bytes8 {
  uint32_t word[2];
};
// A GPU demands the alignment that these take for granted.
inline void check_alignment(const void* p, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) stop("a load from an unaligned address");
}
struct alignas(16) Floats4 {
  float at[4];
};
inline Floats4 load_floats4(const float* p) {
  check_alignment(p, 16);
  Floats4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void store_floats4(float* p, const Floats4& v) {
  check_alignment(p, 16);
  std::memcpy(p, &v, sizeof(v));
}
inline void fetch_line(const void*) {}
inline float load_here(const float* p) { return *p; }
inline uint16_t load_here(const uint16_t* p) { return *p; }
inline Bytes16 load_once16(const void* p) {
  check_alignment(p, 16);
  return *static_cast<const Bytes16*>(p);
}
inline Bytes8 load_once8(const void* p) {
  check_alignment(p, 8);
  return *static_cast<const Bytes8*>(p);
}
inline float f16_value(uint16_t bits) { return f16_to_float(bits); }
inline float bf16_value(uint16_t bits) { return bf16_to_float(bits); }
inline uint16_t f16_bits(float value) { return float_to_f16(value); }
inline uint16_t bf16_bits(float value) { return float_to_bf16(value); }
inline float e4m3_value(uint8_t bits) { return e4m3_to_float(bits); }
inline float e5m2_value(uint8_t bits) { return e5m2_to_float(bits); }
inline uint32_t f16_pair(float low, float high) { return f16_bits(low) | uint32_t(f16_bits(high)) << 16; }
inline uint32_t bf16_pair(float low, float high) { return bf16_bits(low) | uint32_t(bf16_bits(high)) << 16; }
// As on GPUs without an instruction for it: what would be NaN is 480.
inline uint32_t e4m3_pair_to_f16(uint32_t two) {
  const auto value = [](uint8_t bits) {
    return (bits & 0x7F) == 0x7F ? bits & 0x80 ? -480.0f : 480.0f : e4m3_to_float(bits);
  };
  return f16_pair(value(uint8_t(two)), value(uint8_t(two >> 8)));
}
inline void e4m3_four_to_f16(uint32_t four, uint32_t& first, uint32_t& second) {
  first = e4m3_pair_to_f16(four & 0xFFFF);
  second = e4m3_pair_to_f16(four >> 16);
}
// (a + b) of both halves, in f16.
inline uint32_t add_f16_pairs(uint32_t a, uint32_t b) {
  return f16_pair(f16_value(uint16_t(a)) + f16_value(uint16_t(b)),
                  f16_value(uint16_t(a >> 16)) + f16_value(uint16_t(b >> 16)));
}
// Byte i of the result is byte (selector >> 4 i) & 7 of the eight bytes b:a.
inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = uint64_t(b) << 32 | a;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= uint32_t(both >> (8 * (selector >> (4 * i) & 7)) & 0xFF) << (8 * i);
  return out;
}
inline uint8_t e4m3_bits(float value) {
  int best = 0;
  const float size = std::abs(value);
  for (int code = 1; code < 0x7F; ++code) {
    const float there = std::abs(e4m3_to_float(uint8_t(code)) - size),
                here = std::abs(e4m3_to_float(uint8_t(best)) - size);
    if (there < here || (there == here && code % 2 == 0)) best = code;
  }
  return uint8_t(value != value ? 0x7F : best | (std::signbit(value) ? 0x80 : 0));
}
inline float round_to_even(float value) { return std::nearbyint(value); }
inline uint32_t upper_product(uint32_t a, uint32_t b) { return uint32_t(uint64_t{a} * b >> 32); }
// A GPU makes zeros of subnormal numbers.
inline float exp2_fast(float value) { return std::exp2(value); }
// By way of a rounded exponent of two, as GPUs have it.
inline float exp_fast(float value) { return exp2_fast(value * 1.4426950408889634f); }
inline float rounded_product(float a, float b) { return a * b; }
inline float fused_product(float a, float b, float c) { return std::fma(a, b, c); }
inline float reciprocal_fast(float value) { return 1 / value; }
inline float tanh_exact(float value) { return std::tanh(value); }
inline float erfc_exact(float value) { return std::erfc(value); }
inline float log1p_exact(float value) { return std::log1p(value); }
inline float expm1_exact(float value) { return std::expm1(value); }
inline float root_exact(float value) { return std::sqrt(value); }
inline float rsqrt_exact(float value) { return 1 / std::sqrt(value); }

template <int kEach>
QGEN_UNCHECKED void multiply_lanes(float (&c)[4], MatrixParts<kEach>& parts) {
  std::memcpy(parts.c, c, sizeof(c));
  const std::byte* slots = exchange(&parts, sizeof(parts), multiply_matrices<kEach>);
  std::memcpy(c, slots + size_t(lane_index()) * kExchangeBytes, sizeof(c));
}
// mma.m16n8k16 of 16-bit floats.
template <float (*Value)(uint16_t)>
void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MatrixParts<2> parts;
  const auto put = [](float* to, uint32_t two) {
    to[0] = Value(uint16_t(two));
    to[1] = Value(uint16_t(two >> 16));
  };
  for (int i = 0; i < 4; ++i) put(parts.a + 2 * i, a[i]);
  for (int i = 0; i < 2; ++i) put(parts.b + 2 * i, b[i]);
  multiply_lanes(c, parts);
}
inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma<f16_value>(c, a, b); }
inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma<bf16_value>(c, a, b); }

// To nearest, halves away from zero.
constexpr uint32_t kBelowTf32 = 0x1FFF;
inline float tf32_value(float value) {
  const uint32_t bits = float_bits(value);
  if (!rounds_tf32() || (bits & 0x7F800000) == 0x7F800000) return value;
  return bits_float((bits + (kBelowTf32 + 1) / 2) & ~kBelowTf32);
}
// The bits below, which mean nothing to products, are set where a GPU may leave some: of what uses them it shows.
inline float tf32_operand(float value) {
  const uint32_t bits = float_bits(tf32_value(value));
  return rounds_tf32() && (bits & 0x7F800000) != 0x7F800000 ? bits_float(bits | kBelowTf32) : value;
}
// mma.m16n8k8 of TF32.
inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MatrixParts<1> parts;
  const auto operand = [](uint32_t bits) {
    const uint32_t below = bits & kBelowTf32;
    if (rounds_tf32() && below != 0 && below != kBelowTf32) stop("an operand of a product of TF32 that is not rounded");
    return bits_float(rounds_tf32() ? bits & ~kBelowTf32 : bits);
  };
  for (int i = 0; i < 4; ++i) parts.a[i] = operand(a[i]);
  for (int i = 0; i < 2; ++i) parts.b[i] = operand(b[i]);
  multiply_lanes(c, parts);
}

QGEN_UNCHECKED inline void load_matrices(uint32_t (&out)[4], const void* row) {
  check_alignment(row, 16);
  check_access(row, 16, Access::kRead);
  const std::byte* slots = exchange(row, 16);
  const int g = lane_index() / 4, q = lane_index() % 4;
  for (int matrix = 0; matrix < 4; ++matrix)
    std::memcpy(&out[matrix], slots + size_t(matrix * 8 + g) * kExchangeBytes + size_t(q) * 4, 4);
}
QGEN_UNCHECKED inline void load_transposed(uint32_t (&out)[4], const void* row) {
  check_alignment(row, 16);
  check_access(row, 16, Access::kRead);
  const std::byte* slots = exchange(row, 16);
  const int g = lane_index() / 4, q = lane_index() % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t two[2];
    for (int i = 0; i < 2; ++i)
      std::memcpy(&two[i], slots + size_t(matrix * 8 + 2 * q + i) * kExchangeBytes + size_t(g) * 2, 2);
    out[matrix] = two[0] | uint32_t(two[1]) << 16;
  }
}

inline void copy_async16(void* shared_target, const void* source, bool valid) {
  check_alignment(shared_target, 16);
  if (valid) check_alignment(source, 16);
  copy_later(shared_target, valid ? source : nullptr, 16);
}
inline void copy_once16(void* shared_target, const void* source, bool valid) {
  copy_async16(shared_target, source, valid);
}
inline void copy_async4(void* shared_target, const void* source, bool valid) {
  check_alignment(shared_target, 4);
  if (valid) check_alignment(source, 4);
  copy_later(shared_target, valid ? source : nullptr, 4);
}
inline void copy_once8(void* shared_target, const void* source, bool valid) {
  check_alignment(shared_target, 8);
  if (valid) check_alignment(source, 8);
  copy_later(shared_target, valid ? source : nullptr, 8);
}
inline void copy_async_commit() { commit_copies(); }
template <int kLeft>
void copy_async_wait() {
  wait_copies(kLeft);
}

inline uint32_t add_to(uint32_t* counter, uint32_t more) { return add_atomically(counter, more); }
inline void read_anew() { check_read_anew(); }
inline void fence() {}
inline uint64_t device_clock() { return read_clock(); }
inline void wait_for_inputs() { check_wait(); }
inline void let_next_start() { check_next_may_start(); }

}  // namespace qgen::simt
