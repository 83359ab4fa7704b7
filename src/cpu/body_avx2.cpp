// The kernels for processors with AVX2, FMA and F16C (compiled with those flags).
#include "cpu/vec_avx2.h"

namespace qgen::cpu {
namespace {

#include "cpu/generic.inc"
#include "cpu/words.inc"
#include "cpu/words_attention.inc"
#include "cpu/words_linear.inc"

}  // namespace

const Body kAvx2Body = {"avx2",
                        supports_avx2,
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
