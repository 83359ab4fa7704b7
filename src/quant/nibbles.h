// Codes of 4 bits in words of eight, as AWQ and AMD Quark have them.
#pragma once

#include "checkpoint/tensor.h"
#include "quant/weight.h"

namespace qgen {

constexpr int kNibbleBits = 4;
constexpr int64_t kNibblesInWord = 32 / kNibbleBits;
// The words of so many codes; the last one may be filled up.
constexpr int64_t nibble_words(int64_t count) { return (count + kNibblesInWord - 1) / kNibblesInWord; }

struct NibbleLayout {
  bool interleaved = true;  // a word's eight are in the order 0, 2, 4, 6, 1, 3, 5, 7
  bool is_signed = false;   // two's complement, zero points too
};

// Gives a weight that has its scales the repack that makes its codes, held less 8, and its zero points out of words.
// Transposed: words (K, words of N), zero points (groups, words of N) or null. By rows: words (N, words of K), a scale
// for each row, zero points (words of N) or null.
void set_transposed_nibbles(Weight& weight, const TensorView& words, const TensorView* zeros, NibbleLayout layout);
void set_row_nibbles(Weight& weight, const TensorView& words, const TensorView* zeros, NibbleLayout layout);

}  // namespace qgen
