#include "cli/input_text.h"

#include <algorithm>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/utf8.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

constexpr std::string_view kStdin = "standard input";
constexpr size_t kMaxTalkBytes = size_t{256} << 20;

enum class StdinKind { kNothing, kReadable, kFileUnderWay };

// The state of standard input, where a prompt is given as well.
StdinKind stdin_kind() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0) return StdinKind::kNothing;
  if (S_ISFIFO(status.st_mode)) return StdinKind::kReadable;
  if (!S_ISREG(status.st_mode)) return StdinKind::kNothing;
  const off_t position = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
  if (position <= 0) return StdinKind::kReadable;
  return position < status.st_size ? StdinKind::kFileUnderWay : StdinKind::kNothing;
}

// The contents of the file that a command's argument names, and its name in errors.
std::pair<std::string, std::string> read_bytes(const std::string& input, std::string_view command) {
  if (input.empty() && stdin_is_terminal())
    fail(ErrorKind::kUsage, fmt::format("{}: no text", command), "name a file, or - for standard input");
  if (input.empty() || input == "-") return {read_stdin(), std::string(kStdin)};
  if (std::error_code ignored;
      std::filesystem::symlink_status(input, ignored).type() == std::filesystem::file_type::not_found) {
    fail(ErrorKind::kUsage, fmt::format("{}: no such file", input),
         fmt::format("text itself goes through standard input: echo TEXT | qgen {} …", command));
  }
  return {read_file(input, kMaxTextBytes, ErrorKind::kUsage), input};
}

}  // namespace

Option invalid_utf8_option(InputOptions& target) {
  return {
      "--invalid-utf8",
      &target.invalid_utf8,
      "HOW",
      "what to do with text that is not UTF-8: error (name the byte and stop), or replace (put U+FFFD in its place) "
      "[error]",
      {.choices = "error,replace"}};
}

std::string valid_text(std::string text, std::string_view subject, const InputOptions& options, int64_t first_line) {
  if (is_utf8(text)) return text;
  if (options.invalid_utf8 == "replace") return replace_invalid_utf8(text);
  size_t at = 0;
  for (Utf8Step step; (step = utf8_step(std::string_view(text).substr(at))).valid;) at += size_t(step.length);
  const auto line = first_line + std::count(text.begin(), text.begin() + ptrdiff_t(at), '\n');
  fail(ErrorKind::kUsage,
       fmt::format("{}: not UTF-8 (found the byte 0x{:02X} at offset {}, line {})", subject, uint8_t(text[at]), at,
                   line),
       "--invalid-utf8 replace puts U+FFFD in its place; iconv converts other encodings");
}

std::string plain_text(std::string text, std::string_view subject, const InputOptions& options) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    fail(ErrorKind::kUsage, fmt::format("{}: UTF-16 (expected UTF-8)", subject),
         "iconv -f utf-16 -t utf-8 converts it");
  }
  text = valid_text(std::move(text), subject, options);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

std::string prompt_text(std::string text, std::string_view subject, const InputOptions& options) {
  text = plain_text(std::move(text), subject, options);
  if (text.find('\r') != text.npos) {
    std::string plain;
    plain.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') plain += text[i];
    }
    text = std::move(plain);
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::optional<std::string> gather_prompt(const PromptSources& sources, const InputOptions& options,
                                         Warnings& warnings) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!text.empty() && !part.empty()) text += "\n\n";
    text += part;
  };
  const bool dash = sources.prompt == "-" || sources.file == "-";
  const bool typed = sources.prompt && sources.prompt != "-";
  if (sources.file && sources.file != "-")
    add(prompt_text(read_file(*sources.file, kMaxTextBytes, ErrorKind::kUsage), *sources.file, options));
  bool read = dash, has_source = sources.file || dash;
  if (!dash && !sources.no_stdin) {
    const bool alone = sources.needed && !sources.prompt && !sources.file;
    const StdinKind kind = stdin_kind();
    read = alone ? !stdin_is_terminal() : kind == StdinKind::kReadable;
    has_source = has_source || kind == StdinKind::kReadable;
    if (!alone && kind == StdinKind::kFileUnderWay) {
      warnings.add(
          "standard input is a file that another program has begun to read, so it is left alone (in loops: "
          "--no-stdin)");
    }
  }
  if (read) add(prompt_text(read_stdin(), kStdin, options));
  if (typed) add(valid_text(*sources.prompt, "--prompt", options));
  if (!text.empty() || typed) return text;
  if (!sources.needed && !has_source) return {};
  fail(ErrorKind::kUsage, "no prompt",
       "--prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples");
}

std::string read_text(const std::string& input, std::string_view command, const InputOptions& options) {
  const auto [bytes, subject] = read_bytes(input, command);
  std::string text = plain_text(bytes, subject, options);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string read_prompt(const std::string& input, std::string_view command, const InputOptions& options) {
  const auto [text, subject] = read_bytes(input, command);
  return prompt_text(text, subject, options);
}

Conversation read_talk(const std::string& file, const InputOptions& options) {
  return parse_conversation(valid_text(read_file(file, kMaxTalkBytes, ErrorKind::kUsage), file, options), file);
}

Conversation read_talk_from_stdin(const InputOptions& options) {
  const std::string subject(kStdin);
  return parse_conversation(valid_text(read_stdin(kMaxTalkBytes), subject, options), subject);
}

}  // namespace qgen::cli
