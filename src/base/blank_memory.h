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
  // kWeights stand in the place of a file: an account of memory has them already (mapped_file_bytes()).
  enum class Kind { kWork, kWeights };
  // Reserves addresses, no memory. `subject` is for the error: a memory Error if there are not enough of them.
  BlankMemory(size_t bytes, const std::string& subject, Kind kind = Kind::kWork);
  ~BlankMemory();
  BlankMemory(BlankMemory&& other) noexcept;
  BlankMemory& operator=(BlankMemory&& other) noexcept;

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Kind kind_ = Kind::kWork;
};

}  // namespace qgen
