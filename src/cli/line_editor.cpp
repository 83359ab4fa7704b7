#include "cli/line_editor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <string_view>

#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

constexpr int kHistoryEntries = 1000;
constexpr wchar_t* kEndOfArguments = nullptr;
constexpr char kInterruptKey = 3;  // Ctrl-C
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

static_assert(sizeof(wchar_t) == 4, "wide characters are code points");

std::wstring wide(std::string_view text) {
  std::wstring out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    out += wchar_t(step.code_point);
    text.remove_prefix(size_t(step.length));
  }
  return out;
}

std::string narrow(std::wstring_view text) {
  std::string out;
  for (const wchar_t c : text) append_utf8(out, uint32_t(c));
  return out;
}

// Signals while a line is read come as bytes in a pipe: whatever thread the system picks for them, the reader wakes.
constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
std::atomic<int> wake_end{-1};

void on_signal(int number) {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t ignored = ::write(wake_end, &byte, 1);
  errno = before;
}

class SignalPipe {
 public:
  SignalPipe() {
    if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0)
      fail(ErrorKind::kRuntime, "standard input: cannot wait for signals");
  }
  ~SignalPipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  SignalPipe(const SignalPipe&) = delete;

  void catch_signals() {
    wake_end = ends_[1];
    struct sigaction action {};
    action.sa_handler = on_signal;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &action, &before_[i]);
      if (before_[i].sa_handler == SIG_IGN) ::sigaction(kSignals[i], &before_[i], nullptr);  // as our parent wants it
    }
  }
  void release_signals() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  int descriptor() const { return ends_[0]; }
  // The next signal, 0 if there is none.
  int next() const {
    unsigned char number = 0;
    return ::read(ends_[0], &number, 1) == 1 ? number : 0;
  }

 private:
  int ends_[2];
  struct sigaction before_[kSignals.size()];
};

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

// Where the line is shown: never standard output, which is for answers.
File open_display() {
  if (stderr_is_terminal()) return File(::fdopen(::dup(STDERR_FILENO), "w"));
  const char* const name = ::ttyname(STDIN_FILENO);
  return File(name == nullptr ? nullptr : std::fopen(name, "w"));
}

}  // namespace

struct LineEditor::State {
  std::filesystem::path history_file;
  std::vector<std::wstring> words;
  File display;
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  SignalPipe signals;
  std::wstring prompt;
  Event event = Event::kLine;
  int ended_by = 0;
  std::wstring given_up;
  char typed[4096];
  size_t at = 0, size = 0;

  ~State() {
    if (editor != nullptr) ::el_end(editor);
    if (history != nullptr) ::history_wend(history);
  }

