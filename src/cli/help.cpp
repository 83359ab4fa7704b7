// What --help prints, made from the tables.
#include <algorithm>

#include <fmt/format.h>

#include "cli/command_line.h"
#include "engine/engine.h"
#include "model/families/table.h"
#include "quant/formats.h"

namespace qgen::cli {
namespace {

constexpr size_t kColumn = 30;
constexpr size_t kWidth = 120;

// "  -m, --model DIR            what it is", the description wrapped in its column.
std::string entry(const std::string& left, std::string_view description) {
  std::string out = "  " + left;
  if (out.size() >= kColumn) {
    out += "\n" + std::string(kColumn, ' ');
  } else {
    out.resize(kColumn, ' ');
  }
  while (description.size() > kWidth - kColumn) {
    const size_t cut = description.rfind(' ', kWidth - kColumn);
    out += fmt::format("{}\n{}", description.substr(0, cut), std::string(kColumn, ' '));
    description.remove_prefix(cut + 1);
  }
  return fmt::format("{}{}\n", out, description);
}

std::string option_entry(const Option& option) {
  std::string left;
  if (option.is_word()) {
    left = option.value;
  } else {
    left = option.short_name().empty() ? "    " : fmt::format("-{}, ", option.short_name());
    left += fmt::format("--{}", option.long_name());
    if (!option.value.empty())
      left += option.details.alone.empty() ? fmt::format(" {}", option.value) : fmt::format("[={}]", option.value);
  }
  return entry(left, fmt::format("{}{}", option.help, option.is_repeatable() ? " (repeatable)" : ""));
}

// Families and methods, from the tables themselves.
std::string supported() {
  std::string out = "\nFamilies:\n";
  for (const Family& family : families()) out += entry(std::string(family.name), family.examples);
  out += "\nDevices:\n";
  for (const EngineRow& engine : engines()) out += entry(std::string(engine.name), engine.summary);
  out += "\nMethods:\n";
  for (const Format& format : formats()) out += entry(std::string(format.name), format.summary);
  return out;
}

}  // namespace

std::string help_text(const Command& command, const std::vector<Option>& options) {
  const bool root = command.name.empty();
  std::string out =
      fmt::format("qgen{}{}: {}\n\n{}\n", root ? "" : " ", command.name, command.summary, command.examples);
  std::string words;
  std::vector<std::string_view> groups = {""};
  for (const Option& option : options) {
    if (option.is_word()) words += fmt::format(" [{}]", option.value);
    if (std::find(groups.begin(), groups.end(), option.details.group) == groups.end())
      groups.push_back(option.details.group);
  }
  out += root ? "Usage: qgen [OPTIONS]\n       qgen COMMAND [OPTIONS]\n"
              : fmt::format("Usage: qgen {} [OPTIONS]{}\n", command.name, words);
  if (root) {
    out += "\nCommands:\n";
    for (const Command& other : commands()) {
      if (!other.name.empty()) out += entry(std::string(other.name), other.summary);
    }
  }
  for (const std::string_view group : groups) {
    out += fmt::format("\n{}:\n", group.empty() ? "Options" : group);
    for (const Option& option : options) {
      if (option.details.group == group) out += option_entry(option);
    }
  }
  out += "\nAn environment variable stands in for each option that is not given: QGEN_MAX_TOKENS for --max-tokens.\n";
  return root ? out + supported() : out;
}

}  // namespace qgen::cli
