// Attention of one token, or of each of a few: the keys are split over blocks as well as the heads, every key and value
// is read once for all queries that share it, and the block that ends last puts the parts together. How keys are split
// depends on the length alone, so a token comes out the same alone and among others. (Split keys: Flash-Decoding, Dao
// et al. 2023.)
// Keys in F16 with heads of up to 256 elements are multiplied in matrix products (attend_matrix.cuh), others by lanes.
// Each warp copies tiles of keys and values into shared memory of its own, the next keys while it is at the values and
// the other way round. A token of a short text waits for memory and for instructions more than it computes: so what it
// needs is asked for at once, and what is rarely needed stays out of the way.
#pragma once

#include "kernels/device/attend_lanes.cuh"
#include "kernels/device/attend_matrix.cuh"
#include "kernels/device/attend_sums.cuh"

namespace qgen::QGEN_BACKEND {

// Keys: with fewer, blocks would wait for each other longer than they compute; of more, whole rounds of a block's
// warps, since parts take time to be put together.
constexpr int kLeastSplit = 64, kSplitUnit = 128;

// Which keys a block sees, none where it begins behind the end.
struct Keys {
  int begin, end;
  bool last;  // the token's own is among them
  int count, size;

  // That have any.
  QGEN_DEVICE int parts() const { return count <= size ? 1 : int(unsigned(count + size - 1) / unsigned(size)); }
};
QGEN_DEVICE Keys keys_of(const AttendArgs& args, int position, int split) {
  const int length = position + 1, first = first_key(args, position), count = length - first;
  const int even = int(unsigned(count + args.splits - 1) / unsigned(args.splits));
  const int size = even <= kLeastSplit ? kLeastSplit : (even + kSplitUnit - 1) / kSplitUnit * kSplitUnit;
  const int begin = first + split * size, end = begin + size;
  return {begin, end < length ? end : length, end >= length, count, size};
}
// Pages at most that a split of the keys lies in.
inline int split_pages(const Cache& cache, int splits) {
  if (cache.ring == 1) return 1;
  return (cache.ring * cache.page_tokens / splits + kSplitUnit) / cache.page_tokens + 2;
}

// How keys and values lie in the shared memory of each warp of a block.
struct AttendTile {
  int keys;                // most at once, a power of two
  int key_row, value_row;  // elements of a row
  int prepared_row;        // floats for a head of either
  int pitch;               // bytes from row to row, of keys as of values
  int shift;               // so many lanes copy a row, as an exponent of two
  int warp_bytes;          // in all
  // Where things begin in a block's shared memory, behind its AttendPlace and the queries: heads that it stores, the
  // weights of keys or the operands of MatrixAttention, what each warp has of its own, and where pages begin.
  int stored_at, weights_at, warps_at, pages_at;
};

struct AttendKernelArgs {
  AttendArgs attend;
  bool store;
  int group, tiles;  // queries of a key-value head, and the blocks that they are spread over
  AttendTile tile;
};

// kWidth: times kFour elements are room for a row.
template <CacheKind kKind, int kQueries, int kWidth>
QGEN_KERNEL(attend_warps(kKind, kWidth) * kWarp, 2)
attend_kernel(const AttendKernelArgs both, const LaunchTimes times) {
  constexpr int kWarps = attend_warps(kKind, kWidth), kThreads = kWarps * kWarp, kSlots = 4 * kWidth;
  constexpr int kUnit = 16 / bytes_of_element(kKind);  // elements in 16 bytes
  constexpr int kQueryRow = kWidth * kFour;            // floats
  constexpr int kAtOnce = keys_at_once(kQueries, kWidth);
  constexpr bool kMatrices = in_matrices(kKind, kWidth);
  const AttendArgs& args = both.attend;
  KernelScope scope(times);
  const int row_of_call = int(block_index().z), token = args.first_token + row_of_call;
  int split = int(block_index().x), kv = int(block_index().y), query_tile = 0;
  if (both.tiles > 1) [[unlikely]] {
    query_tile = kv % both.tiles;
    kv /= both.tiles;
  }
  int first_query = query_tile * kQueries;
  int queries = both.group - first_query < kQueries ? both.group - first_query : kQueries;
  const int warp = warp_index(), lane = lane_index();
  const int position = args.position[token], sequence = args.sequence[token];
  if constexpr (kMatrices) {
    // Where the text is so short that most splits are without keys, up to four blocks share the queries of one: each
    // has fewer heads to prepare and fewer results.
    const int parts = keys_of(args, position, 0).parts();
    int shift = 0;
    while (shift < 2 && (2 << shift) <= queries && (parts << (shift + 1)) <= args.splits) ++shift;
    const int each = (queries + (1 << shift) - 1) >> shift, before = (split & ((1 << shift) - 1)) * each;
    split >>= shift;
    first_query += before;
    queries = queries - before < each ? queries - before : each;
    if (queries <= 0) return;
  }
  const int first_head = kv * both.group + first_query;

  // What warps prepare: a query each, `prepared` of them, the token's own key and its value, where this kernel stores
  // them.
  const int prepared = kMatrices ? queries : kQueries, items = both.store ? prepared + 2 : prepared;
  const AttendTile& layout = both.tile;
  const auto norm_of = [&](int item) {
    DeviceNorm norm = args.q_norm;
    if (item == prepared) norm = args.k_norm;
    if (item > prepared) norm = args.v_norm;
    return norm;
  };
  const auto dim_of = [&](int item) { return item > prepared ? args.value_dim : args.key_dim; };
  const auto row_of_item = [&](int item) { return item > prepared ? layout.value_row : layout.key_row; };
  // Queries that are not there are zeros.
  const auto index_of = [&](int item) { return item >= prepared ? kv : first_head + (item < queries ? item : 0); };
  const auto load_weights = [&](int item, LaneHead<kSlots>& head) {
    head.load_weights(norm_of(item), index_of(item), dim_of(item));
  };
  const auto load_head = [&](int item, LaneHead<kSlots>& head) {
    HeadRows rows = args.q;
    if (item == prepared) rows = args.k;
    if (item > prepared) rows = args.v;
    const bool there = item < prepared ? item < queries : rows.x != nullptr;
    head.load(head_of(rows, token, index_of(item)), there ? dim_of(item) : 0, args.rotation, token);
  };
  constexpr int kRounds = (kQueries + 2 + kWarps - 1) / kWarps;
  LaneHead<kSlots> heads[kRounds];
  const auto for_items = [&](const auto& use) {
    QGEN_UNROLL
    for (int round = 0; round < kRounds; ++round) {
      if (const int item = warp + round * kWarps; item < items) use(item, heads[round]);
    }
  };
  for_items(load_weights);
  const Keys keys = keys_of(args, position, split);
  if (keys.begin >= keys.end) return;

  const int key_row = layout.key_row, row = layout.value_row;
  uint8_t* const memory = shared_memory<uint8_t>();
  AttendPlace* const place = reinterpret_cast<AttendPlace*>(memory);
  // (kQueries, kQueryRow), and behind them (2, longer row) of what is stored; or a row of each warp, where heads only
  // pass through on their way to operands and to the cache.
  float* const q_shared = reinterpret_cast<float*>(memory + sizeof(AttendPlace));
  [[maybe_unused]] float* const store_shared = reinterpret_cast<float*>(memory + layout.stored_at);
  [[maybe_unused]] float* const weights =
      reinterpret_cast<float*>(memory + layout.weights_at) + warp * layout.keys * kQueries;
  [[maybe_unused]] uint8_t* const operands = memory + layout.weights_at;
  uint32_t* const page_rows = reinterpret_cast<uint32_t*>(memory + layout.pages_at);  // in the cache
  // Of each warp: the keys and values of its tile, then its sums, (kQueries, row) and (kQueries, 2).
  uint8_t* const regions = memory + layout.warps_at;
  const auto region_of = [&](int w) { return regions + w * layout.warp_bytes; };

  const Cache& cache = args.cache;
  const int first_page = keys.begin >> cache.page_shift, last_page = (keys.end - 1) >> cache.page_shift;
  // And one more, so that none has to ask whether there is a next page.
  QGEN_UNROLL_BY(1)
  for (int i = thread_index(); i <= last_page - first_page + 1; i += kThreads) {
    const int number = first_page + i < last_page ? first_page + i : last_page;
    const int32_t page = page_at(cache, cache.tables + sequence * cache.ring, number);
    page_rows[i] = uint32_t(page_row(cache, page, args.kv_heads, kv));
  }
  if constexpr (kMatrices) clear_queries(operands, key_row, kThreads);
  if (thread_index() == 0) *place = {first_head, queries, row_of_call * args.heads + first_head, keys.parts(), {}, 0};
  barrier();

  // The keys go through the warps in tiles: as few keys to a tile as it takes for all warps to have some.
  int tile_shift = kAtOnce == 4 ? 2 : 1;
  while ((1 << tile_shift) < layout.keys && (kWarps << tile_shift) < keys.end - keys.begin) ++tile_shift;
  const int tile_keys = 1 << tile_shift;
  uint8_t* const key_tile = region_of(warp);
  const auto values_of = [&](int w) { return region_of(w) + layout.warp_bytes / 2; };
  uint8_t* const value_tile = values_of(warp);
  const int step = kWarps << tile_shift;
  // The token's own key and value come from registers, not from the cache, if a first tile has them.
  const int own = both.store && keys.last ? position : -1;
  const int own_at = position - keys.begin;
  const bool own_in_tile = own_at < step;
  int skipped = own;
  // A lane's part of rows [base, base + tile_keys) of keys or values on their way into shared memory.
  const auto row_of = [&](int base, uint32_t& low, uint32_t& high) {
    const int number = base >> cache.page_shift;
    const uint32_t offset = uint32_t(page_offset(cache, base)), left = (1u << cache.page_shift) - offset;
    low = page_rows[number - first_page] + offset;
    high = page_rows[number - first_page + 1] - left;
    return left;  // rows from `base` on that are behind `low`
  };
  const auto copy = [&](const uint8_t* from, uint32_t row_bytes, int units, uint8_t* to, int base) {
    constexpr int kOfLane = (kWidth * kFour / kUnit + kWarp - 1) / kWarp;  // units of a row
    if (base < keys.end) {
      uint32_t low, high;
      const uint32_t left = row_of(base, low, high);
      const int unit = lane & ((1 << layout.shift) - 1), first = lane >> layout.shift, stride = kWarp >> layout.shift;
      const int rows = keys.end - base, skipped_row = skipped - base;
      from += uint64_t(low + uint32_t(first)) * row_bytes + uint32_t(unit) * 16;
      to += first * layout.pitch + unit * 16;
      const auto copy_row = [&](int r) {
        QGEN_UNROLL
        for (int n = 0; n < kOfLane; ++n) {
          if (unit + n * kWarp < units && r < tile_keys && r != skipped_row)
            copy_async16(to + n * kWarp * 16, from + n * kWarp * 16, r < rows);
        }
        to += stride * layout.pitch;
        from += uint64_t(uint32_t(stride)) * row_bytes;
      };
      if (left >= uint32_t(tile_keys)) [[likely]] {
        QGEN_UNROLL_BY(1)
        for (int r = first; r < tile_keys; r += 4 * stride) {
          QGEN_UNROLL
          for (int i = 0; i < 4; ++i) copy_row(r + i * stride);
        }
      } else {  // the tile goes on in another page
        bool in_next = false;
        QGEN_UNROLL_BY(1)
        for (int r = first; r < tile_keys; r += stride) {
          if (uint32_t(r) >= left && !in_next) {
            from += int64_t(int32_t(high - low)) * row_bytes;
            in_next = true;
          }
          copy_row(r);
        }
      }
    }
    copy_async_commit();
  };
  const int key_units = key_row / kUnit, value_units = row / kUnit;
  const auto copy_keys = [&](int base) { copy(cache.keys, uint32_t(cache.key_bytes), key_units, key_tile, base); };
  const auto copy_values = [&](int base) {
    copy(cache.values, uint32_t(cache.value_bytes), value_units, value_tile, base);
  };
  // The factors of the lane's key and its value.
  const int lane_key = lane & (tile_keys - 1);
  RowFactors factors;
  const auto load_factors = [&](int base) {
    const int index = base + lane_key;
    if (index >= keys.end || index == skipped) return;
    uint32_t low, high;
    const uint32_t left = row_of(base, low, high);
    const uint32_t at = (uint32_t(lane_key) < left ? low : high) + uint32_t(lane_key);
    factors = {cache.key_factor[at], cache.value_factor[at]};
  };
  int base = keys.begin + (warp << tile_shift);
  // Where this kernel stores the keys of this call all others are of earlier calls.
  if (!both.store) scope.wait_for_inputs();
  copy_keys(base);
  copy_values(base);
  if constexpr (has_factors(kKind)) load_factors(base);
  if (both.store) scope.wait_for_inputs();
  for_items(load_head);

  const auto prepare = [&](int item, const LaneHead<kSlots>& of_item) {
    // The block that sees a token's own key stores its key and value; blocks of other queries store the same bytes.
    const bool of_query = item < prepared, of_key = item == prepared;
    if (!of_query && (own < 0 || (!of_key && args.v.x == nullptr))) return;  // or values are in the keys
    float* const out = kMatrices  ? q_shared + warp * kQueryRow
                       : of_query ? q_shared + item * kQueryRow
                                  : store_shared + (item - prepared) * layout.prepared_row;
    LaneHead<kSlots> head[1] = {of_item};
    prepare_heads(head, args, norm_of(item), index_of(item), dim_of(item), row_of_item(item), of_query || of_key, out,
                  0);
    if (of_query) {
      if constexpr (kMatrices) put_query<kQueryRow>(operands, key_row, item, out);
      return;
    }
    const uint32_t at = page_rows[last_page - first_page] + uint32_t(page_offset(cache, position));
    const int w = own_at >> tile_shift, r = own_at & (tile_keys - 1);
    uint8_t* const own_key = region_of(w) + r * layout.pitch;
    uint8_t* const own_value = values_of(w) + r * layout.pitch;
    uint8_t* const target =
        of_key ? cache.keys + at * uint64_t(cache.key_bytes) : cache.values + at * uint64_t(cache.value_bytes);
    uint8_t* const in_tile = of_key ? own_key : own_value;
    const float factor =
        store_row_twice<kKind, kSlots>(out, row_of_item(item), target, in_tile, own_in_tile, cache, token);
    if constexpr (has_factors(kKind)) {
      if (lane == 0) {
        place->own_factors[of_key ? 0 : 1] = factor;
        (of_key ? cache.key_factor : cache.value_factor)[at] = factor;
      }
    }
    if (of_key && args.v.x == nullptr) [[unlikely]] {
      if (lane == 0) place->own_factors[1] = factor;
      warp_barrier();
      QGEN_UNROLL_BY(1)
      for (int unit = lane; own_in_tile && unit < value_units; unit += kWarp)
        reinterpret_cast<Bytes16*>(own_value)[unit] = reinterpret_cast<const Bytes16*>(own_key)[unit];
    }
  };
  // A loop, not for_items(): its instructions are fetched once. The head of the next round takes the place of the
  // first.
  QGEN_UNROLL_BY(1)
  for (int item = warp; item < items; item += kWarps) {
    prepare(item, heads[0]);
    if (kMatrices) warp_barrier();  // the next head takes its place
    QGEN_UNROLL
    for (int round = 1; round < kRounds; ++round) heads[round - 1] = heads[round];
  }
  barrier();
  scope.inputs_are_staged();
  skipped = -1;
  if constexpr (has_factors(kKind)) {
    if (base + lane_key == own) {
      factors = {place->own_factors[0], place->own_factors[1]};
    }
  }

  const float scale = args.temperature_beta != 0 ? query_scale(args, args.position[token]) : args.scale;
  auto attention = [&] {
    if constexpr (kMatrices) {
      return MatrixAttention<kQueryRow>(operands, key_row, row, layout.pitch, tile_keys, queries);
    } else {
      return LaneAttention<kKind, kQueries, kWidth>(q_shared, weights, key_units, row, layout.pitch, tile_shift);
    }
  }();
  const auto weigh = [&] {
    attention.weigh(scale, args.softcap, keys.end - base < tile_keys ? keys.end - base : tile_keys, factors);
  };
  QGEN_UNROLL_BY(1)
  for (; base < keys.end; base += step) {
    copy_async_wait<1>();
    warp_barrier();
    attention.score(key_tile);
    // Scores of lanes become weights at once: a copy needs the registers.
    if constexpr (!kMatrices) weigh();
    warp_barrier();  // all lanes have read their keys
    copy_keys(base + step);
    if constexpr (kMatrices) weigh();
    if constexpr (has_factors(kKind)) load_factors(base + step);
    copy_async_wait<1>();
    warp_barrier();
    attention.add_values(value_tile);
    warp_barrier();  // all lanes have read the values
    copy_values(base + step);
  }
  copy_async_wait<0>();
  warp_barrier();
  attention.store(reinterpret_cast<float*>(region_of(warp)));

  const AttendSums<kQueries, kWidth, kWarps, kMatrices> sums(args, *place, regions, layout.warp_bytes, row_of_call,
                                                             split);
  // First those of the block's keys; then, in the block that ends last, those of the parts.
  bool all_parts = place->parts == 1;
  QGEN_UNROLL_BY(1)
  for (;;) {
    barrier();
    sums.add_warps(all_parts);
    if (all_parts || !ends_last(args.counter + place->counter, uint32_t(place->parts), &place->flag)) return;
    all_parts = true;
    sums.gather_parts();
  }
}

}  // namespace qgen::QGEN_BACKEND
