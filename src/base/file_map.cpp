#include "base/file_map.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"

namespace qgen {
namespace {

std::atomic<size_t> mapped_bytes{0};

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kModel)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (kind == ErrorKind::kModel ? O_NONBLOCK : 0))) {
    if (fd_ >= 0) return;
    const int problem = errno;
    std::error_code ignored;
    const bool dangling = problem == ENOENT && std::filesystem::is_symlink(path, ignored);
    fail(kind, fmt::format("{}: cannot open: {}", path.string(),
                           dangling ? "a link to a file that is missing" : std::strerror(problem)));
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

  // The size in bytes of a regular file; nothing for all else.
  std::optional<size_t> size() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) return {};
    return static_cast<size_t>(status.st_size);
  }
  size_t regular_size(const std::filesystem::path& path) const {
    const auto bytes = size();
    if (!bytes) fail(ErrorKind::kModel, fmt::format("{}: not a regular file", path.string()));
    return *bytes;
  }

 private:
  int fd_;
};

}  // namespace

FileMap::FileMap(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(path);
  size_ = file.regular_size(path);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {
    const bool no_room = errno == ENOMEM;
    fail(no_room ? ErrorKind::kMemory : ErrorKind::kModel,
         fmt::format("{}: cannot map {} bytes: {}", path.string(), size_, std::strerror(errno)),
         no_room ? "a limit on addresses (ulimit -v) is too low for the file" : "");
  }
  // A file system that can (ext4 since Linux 6.16, XFS, Btrfs) then reads the file into large pages, however many
  // threads ask for it in whatever order. What the cache holds in small ones stays so.
  ::madvise(address, size_, MADV_HUGEPAGE);
  data_ = static_cast<const std::byte*>(address);
  mapped_bytes += size_;
}

FileMap::~FileMap() {
  if (data_ == nullptr) return;
  ::munmap(const_cast<std::byte*>(data_), size_);
  mapped_bytes -= size_;
}

FileMap::FileMap(FileMap&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

bool is_there(const std::filesystem::path& path) {
  std::error_code problem;
  const auto type = std::filesystem::symlink_status(path, problem).type();
  if (type == std::filesystem::file_type::not_found) return false;
  if (problem) fail(ErrorKind::kModel, fmt::format("{}: cannot look for it: {}", path.string(), problem.message()));
  return true;
}

size_t mapped_file_bytes() { return mapped_bytes; }
void count_mapped(ptrdiff_t bytes) { mapped_bytes += size_t(bytes); }

void read_ahead(std::span<const std::byte> mapped) {
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t begin = first / page * page, end = first + mapped.size();
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void release_pages(std::span<const std::byte> mapped) {
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(mapped.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(mapped.data() + mapped.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_file(const std::filesystem::path& path, size_t limit_bytes, ErrorKind kind) {
  const Descriptor file(path, kind);
  // A model's files are regular files; a user's may be pipes.
  const size_t size = kind == ErrorKind::kModel ? file.regular_size(path) : file.size().value_or(0);
  const auto check_size = [&](size_t bytes) {
    if (bytes > limit_bytes)
      fail(kind, fmt::format("{}: too large (expected at most {} bytes)", path.string(), limit_bytes));
  };
  check_size(size);
  std::string text;
  return with_memory_for(path.string(), size, [&] {
    text.reserve(size);
    char buffer[1 << 16];
    for (;;) {
      const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(kind, fmt::format("{}: cannot read: {}", path.string(), std::strerror(errno)));
      if (got == 0) return std::move(text);
      text.append(buffer, static_cast<size_t>(got));
      check_size(text.size());
    }
  });
}

}  // namespace qgen
