// The command line as a whole: the table of commands with the options that all of them have, and its help.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/options.h"

namespace qgen::cli {

constexpr std::string_view kHelpNames = "-h,--help";
constexpr std::string_view kVersionNames = "-V,--version";

struct GlobalOptions {
  std::string color = "auto";
  bool version = false;
  bool help = false;
};

// A command's own options, then those of all commands.
Command::Bound bind_command(const Command& command, GlobalOptions& global);

// "qgen: " and the message, and the hint on a line of its own.
void report_error(const Error& error);

// The candidate that an unknown word was probably meant to be, or "".
std::string closest_word(std::string_view word, const std::vector<std::string>& candidates);

// What `--help` prints: examples first.
std::string help_text(const Command& command, const std::vector<Option>& options);

}  // namespace qgen::cli
