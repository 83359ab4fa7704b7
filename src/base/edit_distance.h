// How much two words differ: for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>

namespace qgen {

// Levenshtein's distance: how many bytes have to be put in, left out or exchanged.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace qgen
