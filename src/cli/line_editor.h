// Lines typed at a terminal, edited with libedit: UTF-8, pasted text in one piece, a history that outlives the
// program. The terminal is as it was before whenever read() has returned.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace qgen::cli {

class LineEditor {
 public:
  enum class Event {
    kLine,
    kEnd,        // Ctrl-D on an empty line, or the terminal has gone
    kInterrupt,  // Ctrl-C
    kTerminate,  // SIGTERM or SIGHUP: ended_by()
  };

  // Standard input is a terminal. What cannot be read or written of the history file is done without; an empty
  // path is none. Tab completes a line's first word to one of `words`.
  LineEditor(std::filesystem::path history_file, std::vector<std::string> words);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;

  // Shows the prompt and reads into `line`, which may hold newlines where text was pasted (or Alt-Enter pressed).
  // At Ctrl-C it holds the abandoned line.
  Event read(const std::string& prompt, std::string& line);
  int ended_by() const;
  // Adds to the history.
  void remember(const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Where the history is kept: qgen/history in $XDG_STATE_HOME or ~/.local/state; empty if there is no home.
std::filesystem::path history_path();

}  // namespace qgen::cli
