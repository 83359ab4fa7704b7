// Sums and products of sizes that files and options name: an Error that names what they are of, where 64 bits do not
// hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/error.h"

namespace qgen {

[[noreturn]] inline void fail_size(const std::string& subject, ErrorKind kind) {
  fail(kind, subject + ": its size overflows");
}

// `kind`: kMemory for what would have to be allocated, kModel for what a file says of itself.
inline size_t checked_product(const std::string& subject, std::initializer_list<size_t> factors,
                              ErrorKind kind = ErrorKind::kMemory) {
  size_t product = 1;
  for (const size_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) fail_size(subject, kind);
  }
  return product;
}

inline size_t checked_sum(const std::string& subject, std::initializer_list<size_t> terms,
                          ErrorKind kind = ErrorKind::kMemory) {
  size_t sum = 0;
  for (const size_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) fail_size(subject, kind);
  }
  return sum;
}

// The next multiple of `alignment`.
inline size_t checked_aligned(const std::string& subject, size_t size, size_t alignment,
                              ErrorKind kind = ErrorKind::kMemory) {
  return checked_sum(subject, {size, alignment - 1}, kind) / alignment * alignment;
}

}  // namespace qgen
