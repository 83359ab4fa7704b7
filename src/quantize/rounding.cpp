#include "quantize/rounding.h"

#include <string_view>

namespace qgen::quantize {

extern const RoundingKernels kRounding_portable;
#if defined(__x86_64__)
extern const RoundingKernels kRounding_avx2;
extern const RoundingKernels kRounding_avx512;
#endif

namespace {

struct Target {
  const RoundingKernels* kernels;
  bool (*available)();
};

// The best first.
constexpr Target kTargets[] = {
#if defined(__x86_64__)
    {&kRounding_avx512,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
     }},
    {&kRounding_avx2, [] { return bool(__builtin_cpu_supports("avx2")); }},
#endif
    {&kRounding_portable, [] { return true; }}};

}  // namespace

const RoundingKernels& rounding_kernels() {
  static const RoundingKernels& best = []() -> const RoundingKernels& {
    for (const Target& target : kTargets) {
      if (target.available()) return *target.kernels;
    }
    return kRounding_portable;
  }();
  return best;
}

const RoundingKernels* rounding_kernels(const char* name) {
  for (const Target& target : kTargets) {
    if (target.kernels->name == std::string_view(name)) return target.available() ? target.kernels : nullptr;
  }
  return nullptr;
}

}  // namespace qgen::quantize
