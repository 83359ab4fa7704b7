#include "cli/answer_writer.h"

#include "cli/terminal.h"

namespace qgen::cli {

AnswerWriter::AnswerWriter(std::string_view show)
    : terminal_(stdout_is_terminal()),
      split_(show != "show"),
      show_thinking_(show == "auto" && terminal_),
      dim_(stdout_has_color()) {}

void AnswerWriter::write(const ReasoningPiece& piece) {
  if (piece.text.empty()) return;
  const bool answer_begins = was_thinking_ && !piece.thinking && show_thinking_;
  was_thinking_ = piece.thinking;
  if (piece.thinking && !show_thinking_) return;
  std::string text = terminal_ ? without_controls(piece.text) : piece.text;
  if (text.empty()) return;
  const bool newline = text.back() == '\n';
  if (piece.thinking && dim_) text = dimmed(text);
  if (answer_begins) text = "\n\n" + text;
  last_was_newline_ = newline;
  begun_ = true;
  write_stdout(text);
}

void AnswerWriter::finish() {
  if (terminal_) end_line();
}

void AnswerWriter::end_line() {
  if (!last_was_newline_) write_stdout("\n");
  last_was_newline_ = true;
}

}  // namespace qgen::cli
