#include "cli/warnings.h"

#include "cli/environment.h"
#include "cli/terminal.h"

namespace qgen::cli {

void Warnings::add(std::string text) {
  if (text.empty()) return;
  text = with_variable(std::move(text));
  if (shown_) warn(text);
  all_.push_back(std::move(text));
}

}  // namespace qgen::cli
