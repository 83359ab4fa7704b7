// The Unicode questions that Python's str methods ask, answered as CPython answers them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qgen::jinja {

bool is_space(uint32_t code_point);
bool is_alpha(uint32_t code_point);
bool is_digit(uint32_t code_point);
bool is_decimal(uint32_t code_point);
bool is_numeric(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);
bool is_title(uint32_t code_point);
bool is_cased(uint32_t code_point);
// Line boundaries of str.splitlines.
bool is_line_break(uint32_t code_point);
// Whether repr() shows the character itself.
bool is_printable(uint32_t code_point);
// A character of a word as Python's \w sees it.
bool is_word(uint32_t code_point);
// Characters that may begin and continue a name.
bool is_name_start(uint32_t code_point);

// Full case mappings (ß becomes SS), appended to `out`.
enum class Case { kLower, kUpper, kTitle };
void append_cased(std::string& out, uint32_t code_point, Case to);

// The code point at `offset` of valid UTF-8, and its length in bytes.
struct CodePoint {
  uint32_t value;
  size_t bytes;
};
CodePoint code_point_at(std::string_view text, size_t offset);
// The code point that ends at `end` (> 0).
CodePoint code_point_before(std::string_view text, size_t end);

}  // namespace qgen::jinja
