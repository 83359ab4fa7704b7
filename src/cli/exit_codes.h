// The program's exit codes; those of errors are their kinds (base/error.h).
#pragma once

#include <span>
#include <string_view>

namespace qgen::cli {

// The answer was cut short: the context ended it, or all of it was thinking.
constexpr int kExitCutShort = 6;

// For help and manual.
struct ExitCode {
  std::string_view code, meaning;
};
std::span<const ExitCode> exit_codes();

}  // namespace qgen::cli
