// The kernels for processors with AVX-512 (F, BW, DQ, VL) and nothing beyond it.
#include "cpu/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/generic.inc"
#include "cpu/words.inc"
#include "cpu/words_attention.inc"
#include "cpu/words_linear.inc"

}  // namespace

const Body kAvx512Body = {"avx512",
                          supports_avx512,
                          QGEN_INT8_WORDS_KERNELS,
                          QGEN_ALL_GENERIC_KERNELS,
                          {},
                          kPanel,
                          QGEN_COMMON_FUNCTIONS(QGEN_ATTEND_WORDS, to_words),
                          nullptr,
                          nullptr,
                          read_sum,
                          fma_peak,
                          words_peak};

}  // namespace qgen::cpu
