// Rounding for processors with AVX512.
#define QGEN_ROUNDING_KERNELS kRounding_avx512
#define QGEN_ROUNDING_NAME "avx512"
#include "quantize/isa/rounding.inc"
