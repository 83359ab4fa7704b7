// The files of the model that is quantized, which are never written.
#pragma once

#include <filesystem>
#include <set>
#include <utility>

#include "quantize/source.h"

namespace qgen::quantize {

class SourceFiles {
 public:
  explicit SourceFiles(const Source& source);

  // Whether a path, behind links, is one of them.
  bool contains(const std::filesystem::path& path) const;
  // A usage Error where it is.
  void refuse(const std::filesystem::path& target) const;

 private:
  std::set<std::pair<uint64_t, uint64_t>> files_;  // devices and numbers there
};

}  // namespace qgen::quantize
