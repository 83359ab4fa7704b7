// How many columns text takes on a terminal: wide characters (CJK, most emoji) two, combining ones none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qgen::cli {

size_t columns_of(uint32_t code_point);
size_t columns_of(std::string_view text);
// The text if it fits in so many columns, else its beginning with "…" at the end.
std::string shortened(std::string_view text, size_t columns);

}  // namespace qgen::cli
