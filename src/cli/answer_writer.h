// Model output on standard output: thinking dimmed, shown or dropped, control characters kept from a terminal.
#pragma once

#include <string_view>

#include "chat/reasoning.h"

namespace qgen::cli {

class AnswerWriter {
 public:
  // `show`: "show", "hide" or "auto", as --reasoning.
  explicit AnswerWriter(std::string_view show);

  // Whether thinking must come apart from the answer; with "show" everything is one text, tags included.
  bool splits() const { return split_; }
  bool hides_thinking() const { return split_ && !show_thinking_; }
  void write(const ReasoningPiece& piece);
  bool begun() const { return begun_; }  // whether anything was written
  // Ends the line on a terminal.
  void finish();
  // Ends the line everywhere.
  void end_line();

 private:
  bool terminal_, split_, show_thinking_, dim_;
  bool last_was_newline_ = false;
  bool was_thinking_ = false;
  bool begun_ = false;
};

}  // namespace qgen::cli
