// AVX2 with VNNI (Alder Lake and later without AVX-512): products of 16-bit integers are added up in one instruction.
// The tests compile this file a second time, as kEvexTarget, for processors that have the instruction in the encoding
// of AVX-512 only.
#include "cpu/isa/vec_avx2.h"

#if defined(__AVXVNNI__)
#define QGEN_TARGET kAvx2VnniTarget
#else
#define QGEN_TARGET kEvexTarget
#endif

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

bool supports_vnni() {
#if defined(__AVXVNNI__)
  unsigned eax = 0, ebx, ecx, edx;  // bit 4 of EAX of leaf 7.1
  return supports_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
#else
  return supports_avx2() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl");
#endif
}

}  // namespace

extern const IsaTarget QGEN_TARGET;
const IsaTarget QGEN_TARGET = QGEN_INT16_TARGET("avx2-vnni", supports_vnni);

}  // namespace qgen::cpu
