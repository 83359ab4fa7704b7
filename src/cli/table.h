// Columns of text, each as wide as its widest cell.
#pragma once

#include <string>
#include <vector>

namespace qgen::cli {

// Lines indented by two spaces, cells two spaces apart. `right` names columns to align to the right.
std::string format_table(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& right = {});

}  // namespace qgen::cli
