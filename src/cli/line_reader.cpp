#include "cli/line_reader.h"

#include <cstdio>
#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/terminal.h"
#include "generate/loader.h"

namespace qgen::cli {

LineReader::LineReader(const std::string& source, std::string subject)
    : subject_(std::move(subject)), buffer_(std::cin.rdbuf()) {
  if (source == "-") return;
  std::error_code ignored;
  if (std::filesystem::is_directory(source, ignored))
    fail(ErrorKind::kUsage, fmt::format("{}: is a folder (expected a file of lines)", subject_));
  file_.open(source);
  if (!file_) fail(ErrorKind::kUsage, fmt::format("{}: cannot open", subject_), "is the path right?");
  buffer_ = file_.rdbuf();
}

bool LineReader::next(std::string& line) {
  line.clear();
  try {
    for (int c; (c = buffer_->sbumpc()) != EOF;) {
      if (c == '\n') return true;
      line += char(c);
      if (line.size() > kMaxTextBytes) {
        fail(ErrorKind::kUsage,
             fmt::format("{}: a line is too long (expected at most {} bytes)", subject_, kMaxTextBytes));
      }
    }
  } catch (const std::ios_base::failure& error) {
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot read: {}", subject_, error.what()));
  }
  if (noted_signal() != 0) return false;
  if (buffer_ == std::cin.rdbuf() && std::ferror(stdin) != 0)
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot read", subject_));
  return !line.empty();
}

}  // namespace qgen::cli
