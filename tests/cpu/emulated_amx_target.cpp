// The kernels of the target avx512-amx with tiles in plain C++, for processors that have its AVX-512 but no AMX. Tiles
// do what Intel's manual (volume 2, LDTILECFG to TILEZERO) says; what it lets fault traps here.
#include "cpu/isa/amx_tile_config.h"
#include "cpu/isa/vec_avx512.h"
#include "tests/cpu/test_targets.h"

namespace qgen::cpu {
namespace {

struct TileState {
  bool configured = false;
  TileConfig config;
  uint8_t bytes[kTiles][kTileRows][kTileRowBytes];
};
thread_local TileState state;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

// Numbers below the normal ones are zeros to tdpbf16ps, before and after each step.
inline float flush(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x; }

inline float bf16_at(const uint8_t* bytes, int64_t i) {
  uint16_t half;
  __builtin_memcpy(&half, bytes + 2 * i, 2);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return flush(value);
}

struct Tiles {
  static void configure(const TileConfig& config) {
    require(config.palette == 1 && config.start_row == 0);
    for (const uint8_t byte : config.reserved) require(byte == 0);
    for (int i = 0; i < 16; ++i) {
      require(config.rows[i] <= (i < kTiles ? kTileRows : 0));
      require(config.row_bytes[i] <= (i < kTiles ? kTileRowBytes : 0));
      require((config.rows[i] == 0) == (config.row_bytes[i] == 0));
    }
    state.configured = true;
    state.config = config;
    __builtin_memset(state.bytes, 0, sizeof state.bytes);
  }
  static void release() { state.configured = false; }

  template <int kTile>
  static void zero() {
    require_valid(kTile);
    __builtin_memset(state.bytes[kTile], 0, sizeof state.bytes[kTile]);
  }
  template <int kTile>
  static void load(const void* rows, int64_t stride) {
    require_valid(kTile);
    __builtin_memset(state.bytes[kTile], 0, sizeof state.bytes[kTile]);
    for (int64_t r = 0; r < state.config.rows[kTile]; ++r)
      __builtin_memcpy(state.bytes[kTile][r], static_cast<const uint8_t*>(rows) + r * stride,
                       state.config.row_bytes[kTile]);
  }
  template <int kTile>
  static void store(void* rows, int64_t stride) {
    require_valid(kTile);
    for (int64_t r = 0; r < state.config.rows[kTile]; ++r)
      __builtin_memcpy(static_cast<uint8_t*>(rows) + r * stride, state.bytes[kTile][r], state.config.row_bytes[kTile]);
  }

  template <int kSum, int kA, int kB>
  static void dot_bytes() {
    require_product(kSum, kA, kB);
    for (int m = 0; m < state.config.rows[kSum]; ++m) {
      uint32_t sums[kTileRows];  // they wrap around
      __builtin_memcpy(sums, state.bytes[kSum][m], sizeof sums);
      for (int k = 0; k < state.config.rows[kB]; ++k) {
        const int8_t* a = reinterpret_cast<const int8_t*>(state.bytes[kA][m]) + 4 * k;
        const int8_t* b = reinterpret_cast<const int8_t*>(state.bytes[kB][k]);
        for (int n = 0; n < kTileRows; ++n)
          sums[n] +=
              static_cast<uint32_t>(a[0] * b[4 * n] + a[1] * b[4 * n + 1] + a[2] * b[4 * n + 2] + a[3] * b[4 * n + 3]);
      }
      __builtin_memcpy(state.bytes[kSum][m], sums, state.config.row_bytes[kSum]);
    }
  }

  // Even and odd products have sums of their own, which begin with zero and enter the tile together.
  template <int kSum, int kA, int kB>
  static void dot_bf16() {
    require_product(kSum, kA, kB);
    for (int m = 0; m < state.config.rows[kSum]; ++m) {
      float even[kTileRows] = {}, odd[kTileRows] = {}, sums[kTileRows];
      for (int k = 0; k < state.config.rows[kB]; ++k) {
        const float a0 = bf16_at(state.bytes[kA][m], 2 * k), a1 = bf16_at(state.bytes[kA][m], 2 * k + 1);
        for (int n = 0; n < kTileRows; ++n) {
          even[n] = flush(__builtin_fmaf(a0, bf16_at(state.bytes[kB][k], 2 * n), even[n]));
          odd[n] = flush(__builtin_fmaf(a1, bf16_at(state.bytes[kB][k], 2 * n + 1), odd[n]));
        }
      }
      __builtin_memcpy(sums, state.bytes[kSum][m], sizeof sums);
      for (int n = 0; n < kTileRows; ++n) sums[n] = flush(flush(sums[n]) + flush(even[n] + odd[n]));
      __builtin_memcpy(state.bytes[kSum][m], sums, state.config.row_bytes[kSum]);
    }
  }

 private:
  static void require_valid(int tile) { require(state.configured && state.config.rows[tile] > 0); }
  static void require_product(int sum, int a, int b) {
    const TileConfig& config = state.config;
    for (const int tile : {sum, a, b}) {
      require_valid(tile);
      require(config.row_bytes[tile] % 4 == 0);
    }
    require(sum != a && sum != b && a != b);
    require(config.rows[sum] == config.rows[a] && config.row_bytes[sum] == config.row_bytes[b] &&
            config.row_bytes[a] / 4 == config.rows[b]);
  }
};

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

}  // namespace

const IsaTarget kEmulatedAmxTarget = QGEN_AMX_TARGET("avx512-amx, emulated", supports_avx512_gfni);

bool emulated_tiles_released() { return !state.configured; }

}  // namespace qgen::cpu
