// Matrices that are stored (inputs, outputs), as GPT-2's are, and those that are multiplied from the other side, as
// latent attention does: parts of their transposes as weights.
#pragma once

#include "quant/weight.h"

namespace qgen {

// Makes a weight's codes from their transpose, rows of K: code (n, k) is at codes + (k * pitch + n) codes.
std::shared_ptr<const Weight::Repack> make_transposing_repack(const std::byte* codes, int64_t pitch);

// Rows first, first + step, ... of the transpose of `stored`, which is (K, N): a (rows, K) weight that is laid out when
// the model is loaded. It keeps the codes where scale groups are square enough to be turned over with them, and is F32
// elsewhere.
Weight transposed_rows(const Weight& stored, int64_t first, int64_t rows, int64_t step = 1);

}  // namespace qgen
