#include "cli/text_width.h"

#include <algorithm>

#include <utf8proc.h>

#include "base/utf8.h"

namespace qgen::cli {

size_t columns_of(uint32_t code_point) {
  return size_t(std::max(0, ::utf8proc_charwidth(static_cast<utf8proc_int32_t>(code_point))));
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    columns += columns_of(step.code_point);
    text.remove_prefix(size_t(step.length));
  }
  return columns;
}

std::string shortened(std::string_view text, size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  std::string out;
  size_t used = 1;  // the ellipsis
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    used += columns_of(step.code_point);
    if (used > columns) break;
    out += text.substr(0, size_t(step.length));
    text.remove_prefix(size_t(step.length));
  }
  return out + "…";
}

}  // namespace qgen::cli
