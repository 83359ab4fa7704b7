// Which matrices are quantized, by their names and shapes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/recipe.h"

namespace qgen::quantize {

struct Selection {
  // Parts of names, or with * and ? whole names, with or without ".weight". `only`: nothing else; empty for all.
  std::vector<std::string> keep, only;
};

struct Candidate {
  std::string name;  // the module, without ".weight"
  int64_t rows = 0;
  int64_t cols = 0;
};

// Throws a usage Error that names a pattern which is in no matrix's name.
void check_patterns(std::span<const Candidate> matrices, const Selection& selection);

// For each matrix why it is left as it is, "" where it is quantized. What an engine fuses into one matrix (q, k and v;
// gate and up; the experts of a layer) is quantized as a whole or not at all.
std::vector<std::string_view> reasons_to_keep(std::span<const Candidate> matrices, const Selection& selection,
                                              const Recipe& recipe);

}  // namespace qgen::quantize
