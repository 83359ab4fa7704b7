// The text of --help, made from the tables.
#include <algorithm>

#include <fmt/format.h>

#include "cli/command_line.h"
#include "cli/exit_codes.h"
#include "cli/terminal.h"
#include "cli/text_width.h"
#include "engine/engine.h"
#include "model/families/table.h"
#include "quant/formats.h"

namespace qgen::cli {
namespace {

constexpr size_t kUsualWidth = 80, kLeastWidth = 40, kMostWidth = 120;
constexpr size_t kColumn = 28;       // where descriptions begin
constexpr size_t kNarrowColumn = 8;  // on terminals too narrow for two columns
constexpr size_t kGap = 2;

// The text in lines that begin at `column` and end before `width`; the first one's beginning is there already.
std::string wrapped(std::string_view text, size_t column, size_t width) {
  std::string out;
  size_t used = column;
  bool first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const size_t columns = columns_of(word);
    if (!first && used + 1 + columns > width) {
      out += "\n" + std::string(column, ' ');
      used = column;
    } else if (!first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += columns;
    first = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + "\n";
}

// "  -m, --model DIR            what it is", the description wrapped in its column.
std::string entry(const std::string& left, std::string_view description, size_t width) {
  const size_t column = width < 60 ? kNarrowColumn : kColumn;
  std::string out = "  " + left;
  if (columns_of(out) + kGap > column) {
    out += "\n" + std::string(column, ' ');
  } else {
    out += std::string(column - columns_of(out), ' ');
  }
  return out + wrapped(description, column, width);
}

std::string option_entry(const Option& option, size_t width) {
  std::string left;
  if (option.is_word()) {
    left = option.value;
  } else {
    left = option.short_name().empty() ? "    " : fmt::format("-{}, ", option.short_name());
    left += fmt::format("--{}", option.long_name());
    if (!option.value.empty())
      left += option.details.alone.empty() ? fmt::format(" {}", option.value) : fmt::format("[={}]", option.value);
  }
  return entry(left,
               fmt::format("{}{}", option.help, option.is_repeatable() && !option.is_word() ? " (repeatable)" : ""),
               width);
}

// Families and methods, from the tables themselves.
std::string supported(size_t width) {
  std::string out = "\nFamilies:\n";
  for (const Family& family : families()) out += entry(std::string(family.name), family.examples, width);
  out += "\nDevices:\n";
  for (const EngineRow& engine : engines()) out += entry(std::string(engine.name), engine.summary, width);
  out += "\nMethods:\n";
  for (const Format& format : formats()) out += entry(std::string(format.name), format.summary, width);
  return out;
}

// The positional arguments of a usage line.
std::string words_of(const std::vector<Option>& options) {
  std::string out;
  for (const Option& option : options) {
    if (option.is_word()) out += fmt::format(" {}", option.value);
  }
  return out;
}

}  // namespace

std::string examples_text(std::span<const Example> examples, size_t width) {
  size_t commands = 0, purposes = 0;
  for (const Example& example : examples) {
    commands = std::max(commands, columns_of(example.command));
    purposes = std::max(purposes, columns_of(example.purpose));
  }
  const bool beside = 2 + commands + kGap + purposes <= width;
  std::string out;
  for (const Example& example : examples) {
    out += fmt::format("  {}", example.command);
    if (example.purpose.empty()) {
      out += '\n';
    } else if (beside) {
      out += std::string(commands + kGap - columns_of(example.command), ' ') + fmt::format("{}\n", example.purpose);
    } else {
      out += "\n" + std::string(6, ' ') + wrapped(example.purpose, 6, width);
    }
  }
  return out;
}

size_t help_width() {
  const int columns = stdout_columns();
  return columns > 0 ? std::clamp(size_t(columns), kLeastWidth, kMostWidth) : kUsualWidth;
}

std::string help_text(const Command& command, const std::vector<Option>& options, size_t width) {
  const bool root = command.name.empty();
  std::string out = wrapped(fmt::format("qgen{}{}: {}", root ? "" : " ", command.name, command.summary), 0, width);
  out += "\n" + examples_text(command.examples, width) + "\n";
  std::vector<std::string_view> groups = {""};
  for (const Option& option : options) {
    if (std::find(groups.begin(), groups.end(), option.details.group) == groups.end())
      groups.push_back(option.details.group);
  }
  out += root ? fmt::format("Usage: qgen [OPTIONS]{}\n       qgen COMMAND [OPTIONS]\n", words_of(options))
              : fmt::format("Usage: qgen {} [OPTIONS]{}\n", command.name, words_of(options));
  if (root) {
    out += "\nCommands:\n";
    for (const Command& other : commands()) {
      if (!other.name.empty()) out += entry(std::string(other.name), other.summary, width);
    }
  }
  for (const std::string_view group : groups) {
    out += fmt::format("\n{}:\n", group.empty() ? "Options" : group);
    for (const Option& option : options) {
      if (option.details.group == group) out += option_entry(option, width);
    }
  }
  out += "\n" + wrapped(
                    "An environment variable stands in for each option that is not given: QGEN_MAX_TOKENS for "
                    "--max-tokens.",
                    0, width);
  if (root) {
    out += "\nExit codes:\n";
    for (const ExitCode& code : exit_codes()) out += entry(std::string(code.code), code.meaning, width);
    out += supported(width);
  }
  return out;
}

std::string short_help() {
  const auto examples = commands().front().examples;
  std::string out = fmt::format("qgen: {}\n\n", commands().front().summary);
  constexpr size_t kLines = 10, kOthers = 5;  // lines that are no examples
  out += examples_text(examples.first(std::min(examples.size(), kLines - kOthers)), kUsualWidth);
  out += "\nA MODEL is a folder, a .gguf file, or org/name in the Hugging Face cache.\n";
  return out + "`qgen --help` lists options and commands, `qgen models` what can be run.\n";
}

}  // namespace qgen::cli
