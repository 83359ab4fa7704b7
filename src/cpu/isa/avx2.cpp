// The kernels for processors with AVX2, FMA and F16C (compiled with those flags).
#include "cpu/isa/vec_avx2.h"

namespace qgen::cpu {
namespace {

#include "cpu/isa/generic.inc"
#include "cpu/isa/words.inc"
#include "cpu/isa/words_attention.inc"
#include "cpu/isa/words_linear.inc"

}  // namespace

const Body kAvx2Body = QGEN_WORDS_BODY("avx2", supports_avx2);

}  // namespace qgen::cpu
