#include "base/units.h"

#include <fmt/format.h>

namespace qgen {

std::string format_bytes(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  // Three digits, of what the number is once it is rounded: 9.996 is 10.0.
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, decimals, units[unit]);
}

std::string parameters_text(int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", double(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.0f}M", double(count) / 1e6);
  return fmt::format("{:.0f}K", double(count) / 1e3);
}

}  // namespace qgen
