// Buffers cut from one piece of device memory, laid out twice: first without memory, to learn the size, then with
// it. So the account of memory is what the backend takes, CUDA graphs aside.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rounding.h"
#include "kernels/runtime.h"

namespace qgen::QGEN_BACKEND {

class DeviceLayout {
 public:
  // `base`: null while the size is being learned.
  explicit DeviceLayout(std::byte* base = nullptr) : base_(base) {}

  template <typename T>
  T* take(int64_t count) {
    const size_t begin = used_;
    used_ += size_t(round_up(count * int64_t(sizeof(T)), kAlignment));
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + begin);
  }
  // As the allocator rounds it.
  size_t bytes() const { return size_t(round_up(int64_t(used_), kAllocationUnit)); }

 private:
  static constexpr int64_t kAlignment = 256;
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace qgen::QGEN_BACKEND
