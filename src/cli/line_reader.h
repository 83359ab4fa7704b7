// Lines of standard input or a file, with an end to their length and errors that are not taken for the end.
#pragma once

#include <cstddef>
#include <string>

namespace qgen::cli {

class LineReader {
 public:
  // `source`: a file, or "-" for standard input. A usage Error if it cannot be opened or is a folder; `subject`
  // names it in errors.
  LineReader(const std::string& source, std::string subject);
  // The same, with lines of at most so many bytes: the rest of a longer one is left out.
  LineReader(const std::string& source, std::string subject, size_t most_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;

  // The next line without its newline; false at the end, and where a signal came. Throws an Error if reading
  // fails, or a line is longer than a text may be and not to be cut.
  bool next(std::string& line);
  // Whether next() would return without blocking: a line is buffered, the input has ended, or a signal has come.
  bool ready();
  // Whether the last line was longer than allowed, or than fits into memory; there is nothing of it then.
  bool cut() const { return cut_; }

 private:
  bool holds_line();
  void read_chunk();
  void append(const char* text, size_t size);

  std::string subject_;
  size_t most_bytes_;
  bool cuts_;
  int descriptor_ = 0;
  std::string chunk_;  // what was read last
  size_t at_ = 0;      // of it, behind what is in line_
  std::string line_;   // as far as it is known
  bool complete_ = false, too_long_ = false, cut_ = false, ended_ = false;
};

}  // namespace qgen::cli
