#include "cli/line_reader.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/terminal.h"

namespace qgen::cli {

LineReader::LineReader(const std::string& source, std::string subject)
    : LineReader(source, std::move(subject), kMaxTextBytes) {
  cuts_ = false;
}

LineReader::LineReader(const std::string& source, std::string subject, size_t most_bytes)
    : subject_(std::move(subject)), most_bytes_(most_bytes), cuts_(true), buffer_(std::cin.rdbuf()) {
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
  cut_ = false;
  const auto add = [&](char c) {
    try {
      line += c;
      cut_ = line.size() > most_bytes_;
    } catch (const std::bad_alloc&) {
      cut_ = true;
    }
    if (!cut_) return;
    if (!cuts_)
      fail(ErrorKind::kUsage, fmt::format("{}: a line is too long (expected at most {} bytes)", subject_, most_bytes_));
    line = std::string();
  };
  try {
    for (int c; (c = buffer_->sbumpc()) != EOF;) {
      if (c == '\n') return true;
      if (!cut_) add(char(c));
    }
  } catch (const std::ios_base::failure& error) {
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot read: {}", subject_, error.what()));
  }
  if (noted_signal() != 0) return false;
  if (buffer_ == std::cin.rdbuf() && std::ferror(stdin) != 0)
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot read", subject_));
  return !line.empty() || cut_;
}

}  // namespace qgen::cli
