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

// The candidate that an unknown word was probably meant to be, or "". `most`: how many letters may differ, 0 for as
// many as suit the word's length.
std::string closest_word(std::string_view word, const std::vector<std::string>& candidates, size_t most = 0);

// What `--help` prints, examples first, in lines of at most `width` columns.
std::string help_text(const Command& command, const std::vector<Option>& options, size_t width);
// As wide as the terminal on standard output, within reason; 80 where it is none.
size_t help_width();
// Ten lines of help for a call without arguments.
std::string short_help();
// Commands, each with its purpose beside it, or below where that does not fit, in lines of at most `width` columns.
std::string examples_text(std::span<const Example> examples, size_t width);

}  // namespace qgen::cli
