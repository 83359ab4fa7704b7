#include "base/new_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_file(const fs::path& path, int error) {
  fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", path.string(), std::strerror(error)),
       error == ENOSPC ? "free some space, then go on" : "");
}

// A rename is on the disk once its folder is.
void sync_folder(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

NewFile::NewFile(fs::path path, uint64_t size) : path_(std::move(path)), partial_(path_.string() + ".partial") {
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) fail_file(path_, errno);
  if (size == 0) return;
  // Not posix_fallocate(), which writes the file where the file system cannot reserve room.
  const int error = ::fallocate(descriptor_, 0, 0, off_t(size)) == 0 ? 0 : errno;
  if (error != 0 && error != EOPNOTSUPP && error != ENOSYS && error != EINVAL) {
    ::close(descriptor_);
    ::unlink(partial_.c_str());
    fail_file(path_, error);
  }
}

NewFile::~NewFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void NewFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), off_t(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_file(path_, written < 0 ? errno : EIO);
    offset += uint64_t(written);
    bytes = bytes.subspan(size_t(written));
  }
}

void NewFile::keep() {
  if (::fsync(descriptor_) != 0) fail_file(path_, errno);
  const int closing = std::exchange(descriptor_, -1);
  if (::close(closing) != 0 || ::rename(partial_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(partial_.c_str());
    fail_file(path_, error);
  }
  sync_folder(path_);
}

void write_new_file(const fs::path& path, std::string_view text) {
  NewFile file(path, 0);
  file.write(0, std::as_bytes(std::span(text)));
  file.keep();
}

}  // namespace qgen
