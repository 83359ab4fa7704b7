// The kernels behind kernels/measure.h. Plain: nvcc reads this too.
#pragma once

#include <cstdint>

#include "kernels/library_gemm.h"
#include "kernels/namespace.h"

namespace qgen::QGEN_BACKEND {

class Stream;

// Reads zeros, each byte once, as far as they are whole rounds of all threads; `sink` is one number. Returns the bytes.
int64_t read_memory(Stream& stream, int blocks, const uint8_t* memory, int64_t bytes, float* sink);
// Products of 16-bit floats in registers alone. Returns the operations.
int64_t multiply_registers(Stream& stream, int blocks, int rounds, float* sink);

// Fills memory with random numbers of moderate size, as operands of products: zeros would be multiplied faster.
// `bytes`: a multiple of 4; `kind`: kF16, kI8 or kE4M3.
void fill_randomly(Stream& stream, void* memory, int64_t bytes, LibraryGemmKind kind, uint32_t seed);

}  // namespace qgen::QGEN_BACKEND
