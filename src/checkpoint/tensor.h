// A tensor as it lies in a checkpoint: a name, a type, a shape and a view of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qgen {

// The element types of safetensors, with its spelling, and the block types of GGUF.
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
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIq4Nl,
  kIq4Xs,
  kMxfp4,
};

// Q8_0: blocks along a row, an F16 scale and then the codes.
constexpr int64_t kQ8_0BlockElements = 32;
constexpr int64_t kQ8_0BlockBytes = 34;

// How elements lie along a row: so many of them in so many bytes. Types of whole bytes are blocks of one element.
// Source of GGUF's: ggml-common.h.
struct BlockShape {
  int64_t elements, bytes;
};
BlockShape block_shape(Dtype dtype);

std::string_view dtype_name(Dtype dtype);
int dtype_bits(Dtype dtype);                                  // of an element; 0 for types that come in blocks
std::optional<Dtype> dtype_from_name(std::string_view name);  // those of safetensors

// Stands in for the data of a file that is not complete, where only headers are wanted: zeros, so many bytes of them.
// Where there is none, such a file is an error.
using BlankData = std::function<std::span<const std::byte>(uint64_t bytes)>;
// No file is larger: one that would have to be has a damaged header, and is not merely incomplete.
constexpr uint64_t kLargestFile = uint64_t{1} << 46;

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
