// Lines of standard input or a file, with an end to their length and errors that are not taken for the end.
#pragma once

#include <fstream>
#include <string>

namespace qgen::cli {

class LineReader {
 public:
  // `source`: a file, or "-" for standard input. A usage Error if it cannot be opened or is a folder; `subject`
  // names it in errors.
  LineReader(const std::string& source, std::string subject);

  // The next line without its newline; false at the end, and where a signal came. Throws an Error if reading
  // fails or the line is longer than a text may be.
  bool next(std::string& line);

 private:
  std::string subject_;
  std::ifstream file_;
  std::streambuf* buffer_;
};

}  // namespace qgen::cli
