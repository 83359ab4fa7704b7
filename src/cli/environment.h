// Options that came from their environment twins, so that errors name what a user can change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qgen::cli {

struct FromEnvironment {
  std::string option;    // "--top-p"
  std::string variable;  // "QGEN_TOP_P"
  std::string value;
};

// Options of this run that came from the environment, for with_variable().
void note_variables(std::vector<FromEnvironment> options);
// A warning that begins with an option, with the variable in its place if it came from one.
std::string with_variable(std::string warning);

// An error's message with the variables in place of their options, and before a value that it begins with.
std::string name_variables(std::string message, const std::vector<FromEnvironment>& options);

}  // namespace qgen::cli
