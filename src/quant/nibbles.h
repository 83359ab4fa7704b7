// Codes of 4 bits in words of eight, as AWQ and AMD Quark have them.
#pragma once

#include "checkpoint/tensor.h"
#include "quant/weight.h"

namespace qgen {

constexpr int kNibbleBits = 4;
constexpr int64_t kNibblesInWord = 32 / kNibbleBits;

struct NibbleLayout {
  bool interleaved = true;  // a word's eight are in the order 0, 2, 4, 6, 1, 3, 5, 7
  bool is_signed = false;   // two's complement, zero points too
};

// Gives a weight that has its scales the repack that makes its codes, held less 8, and its zero points out of words.
// Transposed: words (K, N / 8), zero points (groups, N / 8) or null. By rows: words (N, K / 8), a scale for each row,
// zero points (N / 8) or null. N and K must be of whole words.
void set_transposed_nibbles(Weight& weight, const TensorView& words, const TensorView* zeros, NibbleLayout layout);
void set_row_nibbles(Weight& weight, const TensorView& words, const TensorView* zeros, NibbleLayout layout);

}  // namespace qgen
