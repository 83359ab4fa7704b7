// One block of memory that many buffers are cut from, laid out twice: first to learn its size, then for real.
// So what `qgen` says it will take is what it takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <sys/mman.h>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/page_allocator.h"
#include "base/units.h"

namespace qgen::cpu {

class Arena {
 public:
  Arena() = default;
  ~Arena() {
    if (base_ != nullptr) unmap_pages(base_, size_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `count` elements, aligned for vectors; null while the size is being learned. Zero at first.
  template <typename T>
  T* take(int64_t count) {
    const size_t begin = used_;
    const size_t bytes = checked_product("memory", {static_cast<size_t>(count), sizeof(T)});
    used_ = checked_sum("memory", {used_, checked_aligned("memory", bytes, 64)});
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + begin);
  }
  size_t used() const { return used_; }
  // The next buffer begins there, so buffers may overlap.
  void go_to(size_t position) {
    highest_ = std::max(highest_, used_);
    used_ = position;
  }

  // Gets what the first layout used; then the same calls of take() give memory. `subject` is for the error.
  void allocate(const char* subject) {
    size_ = std::max(highest_, used_);
    used_ = 0;
    if (size_ == 0) return;
    // Pages come when they are touched: a large context costs nothing until it is filled.
    base_ = map_pages(size_, true);
    if (base_ == nullptr) {
      const std::string wanted = format_bytes(double(size_));
      size_ = 0;
      fail(ErrorKind::kMemory, fmt::format("{}: cannot get {} of memory", subject, wanted),
           "a smaller --context needs less");
    }
    ::madvise(base_, size_, MADV_HUGEPAGE);
  }

 private:
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  size_t used_ = 0, highest_ = 0;
};

}  // namespace qgen::cpu
