#include "cli/warnings.h"

#include "cli/terminal.h"

namespace qgen::cli {

void Warnings::add(std::string text) {
  if (text.empty()) return;
  if (shown_) warn(text);
  all_.push_back(std::move(text));
}

}  // namespace qgen::cli
