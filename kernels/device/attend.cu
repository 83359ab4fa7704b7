#include "kernels/device/attend_tiles.cuh"
#include "kernels/device/launch.cuh"

namespace qgen::QGEN_BACKEND {
namespace {

// Calls `run` with the kind as a constant.
template <typename Run>
void with_kind(CacheKind kind, const Run& run) {
  switch (kind) {
    case CacheKind::kF16: return run.template operator()<CacheKind::kF16>();
    case CacheKind::kBf16: return run.template operator()<CacheKind::kBf16>();
    case CacheKind::kF32: return run.template operator()<CacheKind::kF32>();
    case CacheKind::kE4M3: return run.template operator()<CacheKind::kE4M3>();
    case CacheKind::kI8: return run.template operator()<CacheKind::kI8>();
  }
}

int larger_of(int a, int b) { return a > b ? a : b; }

constexpr int kWidest = kMaxHeadDim / kFour;
// The width, times kFour elements, of the kernels for heads of `dim`.
int width_of(int dim) {
  const int width = (padded(dim) + kFour - 1) / kFour;
  return width > kMediumWidth ? kWidest : width;
}

int queries_at_once(CacheKind kind, int group, int dim) {
  int queries = 1;
  while (queries < group && queries < most_queries(kind, width_of(dim))) queries *= 2;
  return queries;
}

// As many keys to a warp as let two blocks have room on a processor, and one on those with the least shared memory.
AttendTile tile_of(const AttendArgs& args, int queries, int width) {
  constexpr int kMostBytes = 72 << 10;  // of a block
  const int element = bytes_of_element(args.cache.kind), row = padded(args.value_dim);
  AttendTile tile{};
  tile.key_row = padded(args.key_dim);
  tile.value_row = row;
  tile.prepared_row = larger_of(tile.key_row, row);
  const int units = tile.prepared_row * element / 16;
  // An odd number of 16 bytes: lanes that read the same bytes of neighbouring keys are in different banks.
  tile.pitch = (units | 1) * 16;
  while (tile.shift < 5 && 1 << tile.shift < units) ++tile.shift;
  const auto bytes = [&](int keys) { return 2 * keys * tile.pitch; };
  tile.keys = keys_at_once(queries, width);
  const int warps = attend_warps(args.cache.kind, width);
  while (tile.keys < kMostTileKeys && warps * bytes(2 * tile.keys) <= kMostBytes) tile.keys *= 2;
  tile.warp_bytes = larger_of(bytes(tile.keys), int(round_up(queries * (row + 2) * 4, 32)));
  const bool matrices = in_matrices(args.cache.kind, width);
  tile.stored_at = int(sizeof(AttendPlace)) + (matrices ? warps : queries) * width * kFour * 4;
  tile.weights_at = tile.stored_at + (matrices ? 0 : 2 * tile.prepared_row * 4);
  tile.warps_at = tile.weights_at + (matrices ? matrix_query_bytes(tile.key_row) : warps * tile.keys * queries * 4);
  tile.pages_at = tile.warps_at + warps * tile.warp_bytes;
  return tile;
}

template <CacheKind kKind, int kQueries, int kWidth>
void launch_attend(Stream& stream, const AttendArgs& args, bool store) {
  const int group = args.heads / args.kv_heads;
  const int tiles = query_tiles(kKind, group, larger_of(args.key_dim, args.value_dim));
  const AttendTile tile = tile_of(args, kQueries, kWidth);
  constexpr int kThreads = attend_warps(kKind, kWidth) * kWarp;
  launch(stream, "attend", attend_kernel<kKind, kQueries, kWidth>,
         {unsigned(args.splits), unsigned(args.kv_heads * tiles), unsigned(args.tokens)}, kThreads,
         size_t(tile.pages_at + 4 * (split_pages(args.cache, args.splits) + 1)),
         AttendKernelArgs{args, store, group, tiles, tile});
}

// By the queries of a key-value head.
template <CacheKind kKind, int kWidth>
void launch_attend(Stream& stream, const AttendArgs& args, bool store, int queries) {
  if constexpr (in_matrices(kKind, kWidth)) {
    launch_attend<kKind, kMatrixQueries, kWidth>(stream, args, store);
  } else {
    if (queries == 1) return launch_attend<kKind, 1, kWidth>(stream, args, store);
    if (queries == 2) return launch_attend<kKind, 2, kWidth>(stream, args, store);
    if constexpr (most_queries(kKind, kWidth) >= 4) {
      if (queries == 4) return launch_attend<kKind, 4, kWidth>(stream, args, store);
    }
    if constexpr (most_queries(kKind, kWidth) >= 8) launch_attend<kKind, 8, kWidth>(stream, args, store);
  }
}

template <CacheKind kKind, int kDim>
void launch_tiles(Stream& stream, const AttendArgs& args) {
  static_assert(TileShape<kKind, kDim>::kBytes <= kMostSharedBytes);
  const int group = args.heads / args.kv_heads;
  const int64_t tiles = int64_t{blocks_of(args.tokens, TileShape<kKind, kDim>::kWarpQueries)} * group;
  launch(stream, "attend in tiles", attend_tiles_kernel<kKind, kDim>,
         {unsigned(args.kv_heads), blocks_of(tiles, kTileAttendWarps)}, kTileAttendThreads,
         TileShape<kKind, kDim>::kBytes, TileAttendArgs{args, group, ((1u << 31) - 1) / uint32_t(group) + 1});
}

}  // namespace

int query_tiles(CacheKind kind, int queries, int dim) {
  const int at_once = queries_at_once(kind, queries, dim);
  return (queries + at_once - 1) / at_once;
}

void store_keys(Stream& stream, const AttendArgs& args) {
  const int dim = larger_of(args.key_dim, args.value_dim);
  const auto store = [&](auto kernel, int tokens) {  // of a warp
    launch(stream, "store keys", kernel, {unsigned(args.kv_heads), blocks_of(args.tokens, tokens)}, 2 * kWarp,
           size_t(2 * tokens * padded(dim)) * sizeof(float), args);
  };
  with_kind(args.cache.kind, [&]<CacheKind kKind>() {
    if (dim <= 4 * kWarp) return store(store_tokens_kernel<kKind, 4>, kStoreTokens);
    if (dim <= 8 * kWarp) return store(store_tokens_kernel<kKind, 8>, kStoreTokens);
    store(store_keys_kernel<kKind>, 1);
  });
}

void attend(Stream& stream, const AttendArgs& args, bool store) {
  with_kind(args.cache.kind, [&]<CacheKind kKind>() {
    const int dim = larger_of(args.key_dim, args.value_dim);
    const int queries = queries_at_once(kKind, args.heads / args.kv_heads, dim);
    switch (width_of(dim)) {
      case 1: return launch_attend<kKind, 1>(stream, args, store, queries);
      case kMediumWidth: return launch_attend<kKind, kMediumWidth>(stream, args, store, queries);
      default: return launch_attend<kKind, kWidest>(stream, args, store, queries);
    }
  });
}

bool can_attend_in_tiles(const AttendArgs& args) {
  return args.key_dim <= 256 && args.value_dim <= 256 && args.cache.kind != CacheKind::kF32;
}

void attend_in_tiles(Stream& stream, const AttendArgs& args) {
  with_kind(args.cache.kind, [&]<CacheKind kKind>() {
    if constexpr (kKind != CacheKind::kF32) {
      const int dim = larger_of(args.key_dim, args.value_dim);
      if (dim <= 64) return launch_tiles<kKind, 64>(stream, args);
      if (dim <= 128) return launch_tiles<kKind, 128>(stream, args);
      launch_tiles<kKind, 256>(stream, args);
    }
  });
}

}  // namespace qgen::QGEN_BACKEND
