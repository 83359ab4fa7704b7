// Model output on standard output: thinking dimmed, shown or dropped; on a terminal lines are broken at words and
// control characters left out.
#pragma once

#include <optional>
#include <string_view>

#include "chat/reasoning.h"
#include "cli/word_wrap.h"

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
  // Writes the text held back so far, and ends the line on a terminal.
  void finish();
  // The same, and ends the line everywhere.
  void end_line();

 private:
  void show(std::string text, bool thinking);

  bool terminal_, split_, show_thinking_, dim_;
  std::optional<WordWrap> wrap_;  // on a terminal
  bool last_was_newline_ = false;
  bool was_thinking_ = false;
  bool begun_ = false;
};

}  // namespace qgen::cli
