// --done: which lines of a batch an earlier run has answered.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace qgen::cli {

class DoneLines {
 public:
  // Nothing is done.
  DoneLines() = default;
  // From the output of an earlier run, in either form. Errors and interrupted answers are not done; neither is a last
  // line that was not finished. A file that is not there holds none. A usage Error for anything else, also for halves
  // of lines between others.
  static DoneLines read(const std::string& file);

  // Whether the line with this id (JSON text) is done; each answer stands for one line.
  bool take(const std::string& id, int64_t line);
  // Whether the last line is a whole one that lacks its end, or half a one; what comes before is whole_bytes() long.
  bool lacks_end() const { return torn_ && !half_; }
  bool ends_in_half() const { return half_; }
  int64_t whole_bytes() const { return whole_bytes_; }
  bool missing() const { return missing_; }

 private:
  std::unordered_map<std::string, int64_t> ids_;  // how many answers have this id
  std::unordered_set<int64_t> lines_;             // of answers without an id
  bool torn_ = false, half_ = false;
  int64_t whole_bytes_ = 0;
  bool missing_ = false;
};

}  // namespace qgen::cli
