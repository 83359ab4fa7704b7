// How much two words differ: for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>

namespace qgen {

// How many bytes have to be put in, left out or replaced, or neighbours exchanged (optimal string alignment: no part is
// edited twice).
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace qgen
