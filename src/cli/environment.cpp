#include "cli/environment.h"

#include <cctype>
#include <utility>

namespace qgen::cli {
namespace {

std::vector<FromEnvironment> noted;

}  // namespace

void note_variables(std::vector<FromEnvironment> options) { noted = std::move(options); }

std::string with_variable(std::string warning) {
  for (const FromEnvironment& option : noted) {
    const size_t end = option.option.size();
    if (warning.starts_with(option.option) && (warning.size() == end || warning[end] == ' ' || warning[end] == ':'))
      return option.variable + warning.substr(end);
  }
  return warning;
}

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
