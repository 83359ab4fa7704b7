#include "cli/answer_writer.h"

#include "cli/terminal.h"

namespace qgen::cli {

AnswerWriter::AnswerWriter(std::string_view show)
    : terminal_(stdout_is_terminal()),
      split_(show != "show"),
      show_thinking_(show == "auto" && terminal_),
      dim_(stdout_has_color()) {
  if (terminal_) wrap_.emplace(stdout_columns);
}

void AnswerWriter::show(std::string text, bool thinking) {
  if (text.empty()) return;
  last_was_newline_ = text.back() == '\n';
  begun_ = true;
  write_stdout(thinking && dim_ ? dimmed(text) : text);
}

void AnswerWriter::write(const ReasoningPiece& piece) {
  if (piece.text.empty()) return;
  const bool answer_begins = was_thinking_ && !piece.thinking && show_thinking_;
  if (answer_begins) show(wrap_->flush(), true);
  was_thinking_ = piece.thinking;
  if (piece.thinking && !show_thinking_) return;
  show(wrap_ ? wrap_->push((answer_begins ? "\n\n" : "") + without_controls(piece.text)) : piece.text, piece.thinking);
}

void AnswerWriter::finish() {
  if (wrap_) show(wrap_->flush(), was_thinking_);
  if (terminal_ && !last_was_newline_) show("\n", false);
}

void AnswerWriter::end_line() {
  finish();
  if (!last_was_newline_) show("\n", false);
}

}  // namespace qgen::cli
