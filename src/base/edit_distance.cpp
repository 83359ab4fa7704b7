#include "base/edit_distance.h"

#include <algorithm>
#include <vector>

namespace qgen {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({diagonal + (a[i] != b[j]), above + 1, row[j] + 1});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace qgen
