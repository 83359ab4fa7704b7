// The program's edges: standard output that carries text only, standard error, signals.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "generate/loader.h"

namespace qgen::cli {

// Ends the program from anywhere in the command line room with this exit code, silently.
struct Exit {
  int code;
};

// Writes all of it to standard output. A closed pipe ends the program with 141, a signal that comes while the reader is
// stuck with its code; any other failure is a runtime Error.
void write_stdout(std::string_view text);
// The same, without control characters where it is a terminal: for what comes out of files and models.
void print_stdout(std::string_view text);
// The same everywhere: for lines that show names out of files.
void print_table(std::string_view text);
// Standard error, one line or several, control characters dropped; failures are ignored. It begins on a line of its own
// wherever it may meet an answer that has not ended its line: on one terminal, in one file or pipe, and where a reader
// of standard output may write to the terminal (tee).
enum class Style { kPlain, kDim };
void write_stderr(std::string_view text, Style style = Style::kPlain);
// The same for what was asked for: a failure is a runtime Error, unless standard error is closed.
void print_stderr(std::string_view text, Style style = Style::kPlain);

// "auto", "always" or "never". auto: on a terminal, unless NO_COLOR is set (no-color.org).
void set_color(std::string_view when);
bool stdout_has_color();
bool stderr_has_color();
// Dim text for a stream that has color.
std::string dimmed(std::string_view text);

bool stdout_is_terminal();
bool terminal_is_dumb();  // TERM=dumb: it only prints
bool stderr_is_terminal();
bool stdin_is_terminal();
// The width of the terminal that the stream is; 0 where it is none or does not say.
int stdout_columns();
int stderr_columns();
constexpr size_t kMaxTextBytes = size_t{1} << 30;  // of prompts and texts
// All of it; a usage Error above `limit_bytes`.
std::string read_stdin(size_t limit_bytes = kMaxTextBytes);
// "qgen: warning: …" on standard error; nothing for an empty text.
void warn(std::string_view text);

// A progress line on the terminal: it appears after half a second and goes away with the object. It prints nothing
// where standard error is no terminal, or when `quiet`.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  // `text` is made only when it is shown.
  void show(const std::function<std::string()>& text);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool enabled_;
  bool shown_ = false;
  Clock::time_point next_;
};

// Progress on such a line (none when `quiet`); stopped by a signal noted since start_answer().
RunControl terminal_control(bool quiet);

// A message with names in it that stays one: only our own newlines, which two spaces follow, begin a line. A name
// cannot write a line "hint: …".
std::string one_message(std::string_view text);
// A name, or text with names in it, as a part of one line: newlines are shown as \n. Wherever a model's name or what
// its files say stands in text for people.
std::string one_line(std::string_view text);

// Model output made safe for a terminal: control characters go, newline and tab aside, and bytes that are no UTF-8.
std::string without_controls(std::string_view text);

// Ctrl-C, SIGTERM and SIGHUP. Before start_answer() they end the program at once; while an answer is written the first
// one is only noted, so that the answer can be closed and reported. Where more than this answer would be lost
// (`keep_session`), so is every further Ctrl-C.
void install_signal_handlers();
void start_answer(bool keep_session = false);
void end_answer();
int noted_signal();       // 0 if none
void forget_interrupt();  // a noted Ctrl-C; other signals stay

}  // namespace qgen::cli
