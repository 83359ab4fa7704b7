// Messages to the model out of lines: from a terminal with a prompt and a history, else from standard input as they
// come.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/input_text.h"
#include "cli/line_editor.h"
#include "cli/line_reader.h"

namespace qgen::cli {

// The lines typed as one message.
struct TypedMessage {
  std::string text;
  bool quoted = false;  // in """: never a command
};

// Joins lines: one that ends in a backslash continues on the next, and """ … """ holds any lines.
class MessageAssembler {
 public:
  // Takes a line (pasted text may hold newlines); gives the message that it completes.
  std::optional<TypedMessage> push(std::string_view line);
  bool pending() const { return pending_; }
  bool in_quotes() const { return pending_ && quoted_; }
  // The lines so far, as if the message were complete.
  TypedMessage take();

 private:
  std::string text_;
  bool pending_ = false;
  bool quoted_ = false;
  bool has_line_ = false;

  void add(std::string_view line);
};

class MessageReader {
 public:
  // Tab completes to one of `words` on a terminal. What to do with bytes that are no UTF-8 in a pipe is for `options`
  // to say; those of a terminal are replaced.
  MessageReader(std::vector<std::string> words, const InputOptions& options);

  bool interactive() const { return editor_ != nullptr; }
  // The next message, nothing at the end. Ctrl-C gives up what was typed; on an empty line, twice, it is the end.
  // SIGTERM or SIGHUP at a prompt ends the program.
  std::optional<TypedMessage> next();

 private:
  std::optional<TypedMessage> next_typed();
  std::optional<TypedMessage> next_piped();
  // Adds it to the history, in a form that can be sent again as one line.
  TypedMessage remembered(TypedMessage message);

  InputOptions options_;
  std::unique_ptr<LineEditor> editor_;
  int64_t line_number_ = 0;  // in a pipe
  LineReader lines_{"-", "standard input"};
};

}  // namespace qgen::cli
