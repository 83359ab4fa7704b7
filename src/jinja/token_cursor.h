// A place in the tokens of a template, with the questions and complaints that a parser has there.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "jinja/lexer.h"

namespace qgen::jinja {

class TokenCursor {
 public:
  explicit TokenCursor(std::string_view source) : tokens_(tokenize(source)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[noreturn]] void fail(std::string text) const { throw SyntaxProblem{std::move(text), current().offset}; }
  [[noreturn]] void fail_at(uint32_t offset, std::string text) const { throw SyntaxProblem{std::move(text), offset}; }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kData: return "template data";
      case TokenKind::kVariableBegin: return "begin of print statement";
      case TokenKind::kVariableEnd: return "end of print statement";
      case TokenKind::kBlockBegin: return "begin of statement block";
      case TokenKind::kBlockEnd: return "end of statement block";
      case TokenKind::kString: return "string";
      case TokenKind::kInteger: return "integer";
      case TokenKind::kFloat: return "float";
      case TokenKind::kName:
      case TokenKind::kOperator: return token.text;
      case TokenKind::kEnd: return "end of template";
    }
    return "";
  }

  bool is_op(std::string_view op) const { return current().kind == TokenKind::kOperator && current().text == op; }
  bool is_word(std::string_view word) const { return current().kind == TokenKind::kName && current().text == word; }
  bool skip_op(std::string_view op) {
    const bool found = is_op(op);
    if (found) next();
    return found;
  }
  bool skip_word(std::string_view word) {
    const bool found = is_word(word);
    if (found) next();
    return found;
  }
  [[noreturn]] void fail_expected(std::string_view what) const {
    fail(fmt::format("expected token '{}', got '{}'", what, describe(current())));
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail_expected(op);
  }
  void expect_word(std::string_view word) {
    if (!skip_word(word)) fail_expected(word);
  }
  void expect(TokenKind kind, std::string_view what) {
    if (current().kind != kind) fail_expected(what);
    next();
  }
  std::string expect_name() {
    if (current().kind != TokenKind::kName) fail_expected("name");
    return next().text;
  }
  void expect_block_end() { expect(TokenKind::kBlockEnd, "end of statement block"); }

 private:
  std::vector<Token> tokens_;  // the last is the end, which is never passed
  size_t at_ = 0;
};

}  // namespace qgen::jinja
