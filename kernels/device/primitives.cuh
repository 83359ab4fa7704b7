// What the kernels are written in: threads, barriers, shuffles, loads, conversions, matrix products. Here for GPUs;
// kernels/simt/primitives.h has the same names for the executor that runs kernels without one. PTX names are those of
// the PTX ISA 8.8 (docs.nvidia.com/cuda/parallel-thread-execution).
#pragma once

#include "kernels/namespace.h"

#if defined(QGEN_SIMT)
#include "kernels/simt/primitives.h"
#else

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define QGEN_DEVICE __device__ __forceinline__
// A kernel for blocks of `threads`, of which `blocks` shall fit on a processor.
#define QGEN_KERNEL(threads, ...) __global__ void __launch_bounds__(threads, ##__VA_ARGS__)
#define QGEN_UNROLL _Pragma("unroll")
#define QGEN_PRAGMA(text) _Pragma(#text)
#define QGEN_UNROLL_BY(count) QGEN_PRAGMA(unroll count)

namespace qgen::cuda {

constexpr int kWarp = 32;
// Whether a processor has shared memory for blocks of two products of experts, and starts the second before the first
// has ended (see wait_for_inputs()). Not 10.0, whose compiler takes a quarter more instructions for half the registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr bool kNextBlockHasRoom = true;
#else
constexpr bool kNextBlockHasRoom = false;
#endif

// Blocks are one-dimensional, grids have up to three dimensions.
QGEN_DEVICE int thread_index() { return int(threadIdx.x); }
// The same, unknown to the compiler: what is computed from it is computed anew, and takes no registers meanwhile.
QGEN_DEVICE int thread_index_anew() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
// The same number, of which the compiler knows nothing.
QGEN_DEVICE int not_known(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
// By unsigned divisions, which are a mask and a shift: of an int the compiler does not know that it is not negative.
QGEN_DEVICE int lane_index() { return int(threadIdx.x % unsigned(kWarp)); }
QGEN_DEVICE int warp_index() { return int(threadIdx.x / unsigned(kWarp)); }
QGEN_DEVICE uint3 block_index() { return blockIdx; }
QGEN_DEVICE dim3 grid_size() { return gridDim; }
template <typename T>
QGEN_DEVICE T* shared_memory() {
  extern __shared__ __align__(128) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}
// All threads of the block must reach it.
QGEN_DEVICE void barrier() { __syncthreads(); }
// All lanes of the warp must reach these.
QGEN_DEVICE void warp_barrier() { __syncwarp(); }
QGEN_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask); }
QGEN_DEVICE uint32_t shuffle_xor_bits(uint32_t value, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, value, mask); }
// The sum, and the largest, of groups of `lanes` neighbouring lanes (a power of two), in each of them. NaN
// stays NaN.
QGEN_DEVICE float sum_lanes(float value, int lanes = kWarp) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
QGEN_DEVICE float larger(float a, float b) {
  float largest;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(a), "f"(b));
  return largest;
}
QGEN_DEVICE float largest_lane(float value, int lanes = kWarp) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) value = larger(value, shuffle_xor(value, mask));
  return value;
}
// The largest and the smallest of the warp's lanes, in each of them.
QGEN_DEVICE uint32_t largest_lane_bits(uint32_t value) { return __reduce_max_sync(0xFFFFFFFFu, value); }
QGEN_DEVICE uint32_t smallest_lane_bits(uint32_t value) { return __reduce_min_sync(0xFFFFFFFFu, value); }

// Whether it is so in any lane of the warp.
QGEN_DEVICE bool any_lane(bool mine) { return __any_sync(0xFFFFFFFFu, mine); }

QGEN_DEVICE uint32_t float_bits(float value) { return __float_as_uint(value); }
QGEN_DEVICE float bits_float(uint32_t bits) { return __uint_as_float(bits); }
QGEN_DEVICE uint32_t larger_bits(uint32_t a, uint32_t b) { return a > b ? a : b; }

