#include "base/file_map.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {
namespace {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kModel)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (kind == ErrorKind::kModel ? O_NONBLOCK : 0))) {
    if (fd_ < 0) fail(kind, fmt::format("{}: cannot open: {}", path.string(), std::strerror(errno)));
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

  // The size in bytes of a regular file.
  size_t size(const std::filesystem::path& path) const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) {
      fail(ErrorKind::kModel, fmt::format("{}: cannot stat: {}", path.string(), std::strerror(errno)));
    }
    if (!S_ISREG(status.st_mode)) fail(ErrorKind::kModel, fmt::format("{}: not a regular file", path.string()));
    return static_cast<size_t>(status.st_size);
  }

 private:
  int fd_;
};

}  // namespace

FileMap::FileMap(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(path);
  size_ = file.size(path);
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
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

FileMap::FileMap(FileMap&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void release_pages(std::span<const std::byte> mapped) {
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(mapped.data()) + page - 1) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(mapped.data() + mapped.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_file(const std::filesystem::path& path, size_t limit_bytes, ErrorKind kind) {
  const Descriptor file(path, kind);
  if (kind == ErrorKind::kModel) file.size(path);  // a model's files are regular files; a user's may be pipes
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(kind, fmt::format("{}: cannot read: {}", path.string(), std::strerror(errno)));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > limit_bytes)
      fail(kind, fmt::format("{}: too large (expected at most {} bytes)", path.string(), limit_bytes));
  }
}

}  // namespace qgen
