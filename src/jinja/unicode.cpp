#include "jinja/unicode.h"

#include <algorithm>
#include <iterator>

#include <utf8proc.h>

#include "base/utf8.h"

namespace qgen::jinja {
namespace {

utf8proc_category_t category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

struct Range {
  uint32_t first, last;
};

// Characters with the property Numeric_Type=Digit (superscripts, circled digits, …).
constexpr Range kDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                             {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                             {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                             {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                             {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// The characters whose upper or title case is more than one (SpecialCasing.txt, without conditions).
struct SpecialCase {
  uint32_t code_point;
  uint32_t upper[3];
  uint32_t title[3];
};
constexpr SpecialCase kSpecialCases[] = {{0x00DF, {0x0053, 0x0053, 0}, {0x0053, 0x0073, 0}},
                                         {0x0149, {0x02BC, 0x004E, 0}, {0x02BC, 0x004E, 0}},
                                         {0x01F0, {0x004A, 0x030C, 0}, {0x004A, 0x030C, 0}},
                                         {0x0390, {0x0399, 0x0308, 0x0301}, {0x0399, 0x0308, 0x0301}},
                                         {0x03B0, {0x03A5, 0x0308, 0x0301}, {0x03A5, 0x0308, 0x0301}},
                                         {0x0587, {0x0535, 0x0552, 0}, {0x0535, 0x0582, 0}},
                                         {0x1E96, {0x0048, 0x0331, 0}, {0x0048, 0x0331, 0}},
                                         {0x1E97, {0x0054, 0x0308, 0}, {0x0054, 0x0308, 0}},
                                         {0x1E98, {0x0057, 0x030A, 0}, {0x0057, 0x030A, 0}},
                                         {0x1E99, {0x0059, 0x030A, 0}, {0x0059, 0x030A, 0}},
                                         {0x1E9A, {0x0041, 0x02BE, 0}, {0x0041, 0x02BE, 0}},
                                         {0x1F50, {0x03A5, 0x0313, 0}, {0x03A5, 0x0313, 0}},
                                         {0x1F52, {0x03A5, 0x0313, 0x0300}, {0x03A5, 0x0313, 0x0300}},
                                         {0x1F54, {0x03A5, 0x0313, 0x0301}, {0x03A5, 0x0313, 0x0301}},
                                         {0x1F56, {0x03A5, 0x0313, 0x0342}, {0x03A5, 0x0313, 0x0342}},
                                         {0x1F80, {0x1F08, 0x0399, 0}, {0x1F88, 0, 0}},
                                         {0x1F81, {0x1F09, 0x0399, 0}, {0x1F89, 0, 0}},
                                         {0x1F82, {0x1F0A, 0x0399, 0}, {0x1F8A, 0, 0}},
                                         {0x1F83, {0x1F0B, 0x0399, 0}, {0x1F8B, 0, 0}},
                                         {0x1F84, {0x1F0C, 0x0399, 0}, {0x1F8C, 0, 0}},
                                         {0x1F85, {0x1F0D, 0x0399, 0}, {0x1F8D, 0, 0}},
                                         {0x1F86, {0x1F0E, 0x0399, 0}, {0x1F8E, 0, 0}},
                                         {0x1F87, {0x1F0F, 0x0399, 0}, {0x1F8F, 0, 0}},
                                         {0x1F88, {0x1F08, 0x0399, 0}, {0x1F88, 0, 0}},
                                         {0x1F89, {0x1F09, 0x0399, 0}, {0x1F89, 0, 0}},
                                         {0x1F8A, {0x1F0A, 0x0399, 0}, {0x1F8A, 0, 0}},
                                         {0x1F8B, {0x1F0B, 0x0399, 0}, {0x1F8B, 0, 0}},
                                         {0x1F8C, {0x1F0C, 0x0399, 0}, {0x1F8C, 0, 0}},
                                         {0x1F8D, {0x1F0D, 0x0399, 0}, {0x1F8D, 0, 0}},
                                         {0x1F8E, {0x1F0E, 0x0399, 0}, {0x1F8E, 0, 0}},
                                         {0x1F8F, {0x1F0F, 0x0399, 0}, {0x1F8F, 0, 0}},
                                         {0x1F90, {0x1F28, 0x0399, 0}, {0x1F98, 0, 0}},
                                         {0x1F91, {0x1F29, 0x0399, 0}, {0x1F99, 0, 0}},
                                         {0x1F92, {0x1F2A, 0x0399, 0}, {0x1F9A, 0, 0}},
                                         {0x1F93, {0x1F2B, 0x0399, 0}, {0x1F9B, 0, 0}},
                                         {0x1F94, {0x1F2C, 0x0399, 0}, {0x1F9C, 0, 0}},
                                         {0x1F95, {0x1F2D, 0x0399, 0}, {0x1F9D, 0, 0}},
                                         {0x1F96, {0x1F2E, 0x0399, 0}, {0x1F9E, 0, 0}},
                                         {0x1F97, {0x1F2F, 0x0399, 0}, {0x1F9F, 0, 0}},
                                         {0x1F98, {0x1F28, 0x0399, 0}, {0x1F98, 0, 0}},
                                         {0x1F99, {0x1F29, 0x0399, 0}, {0x1F99, 0, 0}},
                                         {0x1F9A, {0x1F2A, 0x0399, 0}, {0x1F9A, 0, 0}},
                                         {0x1F9B, {0x1F2B, 0x0399, 0}, {0x1F9B, 0, 0}},
                                         {0x1F9C, {0x1F2C, 0x0399, 0}, {0x1F9C, 0, 0}},
                                         {0x1F9D, {0x1F2D, 0x0399, 0}, {0x1F9D, 0, 0}},
                                         {0x1F9E, {0x1F2E, 0x0399, 0}, {0x1F9E, 0, 0}},
                                         {0x1F9F, {0x1F2F, 0x0399, 0}, {0x1F9F, 0, 0}},
                                         {0x1FA0, {0x1F68, 0x0399, 0}, {0x1FA8, 0, 0}},
                                         {0x1FA1, {0x1F69, 0x0399, 0}, {0x1FA9, 0, 0}},
                                         {0x1FA2, {0x1F6A, 0x0399, 0}, {0x1FAA, 0, 0}},
                                         {0x1FA3, {0x1F6B, 0x0399, 0}, {0x1FAB, 0, 0}},
                                         {0x1FA4, {0x1F6C, 0x0399, 0}, {0x1FAC, 0, 0}},
                                         {0x1FA5, {0x1F6D, 0x0399, 0}, {0x1FAD, 0, 0}},
                                         {0x1FA6, {0x1F6E, 0x0399, 0}, {0x1FAE, 0, 0}},
                                         {0x1FA7, {0x1F6F, 0x0399, 0}, {0x1FAF, 0, 0}},
                                         {0x1FA8, {0x1F68, 0x0399, 0}, {0x1FA8, 0, 0}},
                                         {0x1FA9, {0x1F69, 0x0399, 0}, {0x1FA9, 0, 0}},
                                         {0x1FAA, {0x1F6A, 0x0399, 0}, {0x1FAA, 0, 0}},
                                         {0x1FAB, {0x1F6B, 0x0399, 0}, {0x1FAB, 0, 0}},
                                         {0x1FAC, {0x1F6C, 0x0399, 0}, {0x1FAC, 0, 0}},
                                         {0x1FAD, {0x1F6D, 0x0399, 0}, {0x1FAD, 0, 0}},
                                         {0x1FAE, {0x1F6E, 0x0399, 0}, {0x1FAE, 0, 0}},
                                         {0x1FAF, {0x1F6F, 0x0399, 0}, {0x1FAF, 0, 0}},
                                         {0x1FB2, {0x1FBA, 0x0399, 0}, {0x1FBA, 0x0345, 0}},
                                         {0x1FB3, {0x0391, 0x0399, 0}, {0x1FBC, 0, 0}},
                                         {0x1FB4, {0x0386, 0x0399, 0}, {0x0386, 0x0345, 0}},
                                         {0x1FB6, {0x0391, 0x0342, 0}, {0x0391, 0x0342, 0}},
                                         {0x1FB7, {0x0391, 0x0342, 0x0399}, {0x0391, 0x0342, 0x0345}},
                                         {0x1FBC, {0x0391, 0x0399, 0}, {0x1FBC, 0, 0}},
                                         {0x1FC2, {0x1FCA, 0x0399, 0}, {0x1FCA, 0x0345, 0}},
                                         {0x1FC3, {0x0397, 0x0399, 0}, {0x1FCC, 0, 0}},
                                         {0x1FC4, {0x0389, 0x0399, 0}, {0x0389, 0x0345, 0}},
                                         {0x1FC6, {0x0397, 0x0342, 0}, {0x0397, 0x0342, 0}},
                                         {0x1FC7, {0x0397, 0x0342, 0x0399}, {0x0397, 0x0342, 0x0345}},
                                         {0x1FCC, {0x0397, 0x0399, 0}, {0x1FCC, 0, 0}},
                                         {0x1FD2, {0x0399, 0x0308, 0x0300}, {0x0399, 0x0308, 0x0300}},
                                         {0x1FD3, {0x0399, 0x0308, 0x0301}, {0x0399, 0x0308, 0x0301}},
                                         {0x1FD6, {0x0399, 0x0342, 0}, {0x0399, 0x0342, 0}},
                                         {0x1FD7, {0x0399, 0x0308, 0x0342}, {0x0399, 0x0308, 0x0342}},
                                         {0x1FE2, {0x03A5, 0x0308, 0x0300}, {0x03A5, 0x0308, 0x0300}},
                                         {0x1FE3, {0x03A5, 0x0308, 0x0301}, {0x03A5, 0x0308, 0x0301}},
                                         {0x1FE4, {0x03A1, 0x0313, 0}, {0x03A1, 0x0313, 0}},
                                         {0x1FE6, {0x03A5, 0x0342, 0}, {0x03A5, 0x0342, 0}},
                                         {0x1FE7, {0x03A5, 0x0308, 0x0342}, {0x03A5, 0x0308, 0x0342}},
                                         {0x1FF2, {0x1FFA, 0x0399, 0}, {0x1FFA, 0x0345, 0}},
                                         {0x1FF3, {0x03A9, 0x0399, 0}, {0x1FFC, 0, 0}},
                                         {0x1FF4, {0x038F, 0x0399, 0}, {0x038F, 0x0345, 0}},
                                         {0x1FF6, {0x03A9, 0x0342, 0}, {0x03A9, 0x0342, 0}},
                                         {0x1FF7, {0x03A9, 0x0342, 0x0399}, {0x03A9, 0x0342, 0x0345}},
                                         {0x1FFC, {0x03A9, 0x0399, 0}, {0x1FFC, 0, 0}},
                                         {0xFB00, {0x0046, 0x0046, 0}, {0x0046, 0x0066, 0}},
                                         {0xFB01, {0x0046, 0x0049, 0}, {0x0046, 0x0069, 0}},
                                         {0xFB02, {0x0046, 0x004C, 0}, {0x0046, 0x006C, 0}},
                                         {0xFB03, {0x0046, 0x0046, 0x0049}, {0x0046, 0x0066, 0x0069}},
                                         {0xFB04, {0x0046, 0x0046, 0x004C}, {0x0046, 0x0066, 0x006C}},
                                         {0xFB05, {0x0053, 0x0054, 0}, {0x0053, 0x0074, 0}},
                                         {0xFB06, {0x0053, 0x0054, 0}, {0x0053, 0x0074, 0}},
                                         {0xFB13, {0x0544, 0x0546, 0}, {0x0544, 0x0576, 0}},
                                         {0xFB14, {0x0544, 0x0535, 0}, {0x0544, 0x0565, 0}},
                                         {0xFB15, {0x0544, 0x053B, 0}, {0x0544, 0x056B, 0}},
                                         {0xFB16, {0x054E, 0x0546, 0}, {0x054E, 0x0576, 0}},
                                         {0xFB17, {0x0544, 0x053D, 0}, {0x0544, 0x056D, 0}}};

}  // namespace

bool is_space(uint32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(uint32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(uint32_t c) {
  if (is_decimal(c)) return true;
  return std::any_of(std::begin(kDigits), std::end(kDigits), [c](Range r) { return c >= r.first && c <= r.last; });
}

bool is_numeric(uint32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_upper(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_lower(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_title(uint32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(uint32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_line_break(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(uint32_t c) {
  if (c < 0x7F) return c >= ' ';
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_word(uint32_t c) { return c == '_' || is_alpha(c) || is_digit(c) || is_numeric(c); }

bool is_name_start(uint32_t c) { return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL; }

void append_cased(std::string& out, uint32_t c, Case to) {
  if (c < 0x80) {
    const char ch = static_cast<char>(c);
    if (to == Case::kLower) {
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(ch + 32) : ch;
    } else {
      out += c >= 'a' && c <= 'z' ? static_cast<char>(ch - 32) : ch;
    }
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  if (to == Case::kLower) {
    append_utf8(out, c == 0x130 ? 'i' : static_cast<uint32_t>(utf8proc_tolower(code)));
    if (c == 0x130) append_utf8(out, 0x307);
    return;
  }
  const auto special = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                        [](const SpecialCase& s, uint32_t value) { return s.code_point < value; });
  if (special != std::end(kSpecialCases) && special->code_point == c) {
    for (const uint32_t part : to == Case::kUpper ? special->upper : special->title) {
      if (part != 0) append_utf8(out, part);
    }
    return;
  }
  append_utf8(out, static_cast<uint32_t>(to == Case::kUpper ? utf8proc_toupper(code) : utf8proc_totitle(code)));
}

CodePoint code_point_at(std::string_view text, size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  if (lead < 0x80) return {lead, 1};
  const Utf8Step step = utf8_step(text.substr(offset));
  return {step.code_point, static_cast<size_t>(step.length)};
}

CodePoint code_point_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return code_point_at(text, begin);
}

}  // namespace qgen::jinja
