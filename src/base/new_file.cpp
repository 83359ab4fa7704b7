#include "base/new_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".qgen-";
constexpr size_t kTemporaryDigits = 16;
constexpr int kMostTries = 100;  // to find an unused name
constexpr int kMostLinks = 40;   // as Linux follows

std::string name_of_descriptor(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

// The file that a name stands for, behind symbolic links, which stay. A pipe or a device is never replaced.
fs::path file_behind(fs::path target) {
  std::error_code error;
  // The system looks behind /dev/stdout, whose link in /proc names no file.
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: a pipe or a device (expected a file)", target.string()));
  }
  for (int i = 0; i < kMostLinks && fs::is_symlink(target, error); ++i) {
    const fs::path next = fs::read_symlink(target, error);
    if (error) break;
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return target;
}

}  // namespace

NewFile::NewFile(fs::path target, Readers readers, uint64_t size) : target_(file_behind(std::move(target))) {
  open(readers);
  if (size == 0) return;
  // Not posix_fallocate(), which writes the file where the file system cannot reserve room.
  const int error = ::fallocate(descriptor_, 0, 0, off_t(size)) == 0 ? 0 : errno;
  if (error != 0 && error != EOPNOTSUPP && error != ENOSYS && error != EINVAL) {
    ::close(descriptor_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    fail_writing(target_, error);
  }
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::open(Readers readers) {
  const mode_t mode = readers == Readers::kOwner ? 0600 : 0666;
  descriptor_ = ::open(folder_of(target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (descriptor_ >= 0 && ::access(name_of_descriptor(descriptor_).c_str(), F_OK) == 0) return;
  if (descriptor_ >= 0) ::close(descriptor_);
  for (int i = 0; i < kMostTries; ++i) {
    temporary_ = free_name();
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ >= 0) return;
    if (errno != EEXIST) break;
  }
  fail_writing(target_, errno);
}

// Short, whatever the target is called, and hidden.
fs::path NewFile::free_name() const {
  std::random_device random;
  return target_.parent_path() / fmt::format("{}{:08x}{:08x}", kTemporary, random(), random());
}

void NewFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  write_at(descriptor_, offset, bytes, target_);
}

fs::path NewFile::readable() const { return name_of_descriptor(descriptor_); }

void NewFile::keep(Existing existing) {
  if (::fsync(descriptor_) != 0) fail_writing(target_, errno);
  if (temporary_.empty()) {
    // The file gets a temporary name just before it is renamed; where there is no file to replace it gets its own at
    // once.
    const auto link = [&](const fs::path& name) {
      return ::linkat(AT_FDCWD, name_of_descriptor(descriptor_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) ==
             0;
    };
    if (link(target_)) return sync_folder(folder_of(target_));
    for (int i = 0; existing == Existing::kReplace && i < kMostTries && errno == EEXIST; ++i) {
      const fs::path name = free_name();
      if (!link(name)) continue;
      temporary_ = name;
      break;
    }
    if (temporary_.empty()) fail_writing(target_, errno);
  }
  const int renamed = existing == Existing::kReplace
                          ? ::rename(temporary_.c_str(), target_.c_str())
                          : ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
  if (renamed != 0) fail_writing(target_, errno);
  temporary_.clear();
  sync_folder(folder_of(target_));
}

void write_at(int descriptor, uint64_t offset, std::span<const std::byte> bytes, const fs::path& target) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor, bytes.data(), bytes.size(), off_t(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_writing(target, written < 0 ? errno : EIO);
    offset += uint64_t(written);
    bytes = bytes.subspan(size_t(written));
  }
}

void fail_writing(const fs::path& target, int error) {
  fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", target.string(), std::strerror(error)),
       error == ENOSPC ? "free some space" : "");
}

bool is_temporary_name(std::string_view name) {
  return name.starts_with(kTemporary) && name.size() == kTemporary.size() + kTemporaryDigits &&
         name.find_first_not_of("0123456789abcdef", kTemporary.size()) == name.npos;
}

void refuse_existing(std::string_view option, const fs::path& target) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(target, error))) return;
  fail(ErrorKind::kUsage, fmt::format("{} {}: is there already", option, target.string()), "another name, or --force");
}

bool holds_other(const fs::path& target, const std::function<void(const fs::path&)>& read) {
  std::error_code error;
  if (!fs::exists(target, error) || fs::file_size(target, error) == 0 || error) return false;
  try {
    read(target);
  } catch (const Error&) {
    return true;
  }
  return false;
}

void write_new_file(const fs::path& target, std::string_view text, NewFile::Readers readers) {
  NewFile file(target, readers);
  file.write(0, std::as_bytes(std::span(text)));
  file.keep();
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace qgen
