#include "cli/line_reader.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

constexpr size_t kChunkBytes = 1 << 16;

}  // namespace

LineReader::LineReader(const std::string& source, std::string subject)
    : LineReader(source, std::move(subject), kMaxTextBytes) {
  cuts_ = false;
}

LineReader::LineReader(const std::string& source, std::string subject, size_t most_bytes)
    : subject_(std::move(subject)), most_bytes_(most_bytes), cuts_(true) {
  if (source == "-") {
    descriptor_ = STDIN_FILENO;
    return;
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(source, ignored))
    fail(ErrorKind::kUsage, fmt::format("{}: is a folder (expected a file of lines)", subject_));
  descriptor_ = ::open(source.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    const int error = errno;
    fail(ErrorKind::kUsage, fmt::format("{}: cannot open: {}", subject_, std::strerror(error)),
         error == ENOENT ? "is the path right?" : "");
  }
}

LineReader::~LineReader() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

void LineReader::append(const char* text, size_t size) {
  if (too_long_) return;
  try {
    too_long_ = size > most_bytes_ - line_.size();
    if (!too_long_) line_.append(text, size);
  } catch (const std::bad_alloc&) {
    too_long_ = true;
  }
  if (!too_long_) return;
  if (!cuts_)
    fail(ErrorKind::kUsage, fmt::format("{}: a line is too long (expected at most {} bytes)", subject_, most_bytes_));
  line_ = std::string();
}

// Takes from the chunk what belongs to the line; whether that is all of it.
bool LineReader::holds_line() {
  if (complete_ || at_ == chunk_.size()) return complete_;
  const char* const begin = chunk_.data() + at_;
  const size_t rest = chunk_.size() - at_;
  const void* const newline = std::memchr(begin, '\n', rest);
  const size_t size = newline == nullptr ? rest : size_t(static_cast<const char*>(newline) - begin);
  append(begin, size);
  complete_ = newline != nullptr;
  at_ += size + complete_;
  return complete_;
}

void LineReader::read_chunk() {
  chunk_.resize(kChunkBytes);
  at_ = 0;
  ssize_t count;
  do {
    count = ::read(descriptor_, chunk_.data(), kChunkBytes);
    if (count < 0 && errno == EAGAIN) {  // a pipe that does not block: the next line takes its time
      pollfd wait{descriptor_, POLLIN, 0};
      if (::poll(&wait, 1, -1) < 0 && errno != EINTR) break;
      errno = EINTR;
    }
  } while (count < 0 && errno == EINTR && noted_signal() == 0);
  const int problem = errno;
  chunk_.resize(count > 0 ? size_t(count) : 0);
  ended_ = count <= 0;
  if (count < 0 && noted_signal() == 0)
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot read: {}", subject_, std::strerror(problem)));
}

bool LineReader::ready() {
  while (!holds_line() && !ended_) {
    pollfd wait{descriptor_, POLLIN, 0};
    if (::poll(&wait, 1, 0) <= 0) return false;
    read_chunk();
  }
  return true;
}

bool LineReader::next(std::string& line) {
  while (!holds_line() && !ended_) read_chunk();
  cut_ = too_long_;
  const bool found = complete_ || ((!line_.empty() || cut_) && noted_signal() == 0);
  line.swap(line_);
  line_.clear();
  complete_ = too_long_ = false;
  return found;
}

}  // namespace qgen::cli
