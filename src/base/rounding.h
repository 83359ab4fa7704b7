// Sizes in whole units.
#pragma once

#include <cstdint>

namespace qgen {

// The smallest multiple of `unit` that is not below n.
constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace qgen
