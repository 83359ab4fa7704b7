// AVX-512 with VNNI, VBMI and BF16 (Zen 4): FP8 codes become bf16 by table lookup in
// registers and are multiplied with vdpbf16ps, as are bf16 weights; INT8 weights by integer dot products.
// x is a pair of bf16 (16 bits of mantissa); for many tokens, where arithmetic is the bound, it is rounded to bf16.
#define QGEN_ADDS_BESIDE_PRODUCTS  // as Zen 4 and 5 do
#define QGEN_TUNED_FOR_ZEN4
#include "cpu/isa/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/isa/bf16_target.inc"

}  // namespace

const IsaTarget kAvx512Bf16Target = QGEN_BF16_TARGET("avx512-bf16", supports_avx512_bf16);

}  // namespace qgen::cpu