struct alignas(16) Floats4 {
  float at[4];
};
// One load of 16 bytes: of a structure that is then taken apart the compiler makes four.
QGEN_DEVICE Floats4 load_floats4(const float* p) {
  const float4 v = *reinterpret_cast<const float4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
QGEN_DEVICE void store_floats4(float* p, const Floats4& v) {
  *reinterpret_cast<float4*>(p) = make_float4(v.at[0], v.at[1], v.at[2], v.at[3]);
}
struct alignas(16) Bytes16 {
  uint32_t word[4];
};
struct alignas(8) Bytes8 {
  uint32_t word[2];
};
// Streaming loads of data that is read once a token and must not evict anything from L1. Not "nc", and with the memory
// clobber: otherwise ptxas would move the loads behind wait_for_inputs().
QGEN_DEVICE Bytes16 load_once16(const void* p) {
  Bytes16 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p)
               : "memory");
  return v;
}
QGEN_DEVICE Bytes8 load_once8(const void* p) {
  Bytes8 v;
  asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.word[0]), "=r"(v.word[1])
               : "l"(p)
               : "memory");
  return v;
}

// Brings the 128 bytes around `p` into L2.
QGEN_DEVICE void fetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// Loads that stay where they are written: compilers move others to where the value is needed.
QGEN_DEVICE float load_here(const float* p) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}
QGEN_DEVICE uint16_t load_here(const uint16_t* p) {
  uint16_t v;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
  return v;
}

QGEN_DEVICE float f16_value(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
QGEN_DEVICE float bf16_value(uint16_t bits) { return __uint_as_float(uint32_t(bits) << 16); }
QGEN_DEVICE uint16_t f16_bits(float value) { return __half_as_ushort(__float2half_rn(value)); }
QGEN_DEVICE uint16_t bf16_bits(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
QGEN_DEVICE uint32_t f16_pair(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
QGEN_DEVICE uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
// (a + b) of both halves, in f16.
QGEN_DEVICE uint32_t add_f16_pairs(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
// Byte i of the result is byte (selector >> 4 i) & 7 of the eight bytes b:a.
QGEN_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) { return __byte_perm(a, b, selector); }
// Two e4m3 codes in the low bytes as two f16, exactly, but for NaN, which may become 480. Processors before 8.9 have no
// instruction for it: the seven bits behind the sign, moved to where f16 has its lowest seven bits of exponent and
// fraction, are the value times 2^-8.
QGEN_DEVICE uint32_t e4m3_pair_to_f16(uint32_t two) {
  uint32_t pair;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(uint16_t(two)));
#else
  const uint32_t wide = __byte_perm(two, 0, 0x1404);  // each code in the upper byte of a half
  const uint32_t small = (wide & 0x80008000u) | ((wide & 0x7F007F00u) >> 1);
  const uint32_t factor = 0x5C005C00u;  // 256, twice
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(small), "r"(factor));
#endif
  return pair;
}
// The same of four codes: the upper two where they are.
QGEN_DEVICE void e4m3_four_to_f16(uint32_t four, uint32_t& first, uint32_t& second) {
#if __CUDA_ARCH__ >= 890
  asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, low;\n\t"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n\t}"
      : "=r"(first), "=r"(second)
      : "r"(four));
#else
  first = e4m3_pair_to_f16(four & 0xFFFF);
  second = e4m3_pair_to_f16(four >> 16);
#endif
}
// One code, NaN too.
QGEN_DEVICE float e4m3_value(uint8_t bits) {
  const uint16_t half = uint16_t(e4m3_pair_to_f16(bits));
#if __CUDA_ARCH__ >= 890
  return f16_value(half);
#else
  return f16_value((bits & 0x7F) == 0x7F ? uint16_t(0x7FFF) : half);
#endif
}
QGEN_DEVICE float e5m2_value(uint8_t bits) { return f16_value(uint16_t(bits << 8)); }
// The nearest code, at most 448.
QGEN_DEVICE uint8_t e4m3_bits(float value) { return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3); }
QGEN_DEVICE float round_to_even(float value) { return rintf(value); }
// a b, and a b + c with one rounding. Compilers may fuse a plain product with a sum in one kernel and not in another;
// code whose bits must agree between kernels uses these.
QGEN_DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }
QGEN_DEVICE float fused_product(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// The upper half of a product of 64 bits.
QGEN_DEVICE uint32_t upper_product(uint32_t a, uint32_t b) { return __umulhi(a, b); }
// 2 to the power of `value`; subnormal values and results are zero.
QGEN_DEVICE float exp2_fast(float value) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
  return power;
}
QGEN_DEVICE float exp_fast(float value) { return exp2_fast(value * 1.4426950408889634f); }
// 1 / value to the last bit but one; of 2^126 and more it is zero.
QGEN_DEVICE float reciprocal_fast(float value) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
  return inverse;
}
QGEN_DEVICE float tanh_exact(float value) { return tanhf(value); }
QGEN_DEVICE float erfc_exact(float value) { return erfcf(value); }
QGEN_DEVICE float log1p_exact(float value) { return log1pf(value); }
QGEN_DEVICE float expm1_exact(float value) { return expm1f(value); }
QGEN_DEVICE float root_exact(float value) { return sqrtf(value); }
QGEN_DEVICE float rsqrt_exact(float value) { return 1.0f / sqrtf(value); }

