// Warnings of a run: lines on standard error, except with --quiet or --stats=json; the report's JSON has all of them.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace qgen::cli {

class Warnings {
 public:
  explicit Warnings(const ReportOptions& options) : shown_(!options.quiet && options.stats != "json") {}

  // Nothing for an empty text.
  void add(std::string text);
  const std::vector<std::string>& all() const { return all_; }

 private:
  bool shown_;
  std::vector<std::string> all_;
};

}  // namespace qgen::cli
