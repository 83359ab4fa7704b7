#include "base/model_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"

namespace qgen {

bool ModelFiles::has(std::string_view name) const {
  if (!is_folder_) return texts_.contains(name);
  return is_there(place_ / name);
}

std::string ModelFiles::read(std::string_view name, size_t limit_bytes) const {
  if (is_folder_) return read_file(place_ / name, limit_bytes);
  const auto text = texts_.find(name);
  if (text == texts_.end()) fail(ErrorKind::kModel, fmt::format("{}: holds no {}", place(), name));
  std::string out = text->second();
  if (out.size() > limit_bytes) {
    fail(ErrorKind::kModel,
         fmt::format("{}: too large (expected at most {} bytes, found {})", subject(name), limit_bytes, out.size()));
  }
  return out;
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> out;
  for (const auto& [name, text] : texts_) out.push_back(name);
  std::error_code ignored;
  if (is_folder_) {
    for (const auto& entry : std::filesystem::directory_iterator(place_, ignored))
      out.push_back(entry.path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string ModelFiles::subject(std::string_view name) const {
  return is_folder_ ? (place_ / name).string() : fmt::format("{}: its keys as {}", place(), name);
}

}  // namespace qgen
