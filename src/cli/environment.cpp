#include "cli/environment.h"

#include <cctype>

namespace qgen::cli {

std::string name_variables(std::string message, const std::vector<FromEnvironment>& options) {
  for (const FromEnvironment& option : options) {
    for (size_t at = message.find(option.option); at != std::string::npos; at = message.find(option.option, at)) {
      const size_t end = at + option.option.size();
      // "--top-p" is no part of "--top-p-of".
      const bool whole = (at == 0 || message[at - 1] != '-') &&
                         (end == message.size() ||
                          (message[end] != '-' && std::isalnum(static_cast<unsigned char>(message[end])) == 0));
      if (!whole) {
        at = end;
        continue;
      }
      message.replace(at, option.option.size(), option.variable);
      at += option.variable.size();
    }
    if (!option.value.empty() && message.starts_with(option.value + ":")) message.insert(0, option.variable + "=");
  }
  return message;
}

}  // namespace qgen::cli
