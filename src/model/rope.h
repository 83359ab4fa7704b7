// Rotary position embeddings as data, and their frequencies. Formulas: transformers, modeling_rope_utils.py.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/weight.h"

namespace qgen {

struct Rope {
  // Which elements of a head are rotated together: (i, i + dim / 2), as Hugging Face stores q and k, or (2 i, 2 i + 1).
  enum class Pairs : uint8_t { kHalfSplit, kAdjacent };
  enum class Scaling : uint8_t { kNone, kLinear, kDynamic, kYarn, kLlama3, kFactors };
  int64_t dim = 0;  // elements of a head that are rotated, the first ones
  Pairs pairs = Pairs::kHalfSplit;
  Scaling scaling = Scaling::kNone;
  double theta = 10000;
  double factor = 1;
  int64_t original_context = 0;  // tokens the unscaled frequencies were trained for
  int64_t pairs_turned = 0;  // the first ones; the frequencies of the others are 0 ("proportional"); 0: all are turned
  // llama3
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  // yarn
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 1;  // multiplies cos and sin
  bool truncate = true;
  // factors: what each frequency is divided by, (dim / 2); the long ones in contexts beyond original_context, null:
  // none
  const Vector* factors = nullptr;
  const Vector* long_factors = nullptr;

  bool operator==(const Rope&) const = default;
};

// Where row n of a matrix of heads that are rotated as kHalfSplit lies in one of kAdjacent. `head_rows`: of a head; 0:
// n, since nothing is rotated.
inline int64_t adjacent_row(int64_t n, int64_t head_rows) {
  if (head_rows == 0) return n;
  const int64_t i = n % head_rows, half = head_rows / 2;
  return n - i + (i < half ? 2 * i : 2 * (i - half) + 1);
}

// Inverse frequencies (dim / 2) for a sequence of `length` tokens; only dynamic scaling and long factors depend on it.
std::vector<double> inverse_frequencies(const Rope& rope, int64_t length);

}  // namespace qgen
