// The body avx512-amx with emulated tiles.
#pragma once

#include "cpu/kernels.h"

namespace qgen::cpu {

extern const Body kEmulatedAmxBody;
bool emulated_tiles_released();  // on this thread, as a kernel must leave them

}  // namespace qgen::cpu
