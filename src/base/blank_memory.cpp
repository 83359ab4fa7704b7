#include "base/blank_memory.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/numa.h"

namespace qgen {

BlankMemory::BlankMemory(size_t bytes, const std::string& subject) {
  if (bytes == 0) return;
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    fail(ErrorKind::kMemory, fmt::format("{}: cannot map {} bytes: {}", subject, bytes, std::strerror(errno)));
  // Small pages, as a mapped file has them, so that speeds measured with random weights hold for files.
  ::madvise(address, bytes, MADV_NOHUGEPAGE);
  interleave(address, bytes);
  data_ = static_cast<std::byte*>(address);
  size_ = bytes;
}

BlankMemory::~BlankMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

BlankMemory::BlankMemory(BlankMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

BlankMemory& BlankMemory::operator=(BlankMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace qgen
