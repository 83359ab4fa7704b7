// The kernels for processors with AVX-512 (F, BW, DQ, VL) and nothing beyond it.
#include "cpu/vec_avx512.h"

namespace qgen::cpu {
namespace {

#include "cpu/generic.inc"

}  // namespace

const Body kAvx512Body = {
    "avx512", supports_avx512, QGEN_ALL_GENERIC_KERNELS, QGEN_ALL_GENERIC_KERNELS, kPanel, QGEN_COMMON_FUNCTIONS,
    fma_peak, fma_peak};

}  // namespace qgen::cpu
