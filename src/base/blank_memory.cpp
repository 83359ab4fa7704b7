#include "base/blank_memory.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/memory.h"
#include "base/numa.h"

namespace qgen {

BlankMemory::BlankMemory(size_t bytes, const std::string& subject, Kind kind) : kind_(kind) {
  if (bytes == 0) return;
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED && errno == ENOMEM) fail_for_memory(subject, bytes);
  if (address == MAP_FAILED)
    fail(ErrorKind::kMemory, fmt::format("{}: cannot map {} bytes: {}", subject, bytes, std::strerror(errno)));
  if (kind_ == Kind::kWeights) count_mapped(ptrdiff_t(bytes));
  // Small pages, as a mapped file has them, so that speeds measured with random weights hold for files.
  ::madvise(address, bytes, MADV_NOHUGEPAGE);
  interleave(address, bytes);
  data_ = static_cast<std::byte*>(address);
  size_ = bytes;
}

BlankMemory::~BlankMemory() {
  if (data_ == nullptr) return;
  ::munmap(data_, size_);
  if (kind_ == Kind::kWeights) count_mapped(-ptrdiff_t(size_));
}

BlankMemory::BlankMemory(BlankMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), kind_(other.kind_) {}

BlankMemory& BlankMemory::operator=(BlankMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(kind_, other.kind_);
  return *this;
}

}  // namespace qgen
