// Buffers cut from one piece of device memory, laid out twice: first without memory, to learn the size, then with
// it. So the account of memory is what the backend takes, CUDA graphs aside.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rounding.h"
#include "kernels/runtime.h"
#if defined(QGEN_SIMT)
#include "kernels/simt/memory_check.h"
#endif

namespace qgen::QGEN_BACKEND {

// The executor knows the buffers, and keeps them apart, so that it sees an access beyond one.
#if defined(QGEN_SIMT)
constexpr int64_t kBufferGap = 256;
#else
constexpr int64_t kBufferGap = 0;
inline void add_buffer_part(const void*, size_t) {}
#endif

class DeviceLayout {
 public:
  // `base`: null while the size is being learned.
  explicit DeviceLayout(std::byte* base = nullptr) : base_(base) {}

  template <typename T>
  T* take(int64_t count) {
    const size_t begin = used_;
    const auto bytes = count * int64_t(sizeof(T));
    used_ += size_t(round_up(bytes + kBufferGap, kAlignment));
    if (base_ == nullptr) return nullptr;
    add_buffer_part(base_ + begin, size_t(bytes));
    return reinterpret_cast<T*>(base_ + begin);
  }
  // As the allocator rounds it.
  size_t bytes() const { return size_t(round_up(int64_t(used_), kAllocationUnit)); }

 private:
  static constexpr int64_t kAlignment = 256;
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace qgen::QGEN_BACKEND
