#include "cli/message_reader.h"

#include <csignal>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

}  // namespace

void MessageAssembler::add(std::string_view line) {
  if (has_line_) text_ += '\n';
  text_ += line;
  has_line_ = true;
}

std::optional<TypedMessage> MessageAssembler::push(std::string_view line) {
  if (!pending_ && line.starts_with(kQuotes)) {
    pending_ = quoted_ = true;
    line.remove_prefix(kQuotes.size());
  }
  pending_ = true;
  if (quoted_) {
    const bool closed = line.ends_with(kQuotes);
    if (closed) line.remove_suffix(kQuotes.size());
    add(line);
    if (!closed) return {};
  } else if (line.ends_with('\\')) {
    add(line.substr(0, line.size() - 1));
    return {};
  } else {
    add(line);
  }
  return take();
}

TypedMessage MessageAssembler::take() {
  TypedMessage message{replace_invalid_utf8(text_), quoted_};
  if (quoted_) {
    // The lines of the quotes themselves.
    if (message.text.starts_with('\n')) message.text.erase(0, 1);
    if (message.text.ends_with('\n')) message.text.pop_back();
  }
  *this = {};
  return message;
}

MessageReader::MessageReader(std::vector<std::string> words, const InputOptions& options) : options_(options) {
  if (stdin_is_terminal()) editor_ = std::make_unique<LineEditor>(history_path(), std::move(words));
}

std::optional<TypedMessage> MessageReader::next() { return editor_ ? next_typed() : next_piped(); }

std::optional<TypedMessage> MessageReader::next_typed() {
  MessageAssembler assembler;
  bool warned = false;
  for (std::string line;;) {
    switch (editor_->read(assembler.pending() ? ". " : "> ", line)) {
      case LineEditor::Event::kTerminate: throw Exit{128 + editor_->ended_by()};
      case LineEditor::Event::kEnd:
        if (!assembler.pending()) return {};
        return remembered(assembler.take());
      case LineEditor::Event::kInterrupt:
        if (line.empty() && !assembler.pending()) {
          if (warned) return {};
          write_stderr("Ctrl-C again or Ctrl-D ends the conversation\n", Style::kDim);
          warned = true;
        } else {
          warned = false;
        }
        assembler = {};
        continue;
      case LineEditor::Event::kLine: break;
    }
    warned = false;
    if (auto message = assembler.push(line)) return remembered(std::move(*message));
  }
}

TypedMessage MessageReader::remembered(TypedMessage message) {
  if (!message.text.empty())
    editor_->remember(message.quoted ? fmt::format("{0}{1}{0}", kQuotes, message.text) : message.text);
  return message;
}

std::optional<TypedMessage> MessageReader::next_piped() {
  MessageAssembler assembler;
  for (std::string line; lines_.next(line);) {
    if (++line_number_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (line.ends_with('\r')) line.pop_back();
    line = valid_text(std::move(line), "standard input", options_, line_number_);
    if (auto message = assembler.push(line)) return message;
  }
  if (assembler.in_quotes()) {
    fail(ErrorKind::kUsage, "standard input: a message that begins with \"\"\" has no end (expected \"\"\")");
  }
  if (assembler.pending()) return assembler.take();
  return {};
}

}  // namespace qgen::cli
