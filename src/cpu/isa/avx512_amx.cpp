// AVX-512 as in the target avx512-bf16 with AMX-INT8 and AMX-BF16 (Sapphire Rapids and later): products for several
// tokens by tiles; one token of FP8 and BF16 weights, which is bound by memory, in f32; all else as there.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/isa/amx_tile_config.h"
#include "cpu/isa/vec_avx512.h"

namespace qgen::cpu {
namespace {

// Written as instructions: the intrinsics take no tile numbers from templates, and GCC 12's do not say that
// they read memory, so that the compiler could put off what fills it.
struct Tiles {
  static void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kTile>
  static __attribute__((always_inline)) void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static __attribute__((always_inline)) void load(const void* rows, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static __attribute__((always_inline)) void store(void* rows, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  static __attribute__((always_inline)) void dot_bytes() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kSum, int kA, int kB>
  static __attribute__((always_inline)) void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};

// In the order of their dependence:
// clang-format off
#include "cpu/isa/common.inc"
#include "cpu/isa/f32_linear.inc"
#include "cpu/isa/column_groups.inc"
#include "cpu/isa/elementwise.inc"
#include "cpu/isa/recurrence.inc"
#include "cpu/isa/kv_store.inc"
#include "cpu/isa/inputs.inc"
#include "cpu/isa/attention.inc"
#include "cpu/isa/panels.inc"
#include "cpu/isa/int8_linear.inc"
#include "cpu/isa/bf16_linear.inc"
#include "cpu/isa/e4m3_f32.inc"
#include "cpu/isa/amx_linear.inc"
#include "cpu/isa/amx_row_linear.inc"
#include "cpu/isa/int16.inc"
#include "cpu/isa/int16_attention.inc"
#include "cpu/isa/int8_attention.inc"
#include "cpu/isa/int16_linear.inc"
#include "cpu/isa/int16_tables.inc"
// clang-format on

// Tiles are 8 KiB of state a thread that Linux (5.16 and later) keeps for processes that ask, and only for these.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
}

bool supported() {
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;  // of leaf 7, edx
  constexpr unsigned kAll = kBf16 | kTile | kInt8;
  unsigned eax, ebx, ecx, edx;
  return supports_avx512_gfni() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAll) == kAll &&
         may_use_tiles();
}

}  // namespace

const IsaTarget kAvx512AmxTarget = QGEN_AMX_TARGET("avx512-amx", supported);

}  // namespace qgen::cpu
