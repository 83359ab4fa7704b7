// Rounding for any processor.
#define QGEN_ROUNDING_KERNELS kRounding_portable
#define QGEN_ROUNDING_NAME "portable"
#include "quantize/isa/rounding.inc"
