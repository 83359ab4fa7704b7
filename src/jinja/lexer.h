// Splits Jinja source into tokens, with whitespace control already applied (trim_blocks and lstrip_blocks on,
// as chat templates are rendered) and comments and raw blocks resolved.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qgen::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t offset = 0;
  std::string text;  // data, name, the string's value, the operator
  int64_t integer = 0;
  double number = 0;
};

// A syntax error at an offset of the normalized source.
struct SyntaxProblem {
  std::string text;
  uint32_t offset = 0;
};

// Line ends as \n, and one newline at the very end dropped.
std::string normalize_source(std::string_view source);

// `source` must be normalized, valid UTF-8 of less than 4 GiB. Throws SyntaxProblem.
std::vector<Token> tokenize(std::string_view source);

}  // namespace qgen::jinja
