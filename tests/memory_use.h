// How much memory a piece of work takes at its height: the growth of the process's largest resident size.
#pragma once

#include <fstream>
#include <string>

#include <malloc.h>

#include <doctest/doctest.h>

#include "base/memory.h"
#include "tests/skipped.h"

namespace qgen::test {

// Sanitizers keep what was freed and take shadow memory: nothing to measure there.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kMemoryIsMeasured = false;
#else
inline constexpr bool kMemoryIsMeasured = true;
#endif

// Bytes; 0 where it cannot be measured.
template <typename Action>
size_t peak_growth(Action&& action) {
  ::malloc_trim(0);
  // "5" makes the largest size the one of now (proc(5)).
  const bool reset = bool(std::ofstream("/proc/self/clear_refs") << 5 << std::flush);
  const size_t before = resident_memory();
  action();
  const size_t peak = peak_resident_memory();
  if (!reset || !kMemoryIsMeasured) {
    skipped("peak memory", "sanitizers, or no /proc/self/clear_refs");
    return 0;
  }
  return peak > before ? peak - before : 0;
}

}  // namespace qgen::test
