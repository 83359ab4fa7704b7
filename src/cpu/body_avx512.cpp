// The kernels for processors with AVX-512 (F, BW, DQ, VL) and nothing beyond it.
#include "cpu/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/generic.inc"
#include "cpu/words.inc"
#include "cpu/words_attention.inc"
#include "cpu/words_linear.inc"

}  // namespace

const Body kAvx512Body = QGEN_WORDS_BODY("avx512", supports_avx512);

}  // namespace qgen::cpu
