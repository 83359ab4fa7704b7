#include "generate/stop.h"

#include <algorithm>

namespace qgen {

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return "";
  held_ += text;
  // The earliest stop string wins; of several at one place the first given.
  size_t first = held_.npos;
  const std::string* match = nullptr;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at < first) {
      first = at;
      match = &stop;
    }
  }
  if (match != nullptr) {
    match_ = *match;
    std::string out = held_.substr(0, first);
    held_.clear();
    return out;
  }
  // Hold back the longest end that some stop string begins with.
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > hold; --length) {
      if (held_.compare(held_.size() - length, length, stop, 0, length) == 0) {
        hold = length;
        break;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, held_.size() - hold);
  return out;
}

std::string StopMatcher::finish() {
  std::string out;
  if (!stopped()) out.swap(held_);
  return out;
}

}  // namespace qgen
