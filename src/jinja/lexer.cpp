#include "jinja/lexer.h"

#include <cctype>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/unicode.h"

namespace qgen::jinja {
namespace {

constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

constexpr size_t kMaxNameBytes = 1000;

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(TokenKind::kEnd, source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string text, size_t offset) const {
    throw SyntaxProblem{std::move(text), static_cast<uint32_t>(offset)};
  }

  Token& add(TokenKind kind, size_t offset, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.offset = static_cast<uint32_t>(offset);
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  bool starts_with(std::string_view text, size_t offset) const { return source_.substr(offset).starts_with(text); }

  size_t skip_space(size_t offset) const {
    while (offset < source_.size()) {
      const CodePoint c = code_point_at(source_, offset);
      if (!is_space(c.value)) break;
      offset += c.bytes;
    }
    return offset;
  }

  // Where the text [begin, end) ends once the whitespace control of a tag that opens at `end` is applied.
  size_t strip_before(size_t begin, size_t end, char sign, bool variable) const {
    if (sign == '-') {
      while (end > begin) {
        const CodePoint c = code_point_before(source_, end);
        if (!is_space(c.value)) break;
        end -= c.bytes;
      }
      return end;
    }
    if (sign == '+' || variable) return end;
    const std::string_view text = source_.substr(begin, end - begin);
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && begin > 0 && source_[begin - 1] != '\n') return end;
    const size_t line = newline == std::string_view::npos ? begin : begin + newline + 1;
    return skip_space(line) >= end ? line : end;
  }

  // The length of a tag's end ("%}", "-%}", "+%}" and what the sign swallows) at `offset`, if it is one.
  std::optional<size_t> tag_end(std::string_view closing, size_t offset, bool plus, bool trim) const {
    if (starts_with("-", offset) && starts_with(closing, offset + 1)) return skip_space(offset + 3) - offset;
    if (plus && starts_with("+", offset) && starts_with(closing, offset + 1)) return 3;
    if (!starts_with(closing, offset)) return {};
    return trim && starts_with("\n", offset + 2) ? 3 : 2;
  }

  char sign_at(size_t offset) const {
    const char c = offset < source_.size() ? source_[offset] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void data() {
    size_t open = at_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= source_.size()) {
        add(TokenKind::kData, at_, std::string(source_.substr(at_)));
        at_ = source_.size();
        return;
      }
      const char next = source_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    const char kind = source_[open + 1];
    const char sign = sign_at(open + 2);
    const size_t text_end = strip_before(at_, open, sign, kind == '{');
    if (text_end > at_) add(TokenKind::kData, at_, std::string(source_.substr(at_, text_end - at_)));
    const size_t inside = open + 2 + (sign ? 1 : 0);
    if (kind == '#') {
      comment(open, inside);
    } else if (kind == '%' && raw(open, inside)) {
    } else {
      at_ = inside;
      add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, open);
      tag(kind == '{');
    }
  }

  void comment(size_t open, size_t inside) {
    for (size_t close = source_.find("#}", inside); close != std::string_view::npos;) {
      const size_t begin =
          close > inside && (source_[close - 1] == '-' || source_[close - 1] == '+') ? close - 1 : close;
      at_ = begin + *tag_end("#}", begin, true, true);
      return;
    }
    fail("Missing end of comment tag", open);
  }

  // {% raw %} … {% endraw %}; false if the tag is another one.
  bool raw(size_t open, size_t inside) {
    size_t at = skip_space(inside);
    if (!starts_with("raw", at)) return false;
    at = skip_space(at + 3);
    const auto length = tag_end("%}", at, false, false);
    if (!length) return false;
    const size_t begin = at + *length;
    for (size_t end = source_.find("{%", begin); end != std::string_view::npos; end = source_.find("{%", end + 1)) {
      const char sign = sign_at(end + 2);
      size_t word = skip_space(end + 2 + (sign ? 1 : 0));
      if (!starts_with("endraw", word)) continue;
      word = skip_space(word + 6);
      const auto close = tag_end("%}", word, true, true);
      if (!close) continue;
      const size_t text_end = strip_before(begin, end, sign, false);
      if (text_end > begin) add(TokenKind::kData, begin, std::string(source_.substr(begin, text_end - begin)));
      at_ = word + *close;
      return true;
    }
    fail("Missing end of raw directive", open);
  }

