// The kernels for processors with AVX2, FMA and F16C (compiled with those flags).
#include "cpu/isa/vec_avx2.h"

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

const IsaTarget kAvx2Target = QGEN_INT16_TARGET("avx2", supports_avx2);

}  // namespace qgen::cpu
