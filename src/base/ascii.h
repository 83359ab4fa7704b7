// Letters of ASCII, whatever the locale.
#pragma once

#include <string>
#include <string_view>

namespace qgen {

// `text` with its letters A to Z as a to z.
inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out;
}

}  // namespace qgen
