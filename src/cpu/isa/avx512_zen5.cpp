// The target avx512-bf16, reading rows as is best for Zen 5, whose first cache has 48 KiB.
#define QGEN_ADDS_BESIDE_PRODUCTS  // as Zen 4 and 5 do
#define QGEN_TUNED_FOR_ZEN5
#include "cpu/isa/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/isa/bf16_target.inc"

// GCC 12 does not know Zen 5 by name.
bool supported() {
  return supports_avx512_bf16() && __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512vp2intersect");
}

}  // namespace

const IsaTarget kAvx512Zen5Target = QGEN_BF16_TARGET("avx512-zen5", supported);

}  // namespace qgen::cpu
