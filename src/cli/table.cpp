#include "cli/table.h"

#include <algorithm>

#include "base/utf8.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

// Columns on a terminal, taking every character for one.
size_t columns(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); text.remove_prefix(utf8_step(text).length)) ++count;
  return count;
}

// A name can hold a newline or a tab; a cell is part of one line.
std::string cell(const std::string& text) {
  std::string out = one_line(text);
  std::replace(out.begin(), out.end(), '\t', ' ');
  return out;
}

}  // namespace

std::string format_table(const std::vector<std::vector<std::string>>& texts, const std::vector<size_t>& right) {
  std::vector<std::vector<std::string>> rows = texts;
  for (auto& row : rows) {
    for (std::string& text : row) text = cell(text);
  }
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - columns(row[i]), ' ');
      const bool to_right = std::find(right.begin(), right.end(), i) != right.end();
      line += "  ";
      line += to_right ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace qgen::cli
