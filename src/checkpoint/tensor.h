// A tensor as it lies in a checkpoint: a name, a type, a shape and a view of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qgen {

// The element types of safetensors, with its spelling.
enum class Dtype {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
std::string_view dtype_name(Dtype dtype);
int dtype_bits(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;        // row major, [] for a scalar
  std::span<const std::byte> bytes;  // little endian; may be unaligned
  std::string file;                  // for messages

  int64_t elements() const;
  std::string shape_text() const;  // "[4096, 128]"
};

}  // namespace qgen
