// Texts with their origins, and the character properties that the stages ask for.
#include "tokenizer/text.h"

#include <array>

#include <fmt/format.h>
#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode_age.h"

namespace qgen::tokenizer {

Text& Text::operator=(Text&& other) noexcept {
  view_ = other.view_;
  own_ = std::move(other.own_);
  owned_ = other.owned_;
  sources_ = std::move(other.sources_);
  offset_ = other.offset_;
  most_ = other.most_;
  return *this;
}

Span Text::source_of(size_t i) const {
  if (owned_) return sources_[i];
  size_t begin = i, end = i + 1;
  while (begin > 0 && is_continuation(view_[begin])) --begin;
  while (end < view_.size() && is_continuation(view_[end])) ++end;
  return {uint32_t(offset_ + begin), uint32_t(offset_ + end)};
}

Span Text::source_of(size_t begin, size_t end) const {
  if (begin >= end) {
    const uint32_t at = begin < view().size() ? source_of(begin).begin : begin > 0 ? source_of(begin - 1).end : offset_;
    return {at, at};
  }
  const Span first = source_of(begin), last = source_of(end - 1);
  return {first.begin, std::max(first.begin, last.end)};
}

TextBuilder::TextBuilder(const Text& from) : from_(from) {
  to_.owned_ = true;
  to_.offset_ = from.offset_;
  to_.most_ = from.most_;
  to_.own_.reserve(from.view().size() + from.view().size() / 4 + 16);
  to_.sources_.reserve(to_.own_.capacity());
}

void TextBuilder::fail_growth() const {
  fail(ErrorKind::kModel, fmt::format("tokenizer: its stages make more than {} bytes of the text", to_.most_),
       "a damaged tokenizer.json?");
}

void TextBuilder::keep(size_t begin, size_t end) {
  check_room(end - begin);
  to_.own_ += from_.view().substr(begin, end - begin);
  if (from_.owned_) {
    to_.sources_.insert(to_.sources_.end(), from_.sources_.begin() + begin, from_.sources_.begin() + end);
    return;
  }
  for (size_t i = begin; i < end;) {
    const Span source = from_.source_of(i);
    const size_t stop = std::min<size_t>(end, source.end - from_.offset_);
    for (; i < stop; ++i) to_.sources_.push_back(source);
  }
}

void TextBuilder::put(std::string_view text, size_t begin, size_t end) {
  check_room(text.size());
  to_.own_ += text;
  to_.sources_.insert(to_.sources_.end(), text.size(), from_.source_of(begin, end));
}

Char char_before_end(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && is_continuation(text[begin])) --begin;
  return char_at(text.substr(begin));
}

size_t count_chars(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += !is_continuation(c);
  return count;
}

bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(uint32_t c) {
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'));
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO) != is_in(kPunctuationDiffers, c);
}

bool is_nonspacing_mark(uint32_t c) { return utf8proc_category(utf8proc_int32_t(c)) == UTF8PROC_CATEGORY_MN; }

bool is_mark(uint32_t c) {
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME) !=
         is_in(kMarkDiffers, c);
}

bool is_other(uint32_t c) {
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO ||
          category == UTF8PROC_CATEGORY_CS) != is_in(kOtherDiffers, c);
}

bool is_word(uint32_t c) {
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    // The alphabetic symbols (circled and squared letters), and the joiners.
    case UTF8PROC_CATEGORY_SO:
      return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
    default: return c == 0x200C || c == 0x200D;
  }
}

void append_lower(std::string& out, uint32_t c) {
  if (c == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, uint32_t(utf8proc_tolower(utf8proc_int32_t(c))));
}

namespace {

struct ByteAlphabet {
  std::array<uint16_t, 256> chars;
  std::array<int16_t, 0x144> bytes;
  ByteAlphabet() {
    bytes.fill(-1);
    uint16_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      chars[b] = printable ? uint16_t(b) : next++;
      bytes[chars[b]] = int16_t(b);
    }
  }
};
const ByteAlphabet kByteAlphabet;

}  // namespace

uint32_t char_of_byte(uint8_t byte) { return kByteAlphabet.chars[byte]; }

int byte_of_char(uint32_t c) { return c < kByteAlphabet.bytes.size() ? kByteAlphabet.bytes[c] : -1; }

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char c : bytes) append_utf8(out, char_of_byte(static_cast<uint8_t>(c)));
}

}  // namespace qgen::tokenizer
