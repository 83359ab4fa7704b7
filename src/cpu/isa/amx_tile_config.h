// The shapes of the eight tiles of AMX, as ldtilecfg reads them.
#pragma once

#include <stdint.h>

namespace qgen::cpu {

constexpr int kTiles = 8;
constexpr int kTileRows = 16;      // at most
constexpr int kTileRowBytes = 64;  // at most

struct alignas(64) TileConfig {
  uint8_t palette = 1;  // eight tiles of 1 KiB
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};  // of tiles 0 to 7; the rest stays 0
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace qgen::cpu