  void tag(bool variable) {
    std::string open;  // the brackets that are open
    while (true) {
      at_ = skip_space(at_);
      if (at_ >= source_.size()) return;  // the parser reports the unexpected end
      if (open.empty()) {
        if (const auto length = tag_end(variable ? "}}" : "%}", at_, !variable, !variable)) {
          add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, at_);
          at_ += *length;
          return;
        }
      }
      const char c = source_[at_];
      if (is_ascii_digit(c) && number()) continue;
      const CodePoint first = code_point_at(source_, at_);
      if (is_word(first.value)) {
        name();
      } else if (c == '"' || c == '\'') {
        string();
      } else {
        op(open);
      }
    }
  }

  // Digits with single underscores between them, from `offset`; where they end.
  size_t digits(size_t offset, int base) const {
    const auto is_digit_of_base = [&](size_t i) {
      if (i >= source_.size() || !std::isxdigit(static_cast<unsigned char>(source_[i]))) return false;
      const int value = is_ascii_digit(source_[i]) ? source_[i] - '0' : (source_[i] | 0x20) - 'a' + 10;
      return value < base;
    };
    while (is_digit_of_base(offset) ||
           (offset < source_.size() && source_[offset] == '_' && is_digit_of_base(offset + 1))) {
      ++offset;
    }
    return offset;
  }

  bool number() {
    const size_t whole = digits(at_, 10);
    size_t end = whole;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot) {
      size_t fraction = whole;
      if (starts_with(".", whole) && whole + 1 < source_.size() && is_ascii_digit(source_[whole + 1])) {
        fraction = digits(whole + 1, 10);
      }
      end = fraction;
      if (fraction < source_.size() && (source_[fraction] | 0x20) == 'e') {
        size_t exponent = fraction + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_ascii_digit(source_[exponent])) end = digits(exponent, 10);
      }
    }
    if (end > whole) {
      std::string plain;
      for (const char c : source_.substr(at_, end - at_)) {
        if (c != '_') plain += c;
      }
      Token& token = add(TokenKind::kFloat, at_);
      const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), token.number);
      if (result.ec == std::errc::result_out_of_range) token.number = std::strtod(plain.c_str(), nullptr);
      at_ = end;
      return true;
    }
    return integer(whole);
  }

  bool integer(size_t decimal_end) {
    int base = 10;
    size_t begin = at_, end = decimal_end;
    if (source_[at_] == '0') {
      const char letter = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
      const int prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
      if (prefixed && digits(at_ + 2, prefixed) > at_ + 2) {
        base = prefixed;
        begin = at_ + 2;
        end = digits(begin, base);
      } else {  // only further zeros belong to it
        end = at_ + 1;
        while (end < decimal_end && (source_[end] == '0' || source_[end] == '_')) ++end;
        if (source_[end - 1] == '_') --end;
      }
    }
    std::string plain;
    for (const char c : source_.substr(begin, end - begin)) {
      if (c != '_') plain += c;
    }
    Token& token = add(TokenKind::kInteger, at_);
    const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), token.integer, base);
    if (result.ec != std::errc()) fail(fmt::format("the integer {} does not fit in 64 bits", plain), at_);
    at_ = end;
    return true;
  }

  void name() {
    const size_t begin = at_;
    while (at_ < source_.size()) {
      const CodePoint c = code_point_at(source_, at_);
      if (!is_word(c.value)) break;
      at_ += c.bytes;
    }
    if (!is_name_start(code_point_at(source_, begin).value)) fail("Invalid character in identifier", begin);
    if (at_ - begin > kMaxNameBytes) fail("a name that is too long", begin);
    add(TokenKind::kName, begin, std::string(source_.substr(begin, at_ - begin)));
  }

  void string() {
    const size_t begin = at_;
    const char quote = source_[at_++];
    while (at_ < source_.size() && source_[at_] != quote) at_ += source_[at_] == '\\' ? 2 : 1;
    if (at_ >= source_.size()) fail("unexpected char " + std::string(quote == '"' ? "'\"'" : "\"'\""), begin);
    std::string value = unescape(begin + 1, at_);
    ++at_;
    add(TokenKind::kString, begin, std::move(value));
  }

  // Python's escapes; an unknown one stands for itself, backslash included.
  std::string unescape(size_t at, size_t end) const {
    std::string out;
    while (at < end) {
      if (source_[at] != '\\') {
        out += source_[at++];
        continue;
      }
      const size_t start = at++;
      const char c = source_[at++];
      switch (c) {
        case '\n': break;
        case '\\':
        case '\'':
        case '"': out += c; break;
        case 'a': out += '\a'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'v': out += '\v'; break;
        case 'x': hex(out, at, end, 2, start); break;
        case 'u': hex(out, at, end, 4, start); break;
        case 'U': hex(out, at, end, 8, start); break;
        case 'N': fail("character names (\\N{…}) are not supported", start);
        default:
          if (c >= '0' && c <= '7') {
            uint32_t value = static_cast<uint32_t>(c - '0');
            for (int i = 0; i < 2 && at < end && source_[at] >= '0' && source_[at] <= '7'; ++i) {
              value = value * 8 + static_cast<uint32_t>(source_[at++] - '0');
            }
            append_utf8(out, value);
          } else {
            out += '\\';
            out += c;
          }
      }
    }
    return out;
  }

  void hex(std::string& out, size_t& at, size_t end, size_t count, size_t start) const {
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i, ++at) {
      if (at >= end || !std::isxdigit(static_cast<unsigned char>(source_[at]))) {
        fail("truncated escape in a string", start);
      }
      value = value * 16 +
              static_cast<uint64_t>(is_ascii_digit(source_[at]) ? source_[at] - '0' : (source_[at] | 0x20) - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail("an escape in a string is not a Unicode character", start);
    }
    append_utf8(out, static_cast<uint32_t>(value));
  }

  void op(std::string& open) {
    for (const std::string_view candidate : kOperators) {
      if (!starts_with(candidate, at_)) continue;
      const char c = candidate[0];
      if (c == '(' || c == '[' || c == '{') {
        open += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) fail(fmt::format("unexpected '{}'", c), at_);
        if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()), at_);
        open.pop_back();
      }
      add(TokenKind::kOperator, at_, std::string(candidate));
      at_ += candidate.size();
      return;
    }
    const CodePoint c = code_point_at(source_, at_);
    fail(fmt::format("unexpected char '{}'", source_.substr(at_, c.bytes)), at_);
  }

  std::string_view source_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace qgen::jinja
