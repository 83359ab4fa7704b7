// The manual page, roff for man(1), made from the tables of commands and options.
#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/exit_codes.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

constexpr size_t kWidth = 72;  // of examples: man indents them

// Text that roff prints as it is.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  // A dot or quote that begins a line would be a request.
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string option_text(const Option& option) {
  std::string name;
  if (option.is_word()) {
    name = fmt::format("\\fI{}\\fR", roff(option.value));
  } else {
    if (!option.short_name().empty()) name = fmt::format("\\fB\\-{}\\fR, ", option.short_name());
    name += fmt::format("\\fB\\-\\-{}\\fR", roff(option.long_name()));
    if (!option.value.empty()) {
      name += option.details.alone.empty() ? fmt::format(" \\fI{}\\fR", roff(option.value))
                                           : fmt::format("[=\\fI{}\\fR]", roff(option.value));
    }
  }
  return fmt::format(".TP\n{}\n{}{}\n", name, roff(option.help),
                     option.is_repeatable() && !option.is_word() ? " (repeatable)" : "");
}

// Lines as they are, one below the other.
std::string example_text(std::string_view lines) {
  std::string out = ".nf\n";
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    out += roff(lines.substr(0, end)) + "\n";
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return out + ".fi\n";
}

int manual() {
  GlobalOptions unused;
  const Command& root = commands().front();
  std::string out = ".TH QGEN 1 \"\" \"qgen " QGEN_VERSION "\" \"User Commands\"\n";
  out += fmt::format(".SH NAME\nqgen \\- {}\n", roff(root.summary));
  out +=
      ".SH SYNOPSIS\n.B qgen\n\\-\\-model \\fIMODEL\\fR \\-\\-prompt \\fITEXT\\fR [\\fIOPTIONS\\fR]\n.br\n.B qgen\n"
      "\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n";
  out += ".SH EXAMPLES\n" + example_text(examples_text(root.examples, kWidth));
  out += ".SH OPTIONS\n";
  for (const Option& option : bind_command(root, unused).options) out += option_text(option);
  out += ".SH COMMANDS\n";
  for (const Command& command : commands()) {
    if (command.name.empty()) continue;
    out += fmt::format(".SS {}\n{}\n.PP\n{}", roff(command.name), roff(command.summary),
                       example_text(examples_text(command.examples, kWidth)));
    for (const Option& option : command.bind().options) out += option_text(option);
  }
  out +=
      ".SH ENVIRONMENT\nAn environment variable stands in for each option that is not given: \\fBQGEN_MAX_TOKENS\\fR "
      "for \\fB\\-\\-max\\-tokens\\fR. \\fBHF_HUB_CACHE\\fR, \\fBHF_HOME\\fR and \\fBXDG_CACHE_HOME\\fR say where the "
      "Hugging Face cache is. \\fBNO_COLOR\\fR turns color off.\n";
  out += ".SH EXIT STATUS\n";
  for (const ExitCode& code : exit_codes()) out += fmt::format(".TP\n.B {}\n{}\n", code.code, roff(code.meaning));
  write_stdout(out);
  return 0;
}

Command::Bound bind() { return {{}, manual}; }

constexpr Example kExamples[] = {{"qgen man | man -l -"}};

}  // namespace

const Command kManualCommand = {"man", "the manual page, as man(1) reads it", kExamples, bind};

}  // namespace qgen::cli