// c += a b for a (16, 16), b (16, 8), c (16, 8), spread over the lanes as PTX lays down for mma.m16n8k16: with
// g = lane / 4 and q = lane % 4, a holds rows g and g + 8 by turns at columns 2q, 2q + 1 and then 2q + 8, 2q + 9; b the
// same columns as its rows at column g; c rows g and g + 8 at columns 2q, 2q + 1.
QGEN_DEVICE void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
QGEN_DEVICE void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The nearest number of TF32, 11 bits, for operands: what the lower 13 bits hold means nothing to products, and is not
// zero (9.0 adds half of the last bit and leaves the rest as it is).
QGEN_DEVICE float tf32_operand(float value) {
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
  return __uint_as_float(rounded);
}
// The same as a number of F32.
QGEN_DEVICE float tf32_value(float value) {
  return __uint_as_float(__float_as_uint(tf32_operand(value)) & 0xFFFFE000u);
}
// c += a b for a (16, 8), b (8, 8), c (16, 8) of TF32, as PTX lays down for mma.m16n8k8: a holds rows g and g + 8 by
// turns at columns q and then q + 4; b the same columns as its rows at column g; c as above. Matrices of 8 rows of four
// floats come as these by load_matrices().
QGEN_DEVICE void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four matrices of 8 rows of 8 16-bit elements from shared memory: lane l says where row l % 8 of matrix l / 8 begins,
// and gets elements 2q and 2q + 1 of row g of each, or, transposed, of column g.
QGEN_DEVICE void load_matrices(uint32_t (&out)[4], const void* row) {
  const uint32_t from = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(from)
               : "memory");
}
QGEN_DEVICE void load_transposed(uint32_t (&out)[4], const void* row) {
  const uint32_t from = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(from)
               : "memory");
}

// 16 bytes into shared memory while the thread goes on; zeros where not `valid`, and then `source` is not read.
QGEN_DEVICE void copy_async16(void* shared_target, const void* source, bool valid) {
  const uint32_t target = uint32_t(__cvta_generic_to_shared(shared_target));
  const uint32_t bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}
// The same of 4 bytes.
QGEN_DEVICE void copy_async4(void* shared_target, const void* source, bool valid) {
  const uint32_t target = uint32_t(__cvta_generic_to_shared(shared_target));
  const uint32_t bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}
// 16 or 8 bytes of weights, a norm's too, in the same way. The 256 bytes around them come into L2 together, since other
// warps read those next.
QGEN_DEVICE void copy_once16(void* shared_target, const void* source, bool valid) {
  const uint32_t target = uint32_t(__cvta_generic_to_shared(shared_target));
  const uint32_t bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes)
               : "memory");
}
QGEN_DEVICE void copy_once8(void* shared_target, const void* source, bool valid) {
  const uint32_t target = uint32_t(__cvta_generic_to_shared(shared_target));
  const uint32_t bytes = valid ? 8 : 0;
  asm volatile("cp.async.ca.shared.global.L2::256B [%0], [%1], 8, %2;" ::"r"(target), "l"(source), "r"(bytes)
               : "memory");
}
QGEN_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until no more than kLeft committed groups of this thread are open.
template <int kLeft>
QGEN_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// An atomic addition in global or shared memory; returns the value before it.
QGEN_DEVICE uint32_t add_to(uint32_t* counter, uint32_t more) { return atomicAdd(counter, more); }
// Orders this thread's writes before the fence ahead of those behind it, for all threads.
QGEN_DEVICE void fence() { __threadfence(); }
// Lets go of what the first-level cache holds: reads behind it see what kernels wrote that had ended before it.
QGEN_DEVICE void read_anew() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Nanoseconds; the same for all processors, in steps of tens or hundreds.
QGEN_DEVICE uint64_t device_clock() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}
// A kernel may start while the one before it ends (programmatic dependent launch, 9.0 and later): before the first it
// may read only what no kernel of the same call writes, and the second says that the next may start.
QGEN_DEVICE void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
QGEN_DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace qgen::cuda
#endif
