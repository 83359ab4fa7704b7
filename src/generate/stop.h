// Stop strings: text is released as soon as it cannot be the beginning of one.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qgen {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) { std::erase(stops_, ""); }

  // Adds text and returns what may be shown. Once a stop string is complete, stopped() is true, the text before
  // it has been returned, and the rest is dropped.
  std::string push(std::string_view text);
  // The end: what was held back turned out not to be a stop string.
  std::string finish();
  bool stopped() const { return !match_.empty(); }
  const std::string& match() const { return match_; }  // the stop string that was met

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string match_;
};

}  // namespace qgen
