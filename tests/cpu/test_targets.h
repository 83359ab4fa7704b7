// The targets that tests of kernels run: those of the engine which this processor has, and some that only tests have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/isa/targets.h"

namespace qgen::cpu {

// The target avx2-vnni in the encoding of AVX-512.
extern const IsaTarget kEvexTarget;
// The target avx512-amx with emulated tiles.
extern const IsaTarget kEmulatedAmxTarget;
bool emulated_tiles_released();  // on this thread, as a kernel must leave them

}  // namespace qgen::cpu

namespace qgen::test {

using cpu::IsaTarget;

// Of the engine.
inline std::vector<const IsaTarget*> supported_targets() {
  std::vector<const IsaTarget*> out;
  for (const IsaTarget* target : cpu::targets()) {
    if (target->supported()) out.push_back(target);
  }
  return out;
}

// These, the one for Zen 5 on other processors with its instructions, and those which only tests have: no engine knows
// them.
inline std::vector<const IsaTarget*> kernel_targets() {
  std::vector<const IsaTarget*> out = supported_targets();
#if defined(__x86_64__)
  for (const IsaTarget* target : {&cpu::kEvexTarget, &cpu::kEmulatedAmxTarget}) {
    if (target->supported()) out.push_back(target);
  }
  if (cpu::kAvx512Bf16Target.supported() && !cpu::kAvx512Zen5Target.supported()) out.push_back(&cpu::kAvx512Zen5Target);
#endif
  return out;
}

// Where a kernel may keep what it likes.
struct Scratch {
  explicit Scratch(int64_t size) : bytes(size_t(size) + cpu::kCacheLine) {}
  void* get() { return bytes.data() + (cpu::kCacheLine - reinterpret_cast<uintptr_t>(bytes.data()) % cpu::kCacheLine); }
  std::vector<std::byte> bytes;
};

}  // namespace qgen::test
