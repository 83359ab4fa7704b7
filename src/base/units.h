// Sizes and counts as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace qgen {

// "8.8 GiB", "302 KiB"
std::string format_bytes(double bytes);
// "8.2B", "135M", "260K"
std::string parameters_text(int64_t count);

}  // namespace qgen
