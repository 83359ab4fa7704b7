#include "base/replacement.h"

#include <cerrno>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnerOnly = 0600;
constexpr int kMostTries = 100;  // to find an unused name

std::string name_of_descriptor(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

}  // namespace

Replacement::Replacement(fs::path target) : target_(std::move(target)) {
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  descriptor_ = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kOwnerOnly);
  if (descriptor_ >= 0 && ::access(name_of_descriptor(descriptor_).c_str(), F_OK) == 0) return;
  if (descriptor_ >= 0) ::close(descriptor_);
  for (int i = 0; i < kMostTries; ++i) {
    temporary_ = free_name();
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerOnly);
    if (descriptor_ >= 0) return;
    if (errno != EEXIST) break;
  }
  fail_write();
}

Replacement::~Replacement() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

// Short, whatever the target is called, and hidden.
fs::path Replacement::free_name() const {
  std::random_device random;
  return target_.parent_path() / fmt::format(".qgen-{:08x}{:08x}", random(), random());
}

void Replacement::fail_write() const {
  fail(ErrorKind::kRuntime, fmt::format("{}: cannot write: {}", target_.string(), std::strerror(errno)));
}

void Replacement::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_write();
    text.remove_prefix(size_t(written));
  }
}

void Replacement::keep() {
  if (::fsync(descriptor_) != 0) fail_write();
  if (temporary_.empty()) {
    // The file gets a temporary name just before it is renamed; where there is no file to replace it gets its own at
    // once.
    const auto link = [&](const fs::path& name) {
      return ::linkat(AT_FDCWD, name_of_descriptor(descriptor_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) ==
             0;
    };
    if (link(target_)) return;
    for (int i = 0; i < kMostTries && errno == EEXIST; ++i) {
      const fs::path name = free_name();
      if (!link(name)) continue;
      temporary_ = name;
      break;
    }
    if (temporary_.empty()) fail_write();
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_write();
  temporary_.clear();
}

}  // namespace qgen
