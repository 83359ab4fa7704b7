// AVX-512 with VNNI (Cascade Lake and later): INT8 weights by integer dot products, the rest in f32.
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
#include "cpu/isa/token_rows.inc"
#include "cpu/isa/f32_token_rows.inc"
#include "cpu/isa/int8_linear.inc"
#include "cpu/isa/int16.inc"
#include "cpu/isa/int16_attention.inc"
#include "cpu/isa/int8_attention.inc"
#include "cpu/isa/int16_linear.inc"
#include "cpu/isa/int16_token_rows.inc"
#include "cpu/isa/int16_tables.inc"
// clang-format on

bool supported() { return supports_avx512() && __builtin_cpu_supports("avx512vnni"); }

}  // namespace

const IsaTarget kAvx512VnniTarget = {
    .name = "avx512-vnni",
    .supported = supported,
    .kernels = {QGEN_F32_KERNELS(0), QGEN_F32_KERNELS(1), QGEN_F32_ROW_KERNELS(f32_gemv<2>, 2),
                QGEN_INT8_KERNELS((Kernel{Form::kInt8HiLo, int8_gemv})), QGEN_F32_ROW_KERNELS(f32_gemv<4>, 4),
                QGEN_F32_KERNELS(5)},
    .fallback = QGEN_ALL_F32_KERNELS,
    QGEN_INT8_FIELDS(int8_gemm),
    .float_peak = fma_peak,
    .int8_peak = int8_peak,
    QGEN_COMMON_FIELDS};

}  // namespace qgen::cpu
