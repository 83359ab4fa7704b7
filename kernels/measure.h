// What the device can do at best: how fast its memory is read, and how many operations its matrix products do.
#pragma once

#include "engine/engine_table.h"
#include "kernels/library_gemm.h"

namespace qgen::QGEN_BACKEND {

// Operations a second of the library's product of two random matrices, (size, size) each, `times` in a row; 0 where
// there is no library, or it has no such product.
double library_speed(Device& device, LibraryGemmKind kind, int size, int times);

// The row of the table of engines: memory far larger than any cache, and the library's products, by which prompts can
// go at best; where it is missing, products in registers. Where inputs have 8 bits, products of 8 bits.
DeviceSpeed measure_device(Device& device, const EngineOptions& options, bool peaks);

}  // namespace qgen::QGEN_BACKEND
