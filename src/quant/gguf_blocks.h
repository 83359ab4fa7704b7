// The blocks of GGUF's types of fewer than 8 bits, taken apart: codes as INT8, scales and minimums as the canonical
// weight has them. Nothing is rounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/tensor.h"

namespace qgen {

// Where the parts of one block go. Scales and minimums: one for each group, in the type that BlockType says; of
// super-blocks they are codes (I8) and `super`, `super_minimum` have the F16 that multiplies them.
struct BlockParts {
  std::byte* codes;
  std::byte* scales;
  std::byte* minimums;
  std::byte* super;
  std::byte* super_minimum;
};

struct BlockType {
  Dtype dtype;
  std::string_view bits;  // "4 bits"
  int64_t group_cols;
  enum class Scales : uint8_t {
    kQ8_0,   // F16, no minimums: the codes lie behind their scale, as Q8_0 has them
    kF16,    // F16, with minimums: W = code * scale + minimum
    kE8M0,   // 2^(byte - 127) / 2
    kSuper,  // I8 times F16
  } scales;
  bool minimums;  // of super-blocks W = code * scale - minimum
  void (*take_apart)(const uint8_t* block, const BlockParts& out);
};

// Null for types that are no blocks of fewer than 8 bits.
const BlockType* find_block_type(Dtype dtype);

}  // namespace qgen
