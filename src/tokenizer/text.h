// Text on its way through the tokenizer: bytes that remember which bytes of the input they stand for.
// Every normalizer and pre-tokenizer that changes text builds a new one with TextBuilder. Texts are valid
// UTF-8 throughout, and shorter than 4 GiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace qgen::tokenizer {

// Bytes [begin, end) of some text.
struct Span {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// What the stages of a tokenizer may make of so many bytes: a small multiple of them, whatever its file says.
// (Unicode's own forms, each byte spelled as a character, make up to 22 bytes of one.)
constexpr size_t most_bytes_from(size_t bytes) { return (size_t{1} << 20) + 32 * bytes; }

class Text {
 public:
  Text() = default;
  // A view of the input's bytes from `offset` on; `view` must outlive the text. It may grow to `most` bytes.
  Text(std::string_view view, uint32_t offset, size_t most) : view_(view), offset_(offset), most_(most) {}
  Text(Text&& other) noexcept { *this = std::move(other); }
  Text& operator=(Text&& other) noexcept;

  std::string_view view() const { return owned_ ? std::string_view(own_) : view_; }
  bool empty() const { return view().empty(); }
  // The input's bytes that byte `i` stands for: at least the whole character.
  Span source_of(size_t i) const;
  // The input's bytes that [begin, end) stands for; an empty range covers nothing.
  Span source_of(size_t begin, size_t end) const;

 private:
  friend class TextBuilder;
  std::string_view view_;
  std::string own_;
  bool owned_ = false;
  std::vector<Span> sources_;  // one per byte of own_
  uint32_t offset_ = 0;
  size_t most_ = 0;  // bytes
};

class TextBuilder {
 public:
  explicit TextBuilder(const Text& from);
  // Bytes [begin, end) of the old text, unchanged. This and put() throw a model Error where the text gets too long.
  void keep(size_t begin, size_t end);
  // `text` in place of bytes [begin, end) of the old text.
  void put(std::string_view text, size_t begin, size_t end);
  size_t size() const { return to_.own_.size(); }
  Text take() { return std::move(to_); }

 private:
  void check_room(size_t bytes) const {
    if (bytes > to_.most_ - std::min(to_.most_, to_.own_.size())) fail_growth();
  }
  [[noreturn]] void fail_growth() const;

  const Text& from_;
  Text to_;
};

// Part of a text on its way to the model. Parts that an added token took are never cut or changed again.
struct Part {
  size_t begin = 0;
  size_t end = 0;
  TokenId token = -1;
};

// A code point and the bytes it takes.
struct Char {
  uint32_t code_point = 0;
  uint32_t length = 1;
};
// The character at the beginning of `text`, which is valid UTF-8 and not empty.
inline Char char_at(std::string_view text) {
  const auto byte = [&](size_t i) { return uint32_t(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
inline bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
// The character that ends at the end of `text`.
Char char_before_end(std::string_view text);
size_t count_chars(std::string_view text);

// Unicode's properties as `tokenizers` (that is, Rust) reads them.
bool is_white_space(uint32_t c);
bool is_numeric(uint32_t c);      // N*
bool is_punctuation(uint32_t c);  // P* and ASCII punctuation
bool is_mark(uint32_t c);         // M*
bool is_nonspacing_mark(uint32_t c);
bool is_other(uint32_t c);  // control, format, private use
bool is_word(uint32_t c);   // \w
// The lower case of one character, which may be two.
void append_lower(std::string& out, uint32_t c);

// The alphabet in which byte-level tokenizers spell bytes: every byte is one printable character.
uint32_t char_of_byte(uint8_t byte);
int byte_of_char(uint32_t c);  // -1 if `c` is not of the alphabet
void append_byte_level(std::string& out, std::string_view bytes);

}  // namespace qgen::tokenizer
