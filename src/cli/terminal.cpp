#include "cli/terminal.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/echo.h"
#include "cli/streams.h"

namespace qgen::cli {
namespace {

std::atomic<int> signal_seen{0};
std::atomic<bool> answering{false};
std::atomic<bool> session_kept{false};

void on_stop_signal(int number) {
  int seen = 0;
  if (answering && signal_seen.compare_exchange_strong(seen, number)) return wake_writer();
  if (answering && session_kept && number == SIGINT) return;
  restore_echo();
  ::_exit(128 + number);
}

// A mapped file that was cut short while we read it.
void on_bus_error(int) {
  constexpr std::string_view kMessage = "qgen: a model file changed or became unreadable while it was in use\n";
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(static_cast<int>(ErrorKind::kRuntime));
}

int color = -1;  // 1: always, 0: never, -1: auto

bool has_color(bool terminal) {
  const char* const no_color = std::getenv("NO_COLOR");
  return color >= 0 ? color == 1 : terminal && !terminal_is_dumb() && (no_color == nullptr || *no_color == '\0');
}

// A conversation goes on behind a reader that is stuck.
bool outlasts_interrupt() { return session_kept && signal_seen == SIGINT; }

bool line_open = false;  // the last byte on standard output was not a newline

// Whether text on standard error may come right after text on standard output.
bool streams_meet() {
  struct stat out {
  }, err{};
  if (::fstat(STDOUT_FILENO, &out) != 0 || ::fstat(STDERR_FILENO, &err) != 0) return false;
  if (out.st_dev == err.st_dev && out.st_ino == err.st_ino && !S_ISCHR(out.st_mode)) return true;
  return stderr_is_terminal() && (stdout_is_terminal() || S_ISFIFO(out.st_mode));
}

int columns_of_terminal(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

Written write_raw_stderr(std::string_view text) { return write_all(STDERR_FILENO, text, outlasts_interrupt); }

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigaction(number, &action, nullptr);
}

// One that our parent had ignored stays so: `nohup`, and `&` of shells without job control.
void handle_stop(int number) {
  struct sigaction before {};
  if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  handle(number, on_stop_signal);
}

}  // namespace

void write_stdout(std::string_view text) {
  if (!text.empty()) line_open = text.back() != '\n';
  switch (write_all(STDOUT_FILENO, text, outlasts_interrupt)) {
    case Written::kAll: return;
    case Written::kStopped: throw Exit{128 + noted_signal()};
    case Written::kFailed: break;
  }
  if (errno == EPIPE) throw Exit{128 + SIGPIPE};
  fail(ErrorKind::kRuntime, fmt::format("standard output: cannot write: {}", std::strerror(errno)));
}

void print_stdout(std::string_view text) { write_stdout(stdout_is_terminal() ? without_controls(text) : text); }

void print_table(std::string_view text) { write_stdout(without_controls(text)); }

namespace {

Written write_safely(std::string_view message, Style style) {
  // Names out of files may hold anything.
  const std::string safe = without_controls(message);
  if (safe.empty()) return Written::kAll;
  const bool fresh_line = line_open && streams_meet();
  if (fresh_line) line_open = false;
  return write_raw_stderr((fresh_line ? "\n" : "") +
                          (style == Style::kDim && stderr_has_color() ? dimmed(safe) : safe));
}

}  // namespace

void write_stderr(std::string_view message, Style style) { write_safely(message, style); }

void print_stderr(std::string_view message, Style style) {
  switch (write_safely(message, style)) {
    case Written::kAll: return;
    case Written::kStopped: throw Exit{128 + noted_signal()};
    case Written::kFailed: break;
  }
  if (errno == EBADF) return;  // standard error was closed on purpose (2>&-)
  fail(ErrorKind::kRuntime, fmt::format("standard error: cannot write: {}", std::strerror(errno)));
}

void set_color(std::string_view when) { color = when == "always" ? 1 : when == "never" ? 0 : -1; }
bool stdout_has_color() { return has_color(stdout_is_terminal()); }
bool stderr_has_color() { return has_color(stderr_is_terminal()); }
std::string dimmed(std::string_view text) { return fmt::format("\x1b[2m{}\x1b[0m", text); }

ProgressLine::ProgressLine(bool quiet)
    : enabled_(!quiet && stderr_is_terminal() && !terminal_is_dumb()),
      next_(Clock::now() + std::chrono::milliseconds(500)) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const std::function<std::string()>& text) {
  if (!enabled_ || Clock::now() < next_) return;
  next_ = Clock::now() + std::chrono::milliseconds(100);
  shown_ = true;
  const std::string line = without_controls(one_line(text()));
  write_raw_stderr(fmt::format("\r{}\x1b[K", stderr_has_color() ? dimmed(line) : line));
}

void ProgressLine::clear() {
  if (shown_) write_raw_stderr("\r\x1b[K");
  shown_ = false;
}

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool terminal_is_dumb() {
  const char* const type = std::getenv("TERM");
  return type != nullptr && std::string_view(type) == "dumb";
}
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }

int stdout_columns() { return columns_of_terminal(STDOUT_FILENO); }
int stderr_columns() { return columns_of_terminal(STDERR_FILENO); }

std::string read_stdin(size_t limit_bytes) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {  // a pipe that does not block: the rest of it takes its time
      pollfd wait{STDIN_FILENO, POLLIN, 0};
      ::poll(&wait, 1, -1);
      continue;
    }
    if (got < 0) fail(ErrorKind::kRuntime, fmt::format("standard input: cannot read: {}", std::strerror(errno)));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > limit_bytes) {
      fail(ErrorKind::kUsage, fmt::format("standard input: too much text (expected at most {} bytes)", limit_bytes));
    }
  }
}

std::string one_message(std::string_view text) {
  constexpr std::string_view kContinuation = "\n  ";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' && !text.substr(i).starts_with(kContinuation)) {
      out += "\\n";
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string without_controls(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const uint32_t c = step.code_point;
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0);
    // A byte that is no character could be a control character of an 8-bit terminal.
    if (!step.valid) {
      out += "\xEF\xBF\xBD";
    } else if (!control) {
      out += text.substr(0, step.length);
    }
    text.remove_prefix(step.length);
  }
  return out;
}

void install_signal_handlers() {
  prepare_streams();
  handle_stop(SIGINT);
  handle_stop(SIGTERM);
  handle_stop(SIGHUP);
  handle(SIGPIPE, SIG_IGN);
  handle(SIGXFSZ, SIG_IGN);  // a file that may grow no longer is an error of write()
  handle(SIGBUS, on_bus_error);
}

void start_answer(bool keep_session) {
  session_kept = keep_session;
  answering = true;
}
void end_answer() { answering = false; }
int noted_signal() { return signal_seen; }
void forget_interrupt() {
  int seen = SIGINT;
  if (signal_seen.compare_exchange_strong(seen, 0)) forget_wakes();
}

void warn(std::string_view text) {
  if (!text.empty()) write_stderr(fmt::format("qgen: warning: {}\n", one_message(text)));
}

RunControl terminal_control(bool quiet) {
  const auto line = std::make_shared<ProgressLine>(quiet);
  return {[line](const std::function<std::string()>& text) { text ? line->show(text) : line->clear(); },
          [] { return noted_signal() != 0; }};
}

}  // namespace qgen::cli
