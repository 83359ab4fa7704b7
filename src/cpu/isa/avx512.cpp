// The kernels for processors with AVX-512 (F, BW, DQ, VL) and nothing beyond it.
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
#include "cpu/isa/int16.inc"
#include "cpu/isa/int16_attention.inc"
#include "cpu/isa/int8_attention.inc"
#include "cpu/isa/int16_linear.inc"
#include "cpu/isa/int16_token_rows.inc"
#include "cpu/isa/int16_tables.inc"
// clang-format on

}  // namespace

const IsaTarget kAvx512Target = QGEN_INT16_TARGET("avx512", supports_avx512);

}  // namespace qgen::cpu
