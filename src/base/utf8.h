// UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qgen {

// One step through a text. An invalid byte sequence gives valid = false and the length of its maximal
// subpart (Unicode 3.9, U+FFFD substitution as browsers, Python and Rust do it), at least 1.
struct Utf8Step {
  uint32_t code_point = 0xFFFD;
  int length = 1;
  bool valid = false;
  bool truncated = false;  // the text ends inside a sequence that is valid so far
};
Utf8Step utf8_step(std::string_view text);

bool is_utf8(std::string_view text);

// Each maximal invalid subpart becomes one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// `text` as it is, or what fits into `bytes` of it, in whole characters, and an ellipsis.
std::string shortened(std::string_view text, size_t bytes);

// `code_point` must be a Unicode scalar value.
void append_utf8(std::string& out, uint32_t code_point);

}  // namespace qgen
