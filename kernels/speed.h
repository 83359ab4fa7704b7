// What the device can do at best: how fast its memory is read, and how many operations its matrix products do.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace qgen::QGEN_BACKEND {

class Stream;

// Reads zeros, each byte once, as far as they are whole rounds of all threads; `sink` is one number. Returns the bytes.
int64_t read_memory(Stream& stream, int blocks, const uint8_t* memory, int64_t bytes, float* sink);
// Products of 16-bit floats in registers alone. Returns the operations.
int64_t multiply_registers(Stream& stream, int blocks, int rounds, float* sink);

}  // namespace qgen::QGEN_BACKEND
