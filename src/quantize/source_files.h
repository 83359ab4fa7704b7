// The files that a run of `qgen quantize` reads: never written, and the same from its beginning to its end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "quantize/source.h"

namespace qgen::quantize {

class SourceFiles {
 public:
  // The model's, and the file of statistics where there is one.
  SourceFiles(const Source& source, const std::filesystem::path& statistics);

  // Whether a path, behind links, is one of them.
  bool contains(const std::filesystem::path& path) const;
  // A usage Error where it is.
  void refuse(const std::filesystem::path& target) const;

  // Weights, config.json and statistics by their path behind links: size and time of the last change, as JSON.
  const std::map<std::string, std::string>& states() const { return states_; }
  // A model Error where one of them has another size or time by now, or is gone.
  void check_unchanged() const;

 private:
  std::set<std::pair<uint64_t, uint64_t>> files_;  // devices and numbers there
  std::map<std::string, std::string> states_;
};

}  // namespace qgen::quantize
