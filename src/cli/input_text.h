// Text input: the sources of a prompt, and how files from other systems are cleaned up (byte order
// marks, line ends of other systems, bytes that are no UTF-8).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/options.h"
#include "cli/warnings.h"
#include "generate/conversation.h"

namespace qgen::cli {

struct InputOptions {
  std::string invalid_utf8 = "error";  // or "replace"
};
Option invalid_utf8_option(InputOptions& target);

// The text, if it is UTF-8; else with U+FFFD for what is not, or a usage Error that begins with `subject` and names the
// byte, as `options` say. `first_line`: the number of the text's first line, for the error.
std::string valid_text(std::string text, std::string_view subject, const InputOptions& options, int64_t first_line = 1);

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// A file's or a pipe's text: valid_text() without byte order mark. A usage Error for UTF-16.
std::string plain_text(std::string text, std::string_view subject, const InputOptions& options);

// The same as a prompt: with plain newlines, and without the one newline that ends it.
std::string prompt_text(std::string text, std::string_view subject, const InputOptions& options);

// Where a prompt may come from.
struct PromptSources {
  std::optional<std::string> prompt, file;  // --prompt and --file; "-" is standard input
  bool no_stdin = false;
  bool needed = true;  // whether there is nothing else to answer
};
// The prompt: file, standard input and --prompt, as far as given, with a blank line between. Standard input is read
// where it is asked for, where a prompt is needed and it is the only source and no terminal, and else where it is a
// pipe or a file at its beginning. A file that was read in part belongs to a shell loop and is left alone with a
// warning. A usage Error where there is no text; nothing where none is needed and there is no source. An empty --prompt
// is a text, with which the model begins by itself.
std::optional<std::string> gather_prompt(const PromptSources& sources, const InputOptions& options, Warnings& warnings);

// The text of a command that works on texts, byte for byte but for a byte order mark and one newline at its end: a
// file, standard input for
// "-", and that too where nothing is named and it is no terminal. A usage Error that begins with the command's name if
// there is none.
std::string read_text(const std::string& input, std::string_view command, const InputOptions& options);
// The same as prompt_text().
std::string read_prompt(const std::string& input, std::string_view command, const InputOptions& options);

// A conversation: parse_conversation() of valid_text().
Conversation read_talk(const std::string& file, const InputOptions& options);
Conversation read_talk_from_stdin(const InputOptions& options);

}  // namespace qgen::cli
