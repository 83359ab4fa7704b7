#include "cli/terminal.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/echo.h"

namespace qgen::cli {
namespace {

std::atomic<int> signal_seen{0};
std::atomic<bool> answering{false};
std::atomic<bool> session_kept{false};

void on_stop_signal(int number) {
  int seen = 0;
  if (answering && signal_seen.compare_exchange_strong(seen, number)) return;
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

void write_raw_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

bool line_open = false;  // whether the last byte on standard output was no newline

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

void handle(int number, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(number, &action, nullptr);
}

}  // namespace

void write_stdout(std::string_view text) {
  if (!text.empty()) line_open = text.back() != '\n';
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EPIPE) throw Exit{128 + SIGPIPE};
      fail(ErrorKind::kRuntime, fmt::format("standard output: cannot write: {}", std::strerror(errno)));
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void print_stdout(std::string_view text) { write_stdout(stdout_is_terminal() ? without_controls(text) : text); }

void write_stderr(std::string_view message, Style style) {
  // Names out of files may hold anything.
  const std::string safe = without_controls(message);
  if (safe.empty()) return;
  const bool fresh_line = line_open && streams_meet();
  if (fresh_line) line_open = false;
  write_raw_stderr((fresh_line ? "\n" : "") + (style == Style::kDim && stderr_has_color() ? dimmed(safe) : safe));
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
  const std::string line = without_controls(text());
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
    if (got < 0) fail(ErrorKind::kRuntime, fmt::format("standard input: cannot read: {}", std::strerror(errno)));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > limit_bytes) {
      fail(ErrorKind::kUsage, fmt::format("standard input: too much text (expected at most {} bytes)", limit_bytes));
    }
  }
}

std::string without_controls(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const uint32_t c = step.code_point;
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0);
    if (!control) out += text.substr(0, step.length);
    text.remove_prefix(step.length);
  }
  return out;
}

void install_signal_handlers() {
  handle(SIGINT, on_stop_signal, 0);
  handle(SIGTERM, on_stop_signal, 0);
  handle(SIGPIPE, SIG_IGN, 0);
  handle(SIGBUS, on_bus_error, 0);
}

void start_answer(bool keep_session) {
  session_kept = keep_session;
  answering = true;
}
void end_answer() { answering = false; }
int noted_signal() { return signal_seen; }
void forget_interrupt() {
  int seen = SIGINT;
  signal_seen.compare_exchange_strong(seen, 0);
}

void warn(std::string_view text) {
  if (!text.empty()) write_stderr(fmt::format("qgen: warning: {}\n", text));
}

RunControl terminal_control(bool quiet) {
  const auto line = std::make_shared<ProgressLine>(quiet);
  return {[line](const std::function<std::string()>& text) { text ? line->show(text) : line->clear(); },
          [] { return noted_signal() != 0; }};
}

}  // namespace qgen::cli
