// Zeros that cost nothing: an anonymous mapping whose pages come when they are written.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace qgen {

// Movable; the bytes stay where they are.
class BlankMemory {
 public:
  BlankMemory() = default;
  // Reserves addresses, no memory. `subject` is for the error: a memory Error if there are not enough of them.
  BlankMemory(size_t bytes, const std::string& subject);
  ~BlankMemory();
  BlankMemory(BlankMemory&& other) noexcept;
  BlankMemory& operator=(BlankMemory&& other) noexcept;

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace qgen
