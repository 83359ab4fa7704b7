// AVX-512 with VNNI, VBMI and BF16 (Zen 4 and later): FP8 codes become bf16 by table lookup in
// registers and are multiplied with vdpbf16ps, as are bf16 weights; INT8 weights by integer dot products.
// x is a pair of bf16 (16 bits of mantissa); for many tokens, where arithmetic is the bound, it is rounded to bf16.
#define QGEN_ADDS_BESIDE_PRODUCTS  // as Zen 4 and 5 do
#define QGEN_PREFETCHES_TO_L1      // measured on Zen 5
#include "cpu/isa/vec_avx512.h"

namespace qgen::cpu {
namespace {

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
#include "cpu/isa/int8_linear.inc"
#include "cpu/isa/bf16_linear.inc"
#include "cpu/isa/int16.inc"
#include "cpu/isa/int16_attention.inc"
#include "cpu/isa/int8_attention.inc"
#include "cpu/isa/int16_linear.inc"
#include "cpu/isa/int16_tables.inc"
// clang-format on

// Where arithmetic is the bound of a prompt it is that of an expert's few tokens, too.
template <bool kFp8>
constexpr CodeKernels bf16_kernels(MultiplyFunction gemv) {
  CodeKernels out = QGEN_KERNELS((Kernel{Form::kBf16Pair, gemv}), (Kernel{Form::kBf16Pair, bf16_gemm<kFp8, true>}),
                                 (Kernel{Form::kBf16, bf16_gemm<kFp8, false>}));
  out.part_tokens = 2;
  return out;
}

}  // namespace

const IsaTarget kAvx512Bf16Target = {
    .name = "avx512-bf16",
    .supported = supports_avx512_bf16,
    .kernels = {QGEN_F32_KERNELS(0), QGEN_F32_KERNELS(1), bf16_kernels<false>(bf16_gemv),
                QGEN_INT8_KERNELS((Kernel{Form::kInt8HiLo, int8_gemv})), bf16_kernels<true>(e4m3_gemv),
                QGEN_F32_KERNELS(5)},
    .fallback = QGEN_ALL_F32_KERNELS,
    QGEN_INT8_FIELDS(int8_gemm),
    .float_peak = bf16_peak,
    .int8_peak = int8_peak,
    QGEN_COMMON_FIELDS};

}  // namespace qgen::cpu
