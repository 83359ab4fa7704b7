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

// Whether a warp holds a row of the longer one of keys and values with a piece to a lane.
bool is_wide(int dim) { return padded(dim) > kPiece * kWarp; }

int queries_at_once(int group, int dim) {
  int queries = 1;
  while (queries < group && queries < (is_wide(dim) ? kWideQueries : kMostQueries)) queries *= 2;
  return queries;
}

template <CacheKind kKind, int kQueries, int kPieces = 1>
void launch_attend(Stream& stream, const AttendArgs& args, bool store) {
  const int tiles = attend_tiles(args.heads / args.kv_heads, larger_of(args.key_dim, args.value_dim));
  const int key_row = padded(args.key_dim), row = padded(args.value_dim);
  const int floats = kQueries * key_row + 2 * larger_of(key_row, row) +
                     attend_merged_floats(kQueries, row, args.splits) + 1 + split_pages(args.cache, args.splits);
  const bool fetches = args.next.bytes > 0;
  launch(stream, "attend", attend_kernel<kKind, kQueries, kPieces>,
         {unsigned(args.splits), unsigned(args.kv_heads * tiles + fetches), unsigned(args.tokens)}, kAttendThreads,
         size_t(floats) * 4, AttendKernelArgs{args, store});
}

template <bool kBf16, int kDim>
void launch_tiles(Stream& stream, const AttendArgs& args) {
  const size_t bytes = size_t(kAttendStages) * kAttendStage<kDim> * 2;
  launch(stream, "attend in tiles", attend_tiles_kernel<kBf16, kDim>,
         {blocks_of(args.tokens, kTileQueries), unsigned(args.heads)}, kTileAttendThreads, bytes, args);
}

}  // namespace

int attend_tiles(int queries, int dim) {
  const int at_once = queries_at_once(queries, dim);
  return (queries + at_once - 1) / at_once;
}

void store_keys(Stream& stream, const AttendArgs& args) {
  with_kind(args.cache.kind, [&]<CacheKind kKind>() {
    launch(stream, "store keys", store_keys_kernel<kKind>, {unsigned(args.kv_heads), unsigned(args.tokens)}, 2 * kWarp,
           size_t(2 * larger_of(padded(args.key_dim), padded(args.value_dim))) * 4, args);
  });
}

void attend(Stream& stream, const AttendArgs& args, bool store) {
  with_kind(args.cache.kind, [&]<CacheKind kKind>() {
    constexpr int kWidePieces = kMaxHeadDim / (kPiece * kWarp);
    const int dim = larger_of(args.key_dim, args.value_dim), queries = queries_at_once(args.heads / args.kv_heads, dim);
    if (is_wide(dim)) {
      return queries == 1 ? launch_attend<kKind, 1, kWidePieces>(stream, args, store)
                          : launch_attend<kKind, kWideQueries, kWidePieces>(stream, args, store);
    }
    switch (queries) {
      case 1: return launch_attend<kKind, 1>(stream, args, store);
      case 2: return launch_attend<kKind, 2>(stream, args, store);
      case 4: return launch_attend<kKind, 4>(stream, args, store);
      default: return launch_attend<kKind, 8>(stream, args, store);
    }
  });
}

bool can_attend_in_tiles(const AttendArgs& args) {
  return args.key_dim <= 128 && args.value_dim <= 128 &&
         (args.cache.kind == CacheKind::kF16 || args.cache.kind == CacheKind::kBf16);
}

void attend_in_tiles(Stream& stream, const AttendArgs& args) {
  const bool bf16 = args.cache.kind == CacheKind::kBf16, small = args.key_dim <= 64 && args.value_dim <= 64;
  if (small) return bf16 ? launch_tiles<true, 64>(stream, args) : launch_tiles<false, 64>(stream, args);
  return bf16 ? launch_tiles<true, 128>(stream, args) : launch_tiles<false, 128>(stream, args);
}

}  // namespace qgen::QGEN_BACKEND
