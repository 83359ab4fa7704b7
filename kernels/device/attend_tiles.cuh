// Attention of many tokens: 64 queries of a head go through the keys 64 at a time, all products in 16-bit floats with
// sums in F32, and no score ever leaves the registers (FlashAttention-2, Dao 2023).
#pragma once

#include "kernels/device/attend.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kTileQueries = 64, kTileKeys = 64;
constexpr int kTileAttendWarps = 4, kTileAttendThreads = kTileAttendWarps * kWarp;
constexpr int kAttendStages = 2;

// Elements from key to key in shared memory. The paddings keep lanes that read together in different banks: 16 bytes of
// neighbouring keys, and for values the same 16 bytes of eight.
template <int kDim>
constexpr int kKeyStride = kDim + 32;
template <int kDim>
constexpr int kValueStride = kDim + 8;
template <int kDim>
constexpr int kAttendStage = kTileKeys*(kKeyStride<kDim> + kValueStride<kDim>);  // elements

// kDim: the longer of key and value, or the next that there is; what lies between is zero.
template <bool kBf16, int kDim>
QGEN_KERNEL(kTileAttendThreads, 1)
attend_tiles_kernel(const AttendArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int lane = lane_index(), g = lane / 4, q = lane % 4;
  const int head = int(block_index().y), kv = head / (args.heads / args.kv_heads);
  const int key_dim = args.key_dim, d = args.value_dim;
  // The last queries, which see most keys, first.
  const int first_token = int(grid_size().x - 1 - block_index().x) * kTileQueries,  // of the launch
      warp_token = first_token + warp_index() * 16;
  const int position = args.position[args.first_token];
  const auto pair = [](float low, float high) { return kBf16 ? bf16_pair(low, high) : f16_pair(low, high); };

  // Queries, one after the other, go through this warp's piece of shared memory into the registers of the lanes that
  // hold them as operands of MMA.
  uint16_t* const memory = shared_memory<uint16_t>();
  float* const rotated = reinterpret_cast<float*>(memory) + warp_index() * kDim;
  uint32_t query[kDim / 16][4];
  LaneHead<kDim / kWarp> next;  // on its way while the one before it is prepared
  next.load_weights(args.q_norm, head, key_dim);
  const auto load_query = [&](int r) {
    if (const int token = args.first_token + warp_token + r; warp_token + r < args.tokens)
      next.load(head_of(args.q, token, head), key_dim, args.rotation, token);
  };
  load_query(0);
  QGEN_UNROLL_BY(1)
  for (int r = 0; r < 16; ++r) {
    const int token = warp_token + r;
    LaneHead<kDim / kWarp> now = next;
    if (r + 1 < 16) load_query(r + 1);
    if (token < args.tokens) {
      now.prepare(args, args.q_norm, head, key_dim, padded(key_dim), true, rotated);
      const float scale = query_scale(args, position + token);
      for (int i = lane; i < key_dim; i += kWarp) rotated[i] = rounded_product(rotated[i], scale);
    }
    warp_barrier();
    QGEN_UNROLL
    for (int window = 0; window < kDim / 32; ++window) {
      QGEN_UNROLL
      for (int s = 0; s < 2; ++s) {
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) {
          const int at = window * 32 + q * 8 + s * 4 + j * 2;
          const bool held = token < args.tokens;
          const uint32_t two =
              pair(held && at < key_dim ? rotated[at] : 0, held && at + 1 < key_dim ? rotated[at + 1] : 0);
          if (g == r % 8 && r < 8) query[window * 2 + s][2 * j] = two;
          if (g == r % 8 && r >= 8) query[window * 2 + s][2 * j + 1] = two;
        }
      }
    }
    warp_barrier();
  }
  barrier();

  const int last_token = first_token + kTileQueries < args.tokens ? first_token + kTileQueries : args.tokens;
  const int end = position + last_token;  // keys
  const int begin = first_key(args, position + first_token) / kTileKeys * kTileKeys;
  const int tiles = (end - begin + kTileKeys - 1) / kTileKeys;
  const Cache& cache = args.cache;
  const int32_t* const table = cache.tables + args.sequence[args.first_token] * cache.ring;
  const auto copy_tile = [&](int tile) {
    if (tile < tiles) {
      uint16_t* const keys = memory + tile % kAttendStages * kAttendStage<kDim>;
      uint16_t* const values = keys + kTileKeys * kKeyStride<kDim>;
      // A tile begins at a multiple of its keys, so it lies in one page.
      const int first = begin + tile * kTileKeys;
      const int64_t first_row = page_row(cache, page_at(cache, table, first >> cache.page_shift), args.kv_heads, kv) +
                                page_offset(cache, first);
      for (int i = thread_index(); i < kTileKeys * kDim / 8; i += kTileAttendThreads) {
        const int row = i / (kDim / 8), piece = i % (kDim / 8);
        const bool there = first + row < end;
        copy_async16(keys + row * kKeyStride<kDim> + piece * 8,
                     cache.keys + (first_row + row) * cache.key_bytes + piece * 16,
                     there && piece * 16 < cache.key_bytes);
        copy_async16(values + row * kValueStride<kDim> + piece * 8,
                     cache.values + (first_row + row) * cache.value_bytes + piece * 16,
                     there && piece * 16 < cache.value_bytes);
      }
    }
    copy_async_commit();
  };

  float sums[kDim / 8][4] = {};
  Running running[2] = {{kLowest, 0}, {kLowest, 0}};  // of rows g and g + 8; a lane's own part of the sum
  copy_tile(0);
  for (int tile = 0; tile < tiles; ++tile) {
    copy_tile(tile + 1);
    copy_async_wait<kAttendStages - 1>();
    barrier();
    const uint16_t* const keys = memory + tile % kAttendStages * kAttendStage<kDim>;
    const uint16_t* const values = keys + kTileKeys * kKeyStride<kDim>;
    float score[kTileKeys / 8][4];
    QGEN_UNROLL
    for (int n = 0; n < kTileKeys / 8; ++n) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) score[n][j] = 0;
      QGEN_UNROLL
      for (int window = 0; window < kDim / 32; ++window) {
        const Bytes16 key =
            *reinterpret_cast<const Bytes16*>(keys + (n * 8 + g) * kKeyStride<kDim> + window * 32 + q * 8);
        QGEN_UNROLL
        for (int s = 0; s < 2; ++s) {
          const uint32_t two[2] = {key.word[2 * s], key.word[2 * s + 1]};
          multiply_add<kBf16 ? Codes::kBf16 : Codes::kF16>(score[n], query[window * 2 + s], two);
        }
      }
    }
    if (args.softcap > 0) [[unlikely]] {
      QGEN_UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) score[n][j] = capped_score(score[n][j], args.softcap);
      }
    }
    // Where a token of the warp does not see all keys of the tile.
    const int tile_key = begin + tile * kTileKeys, warp_at = position + warp_token;
    if (tile_key + kTileKeys - 1 > warp_at || tile_key < first_key(args, warp_at + 15)) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int at = warp_at + g + 8 * h - tile_key, sees = first_key(args, warp_at + g + 8 * h) - tile_key;
        QGEN_UNROLL
        for (int n = 0; n < kTileKeys / 8; ++n) {
          QGEN_UNROLL
          for (int j = 0; j < 2; ++j) {
            const int key = n * 8 + 2 * q + j;
            if (key > at || key < sees) score[n][2 * h + j] = kLowest;
          }
        }
      }
    }
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      float largest = running[h].largest;
      QGEN_UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) largest = larger(largest, larger(score[n][2 * h], score[n][2 * h + 1]));
      largest = largest_lane(largest, 4);
      const float old = worth(running[h].largest, largest);
      running[h].largest = largest;
      running[h].sum *= old;
      QGEN_UNROLL
      for (int n = 0; n < kDim / 8; ++n) {
        sums[n][2 * h] *= old;
        sums[n][2 * h + 1] *= old;
      }
      QGEN_UNROLL
      for (int n = 0; n < kTileKeys / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) {
          float& s = score[n][2 * h + j];
          s = s == kLowest ? 0 : worth(s, largest);
          running[h].sum += s;
        }
      }
    }
    QGEN_UNROLL
    for (int s = 0; s < kTileKeys / 16; ++s) {
      const uint32_t a[4] = {pair(score[2 * s][0], score[2 * s][1]), pair(score[2 * s][2], score[2 * s][3]),
                             pair(score[2 * s + 1][0], score[2 * s + 1][1]),
                             pair(score[2 * s + 1][2], score[2 * s + 1][3])};
      QGEN_UNROLL
      for (int n = 0; n < kDim / 16; ++n) {
        // Matrices: the first and the last 8 keys, at the first and at the last 8 of 16 elements.
        const int matrix = lane / 8, key = s * 16 + matrix % 2 * 8 + lane % 8, at = n * 16 + matrix / 2 * 8;
        uint32_t b[4];
        load_transposed(b, values + key * kValueStride<kDim> + at);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        multiply_add<kBf16 ? Codes::kBf16 : Codes::kF16>(sums[2 * n], a, left);
        multiply_add<kBf16 ? Codes::kBf16 : Codes::kF16>(sums[2 * n + 1], a, right);
      }
    }
    barrier();  // before the next copies overwrite what was read here
  }
  copy_async_wait<0>();

  QGEN_UNROLL
  for (int h = 0; h < 2; ++h) {
    const float sum = sum_lanes(running[h].sum, 4);
    const int token = warp_token + g + 8 * h;
    if (token >= args.tokens) continue;
    const int at = args.first_token + token;
    float* const y = args.y + at * args.y_stride + head * d;
    const Share share = share_of(args, head, {running[h].largest, sum});
    const float by = share.factor / share.sum;
    const float* const gate = args.gate.x == nullptr ? nullptr : head_of(args.gate, at, head);
    QGEN_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      QGEN_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int c = n * 8 + 2 * q + j;
        if (c < d) y[c] = sums[n][2 * h + j] * by * (gate == nullptr ? 1 : sigmoid(gate[c]));
      }
    }
  }
}

}  // namespace qgen::QGEN_BACKEND
