// The kernels for processors with AVX-512 (F, BW, DQ, VL) and nothing beyond it.
#include "cpu/isa/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/isa/generic.inc"
#include "cpu/isa/words.inc"
#include "cpu/isa/words_attention.inc"
#include "cpu/isa/words_linear.inc"

}  // namespace

const Body kAvx512Body = QGEN_WORDS_BODY("avx512", supports_avx512);

}  // namespace qgen::cpu
