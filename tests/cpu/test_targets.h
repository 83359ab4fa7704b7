// Bodies that only tests have: they run kernels of processors that are not at hand.
#pragma once

#include "cpu/isa/kernels.h"

namespace qgen::cpu {

// The body avx2-vnni in the encoding of AVX-512.
extern const Body kEvexBody;
// The body avx512-amx with emulated tiles.
extern const Body kEmulatedAmxBody;
bool emulated_tiles_released();  // on this thread, as a kernel must leave them

}  // namespace qgen::cpu
