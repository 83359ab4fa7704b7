// AVX2 with VNNI (Alder Lake and later without AVX-512): products of 16-bit integers are added up in one instruction.
// The tests compile this file a second time, as kEvexBody, for processors that have the instruction in the encoding of
// AVX-512 only.
#include "cpu/isa/vec_avx2.h"

#if defined(__AVXVNNI__)
#define QGEN_BODY kAvx2VnniBody
#else
#define QGEN_BODY kEvexBody
#endif

namespace qgen::cpu {
namespace {

#include "cpu/isa/generic.inc"
#include "cpu/isa/words.inc"
#include "cpu/isa/words_attention.inc"
#include "cpu/isa/words_linear.inc"

bool supports_vnni() {
#if defined(__AVXVNNI__)
  unsigned eax = 0, ebx, ecx, edx;  // bit 4 of EAX of leaf 7.1
  return supports_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
#else
  return supports_avx2() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl");
#endif
}

}  // namespace

extern const Body QGEN_BODY;
const Body QGEN_BODY = QGEN_WORDS_BODY("avx2-vnni", supports_vnni);

}  // namespace qgen::cpu
