// What the lanes of a warp work out together: each gives its part to exchange(), and the one that comes last does the
// work of all, on what they gave, in slots that lie kExchangeBytes apart.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simt/executor.h"

namespace qgen::simt {

// NaN where one is.
inline float larger(float a, float b) { return b > a || !(b == b) ? b : a; }
inline uint32_t larger_bits(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Of each `lanes` lanes in a row, a power of two, in the order of the shuffles that a GPU does it with. Each lane gives
// a float and gets the result.
void sum_slots(std::byte* slots, int lanes);
void find_largest_slots(std::byte* slots, int lanes);
// Of all lanes, of a uint32_t.
void find_largest_bits(std::byte* slots, int);
void find_smallest_bits(std::byte* slots, int);

// c += a b for a (16, 8 kEach), b (8 kEach, 8), c (16, 8), in the registers that PTX lays down: with g = lane / 4 and
// q = lane % 4, a holds rows g and g + 8 by turns at kEach columns from kEach q on and then as many from kEach (q + 4)
// on; b the same columns as its rows at column g; c rows g and g + 8 at columns 2q, 2q + 1. Each lane gives this, all
// as floats, and gets c.
template <int kEach>
struct MatrixParts {
  float c[4], a[4 * kEach], b[2 * kEach];
};
template <int kEach>
void multiply_matrices(std::byte* slots, int);

}  // namespace qgen::simt