  static State& of(EditLine* editor) {
    void* state = nullptr;
    ::el_wget(editor, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }

  void show(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), display.get());
    std::fflush(display.get());
  }
  // Whether the terminal marks pasted text.
  void mark_pastes(bool on) {
    if (!terminal_is_dumb()) show(on ? "\x1b[?2004h" : "\x1b[?2004l");
  }

  // How many rows of the terminal the cursor is below the prompt.
  int cursor_row() const {
    winsize size_now{};
    if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size_now) != 0 || size_now.ws_col == 0) return 0;
    const int columns = size_now.ws_col;
    int row = 0, column = int(prompt.size());
    for (const wchar_t c : line_before_cursor()) {
      const int width = c == L'\t' ? 8 - column % 8 : std::max(0, ::wcwidth(c));
      if (c == L'\n' || column + width > columns) {
        ++row;
        column = 0;
      }
      column += width;
    }
    return row + (column >= columns);
  }

  // Shows prompt and line again, from the cursor's line or `rows` above.
  void redraw(int rows) {
    show(rows > 0 ? fmt::format("\r\x1b[{}A\x1b[J", rows) : "\r\x1b[J");
    ::el_wset(editor, EL_REFRESH);
  }

  // Ctrl-Z: stops as any program does, with the terminal in order, and goes on where it was.
  void suspend() {
    ::el_wset(editor, EL_PREP_TERM, 0);
    mark_pastes(false);
    signals.release_signals();
    ::raise(SIGTSTP);
    signals.catch_signals();
    mark_pastes(true);
    ::el_wset(editor, EL_PREP_TERM, 1);
    redraw(0);
  }

  void end(int signal) {
    event = Event::kTerminate;
    ended_by = signal;
  }

  // The next byte that was typed, -1 at the end.
  int next_byte() {
    for (;;) {
      if (at < size) return static_cast<unsigned char>(typed[at++]);
      pollfd ends[] = {{STDIN_FILENO, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
      if (::poll(ends, std::size(ends), -1) < 0 && errno != EINTR) return -1;
      switch (signals.next()) {
        case 0: break;
        case SIGINT: return kInterruptKey;
        case SIGTERM: end(SIGTERM); return -1;
        case SIGHUP: end(SIGHUP); return -1;
        case SIGTSTP: suspend(); continue;
        default:
          ::el_resize(editor);
          redraw(cursor_row());
          continue;
      }
      if (ends[0].revents == 0) continue;
      const ssize_t got = ::read(STDIN_FILENO, typed, sizeof typed);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return -1;
      at = 0;
      size = size_t(got);
    }
  }

  bool next_char(wchar_t& c) {
    std::string bytes;
    Utf8Step step;
    do {
      const int byte = next_byte();
      if (byte < 0) return false;
      bytes += char(byte);
      step = utf8_step(bytes);
    } while (step.truncated);
    // The byte that broke a sequence off begins the next one.
    if (size_t(step.length) < bytes.size() && at > 0) --at;
    c = wchar_t(step.code_point);
    return true;
  }

  // Text up to the end mark of a paste; line ends are newlines, and other control characters go.
  std::wstring read_paste() {
    std::wstring text;
    for (wchar_t c; !text.ends_with(kPasteEnd) && next_char(c);) text += c;
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    std::wstring out;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool return_alone = text[i] == L'\r' && (i + 1 == text.size() || text[i + 1] != L'\n');
      const wchar_t c = return_alone ? L'\n' : text[i];
      if (c == L'\n' || c == L'\t' || (c >= L' ' && (c < 0x7F || c >= 0xA0))) out += c;
    }
    out.resize(out.find_last_not_of(L'\n') + 1);
    return out;
  }

  // The text up to the cursor.
  std::wstring_view line_before_cursor() const {
    const LineInfoW* const line = ::el_wline(editor);
    return {line->buffer, size_t(line->cursor - line->buffer)};
  }

  // The common continuation of all completion words that begin with the line.
  std::wstring completion() const {
    const std::wstring_view line = line_before_cursor();
    std::wstring out;
    bool found = false;
    for (const std::wstring& word : words) {
      if (line.empty() || !word.starts_with(line)) continue;
      const std::wstring rest = word.substr(line.size());
      out = found ? out.substr(
                        0, size_t(std::mismatch(out.begin(), out.end(), rest.begin(), rest.end()).first - out.begin()))
                  : rest;
      found = true;
    }
    return out;
  }

  // Functions that keys are bound to.
  static unsigned char cancel(EditLine* editor, wint_t) {
    State& state = of(editor);
    const LineInfoW* const line = ::el_wline(editor);
    state.given_up.assign(line->buffer, line->lastchar);
    state.event = Event::kInterrupt;
    ::el_cursor(editor, int(line->lastchar - line->cursor));
    ::el_winsertstr(editor, L"^C");
    ::el_wpush(editor, L"\n");
    return CC_REFRESH;
  }
  static unsigned char paste(EditLine* editor, wint_t) {
    const std::wstring text = of(editor).read_paste();
    return text.empty() || ::el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_REFRESH_BEEP;
  }
  static unsigned char insert_newline(EditLine* editor, wint_t) {
    ::el_winsertstr(editor, L"\n");
    return CC_REFRESH;
  }
  static unsigned char complete(EditLine* editor, wint_t) {
    const std::wstring more = of(editor).completion();
    return more.empty() || ::el_winsertstr(editor, more.c_str()) != 0 ? CC_REFRESH_BEEP : CC_REFRESH;
  }

  void bind(const wchar_t* key, const wchar_t* name) { ::el_wset(editor, EL_BIND, key, name, kEndOfArguments); }

  void start_editor() {
    editor = ::el_init_fd("qgen", stdin, display.get(), display.get(), STDIN_FILENO, ::fileno(display.get()),
                          ::fileno(display.get()));
    if (editor == nullptr) fail(ErrorKind::kRuntime, "standard input: the terminal cannot be used");
    ::el_wset(editor, EL_CLIENTDATA, this);
    ::el_wset(
        editor, EL_PROMPT, +[](EditLine* e) { return of(e).prompt.data(); });
    ::el_wset(
        editor, EL_GETCFN, +[](EditLine* e, wchar_t* c) { return of(e).next_char(*c) ? 1 : 0; });
    ::el_wset(editor, EL_HIST, ::history_w, history);
    ::el_wset(editor, EL_EDITOR, L"emacs");
    // Key bindings as in most shells.
    bind(L"^R", L"em-inc-search-prev");
    bind(L"^U", L"vi-kill-line-prev");
    bind(L"^W", L"ed-delete-prev-word");
    bind(L"\\e[1;5C", L"em-next-word");
    bind(L"\\e[1;5D", L"ed-prev-word");
    ::el_source(editor, nullptr);  // the user's own keys, ~/.editrc

    ::el_wset(editor, EL_ADDFN, L"qgen-cancel", L"Give the line up", cancel);
    ::el_wset(editor, EL_ADDFN, L"qgen-paste", L"Insert pasted text", paste);
    ::el_wset(editor, EL_ADDFN, L"qgen-newline", L"Insert a newline", insert_newline);
    ::el_wset(editor, EL_ADDFN, L"qgen-complete", L"Complete a command", complete);
    bind(L"^C", L"qgen-cancel");
    bind(L"\\e[200~", L"qgen-paste");
    bind(L"\\e^M", L"qgen-newline");
    bind(L"\\e^J", L"qgen-newline");
    bind(L"^I", L"qgen-complete");
    ::el_wset(editor, EL_BIND, L"-a", L"^C", L"qgen-cancel", kEndOfArguments);
    // Ctrl-\ would leave the terminal as it is; pasted line ends come as they are.
    ::el_wset(editor, EL_SETTY, L"-d", L"quit=", L"-icrnl", L"-inlcr", kEndOfArguments);
  }

  void start_history() {
    history = ::history_winit();
    HistEventW result;
    ::history_w(history, &result, H_SETSIZE, kHistoryEntries);
    ::history_w(history, &result, H_SETUNIQUE, 1);
    if (history_file.empty()) return;
    const int read = ::history_w(history, &result, H_LOAD, history_file.c_str());
    if (read > 2 * kHistoryEntries) ::history_w(history, &result, H_SAVE, history_file.c_str());
  }

  // A new entry goes to the end of the file, so that several programs can share it.
  void append_to_file(const std::wstring& text) const {
    if (history_file.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(history_file.parent_path(), error);
    const int descriptor = ::open(history_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (descriptor < 0) return;
    const File file(::fdopen(descriptor, "a"));
    std::fseek(file.get(), 0, SEEK_END);
    const std::unique_ptr<HistoryW, void (*)(HistoryW*)> newest(::history_winit(), ::history_wend);
    HistEventW result;
    ::history_w(newest.get(), &result, H_SETSIZE, 1);
    ::history_w(newest.get(), &result, H_ENTER, text.c_str());
    ::history_w(newest.get(), &result, H_SAVE_FP, file.get());
  }
};

LineEditor::LineEditor(std::filesystem::path history_file, std::vector<std::string> words)
    : state_(std::make_unique<State>()) {
  // Widths of characters; answers are UTF-8 whatever the locale says.
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
  state_->history_file = std::move(history_file);
  for (const std::string& word : words) state_->words.push_back(wide(word));
  state_->display = open_display();
  if (!state_->display) fail(ErrorKind::kRuntime, "standard input: the terminal cannot be written to");
  state_->start_history();
  state_->start_editor();
}

LineEditor::~LineEditor() = default;

LineEditor::Event LineEditor::read(const std::string& prompt, std::string& line) {
  State& state = *state_;
  state.prompt = wide(prompt);
  state.event = Event::kLine;
  state.signals.catch_signals();
  // One that came before, while nothing was read.
  if (const int signal = noted_signal(); signal == SIGTERM || signal == SIGHUP) state.end(signal);
  forget_interrupt();
  int count = 0;
  const wchar_t* text = nullptr;
  if (state.event != Event::kTerminate) {
    ::el_wset(state.editor, EL_PREP_TERM, 1);  // before the prompt is seen, so that no key goes elsewhere
    state.mark_pastes(true);
    text = ::el_wgets(state.editor, &count);
    state.mark_pastes(false);
  }
  state.signals.release_signals();
  if (state.event == Event::kInterrupt) {
    line = narrow(state.given_up);
  } else if (text == nullptr || count <= 0) {
    if (state.event == Event::kLine) state.event = Event::kEnd;
    state.show("\n");
  } else {
    line = narrow({text, size_t(count)});
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  }
  return state.event;
}

int LineEditor::ended_by() const { return state_->ended_by; }

void LineEditor::remember(const std::string& text) {
  const std::wstring entry = wide(text);
  HistEventW result;
  ::history_w(state_->history, &result, H_ENTER, entry.c_str());
  state_->append_to_file(entry);
}

std::filesystem::path history_path() {
  const auto folder = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto state = folder("XDG_STATE_HOME"); state.is_absolute()) return state / "qgen" / "history";
  if (const auto home = folder("HOME"); home.is_absolute()) return home / ".local" / "state" / "qgen" / "history";
  return {};
}

}  // namespace qgen::cli
