// Matrices that are stored (inputs, outputs), as GPT-2's are: parts of their transposes as weights.
#pragma once

#include "quant/weight.h"

namespace qgen {

// Makes a weight's codes from their transpose, rows of K: code (n, k) is at codes + (k * pitch + n) codes.
std::shared_ptr<const Weight::Repack> make_transposing_repack(const std::byte* codes, int64_t pitch);

// Rows [first, first + rows) of the transpose of `stored`, which is (K, N): a (rows, K) weight that is laid out when
// the model is loaded. A model Error for quantized matrices, whose groups would not be along K any more.
Weight transposed_rows(const Weight& stored, int64_t first, int64_t rows);

}  // namespace qgen
