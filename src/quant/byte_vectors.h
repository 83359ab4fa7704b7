// Sixteen bytes that a processor works on at once, for repacks: in the compilers' own vectors, which every target has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace qgen {

using Bytes16 = uint8_t __attribute__((vector_size(16)));

inline Bytes16 load16(const void* from) {
  Bytes16 out;
  std::memcpy(&out, from, sizeof out);
  return out;
}
inline void store16(Bytes16 bytes, void* to) { std::memcpy(to, &bytes, sizeof bytes); }
inline Bytes16 all_bytes(uint8_t value) { return value - Bytes16{}; }

// The lower halves of two vectors (kFirst: 0), or the upper ones (8), by turns: elements of 1 or 4 bytes.
template <size_t kBytes, int kFirst>
inline Bytes16 interleave(Bytes16 a, Bytes16 b) {
  static_assert(kBytes == 1 || kBytes == 4);
  constexpr int i = kFirst, j = 16 + kFirst;
  if constexpr (kBytes == 1) {
    return __builtin_shufflevector(a, b, i, j, i + 1, j + 1, i + 2, j + 2, i + 3, j + 3, i + 4, j + 4, i + 5, j + 5,
                                   i + 6, j + 6, i + 7, j + 7);
  } else {
    return __builtin_shufflevector(a, b, i, i + 1, i + 2, i + 3, j, j + 1, j + 2, j + 3, i + 4, i + 5, i + 6, i + 7,
                                   j + 4, j + 5, j + 6, j + 7);
  }
}

// Element j of vector i becomes element i of vector j: a square of 16 / kBytes vectors. A stage interleaves
// vectors that are half the square apart; as many stages as the side has binary digits turn it over.
template <size_t kBytes>
inline __attribute__((always_inline)) void transpose_square(Bytes16 (&rows)[16 / kBytes]) {
  constexpr size_t kSide = 16 / kBytes;
#pragma GCC unroll 4
  for (size_t stage = 1; stage < kSide; stage *= 2) {
    Bytes16 out[kSide];
#pragma GCC unroll 8
    for (size_t i = 0; i < kSide / 2; ++i) {
      out[2 * i] = interleave<kBytes, 0>(rows[i], rows[i + kSide / 2]);
      out[2 * i + 1] = interleave<kBytes, 8>(rows[i], rows[i + kSide / 2]);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < kSide; ++i) rows[i] = out[i];
  }
}

// The values of 4 bits of bytes, the lower ones first: of the lower eight bytes, of the upper ones.
struct SpreadNibbles {
  Bytes16 low, high;
};
inline SpreadNibbles spread_nibbles(Bytes16 bytes) {
  const Bytes16 mask = all_bytes(15), first = bytes & mask, second = (bytes >> 4) & mask;
  return {interleave<1, 0>(first, second), interleave<1, 8>(first, second)};
}

}  // namespace qgen
