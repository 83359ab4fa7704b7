// Rounding for processors with AVX2.
#define QGEN_ROUNDING_KERNELS kRounding_avx2
#define QGEN_ROUNDING_NAME "avx2"
#include "quantize/isa/rounding.inc"
