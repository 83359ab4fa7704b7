// Attention of one token, or of each of a few: the keys are split over blocks as well as the heads, every key and value
// is read once for all queries that share it, and the block that ends last puts the parts together. How keys are split
// depends on the length alone, so a token comes out the same alone and among others. (Split keys: Flash-Decoding, Dao
// et al. 2023; running maximum and sum: Milakov and Gimelshein 2018.)
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kAttendWarps = 4, kAttendThreads = kAttendWarps * kWarp;
constexpr int kMostQueries = 8;   // of one key-value head to a block
constexpr int kSplitUnit = 32;    // keys
constexpr int kPiece = 8;         // elements of a row to a lane
constexpr int64_t kFetch = 2048;  // bytes that a thread asks for at once

// A warp's head: optional RMS norm, rotation, times `scale`. `out` (padded head) is shared memory. A key comes out the
// same from every kernel.
QGEN_DEVICE void rotate_head(const AttendArgs& args, const float* in, const float* norm, int token, float scale,
                             float* out) {
  const int d = args.head_dim, half = d / 2;
  float factor = 1;
  if (norm != nullptr) {
    float squares = 0;
    for (int i = lane_index(); i < d; i += kWarp) squares = fused_product(in[i], in[i], squares);
    factor = rsqrt_exact(sum_lanes(squares) / float(d) + args.norm_eps);
  }
  for (int i = lane_index(); i < half; i += kWarp) {
    const float a = rounded_product(rounded_product(in[i], factor), norm != nullptr ? norm[i] : 1);
    const float b = rounded_product(rounded_product(in[i + half], factor), norm != nullptr ? norm[i + half] : 1);
    const float cos = args.call.cos[token * half + i], sin = args.call.sin[token * half + i];
    out[i] = rounded_product(fused_product(a, cos, -rounded_product(b, sin)), scale);
    out[i + half] = rounded_product(fused_product(b, cos, rounded_product(a, sin)), scale);
  }
  for (int i = d + lane_index(); i < padded(d); i += kWarp) out[i] = 0;
}

// A warp puts one row into the cache.
template <CacheKind kKind>
QGEN_DEVICE void store_row(const float* values, int d, uint8_t* row, float* factor_out) {
  float factor = 1;
  if constexpr (has_factors(kKind)) {
    float peak = 0;
    for (int i = lane_index(); i < d; i += kWarp) peak = larger(peak, values[i] < 0 ? -values[i] : values[i]);
    peak = largest_lane(peak);
    factor = peak == 0 ? 1 : peak / (kKind == CacheKind::kI8 ? 127.0f : 448.0f);
    if (lane_index() == 0) *factor_out = factor;
  }
  for (int i = lane_index(); i < padded(d); i += kWarp) {
    const float value = i < d ? values[i] / factor : 0;
    if constexpr (kKind == CacheKind::kF32) {
      reinterpret_cast<float*>(row)[i] = value;
    } else if constexpr (kKind == CacheKind::kF16) {
      reinterpret_cast<uint16_t*>(row)[i] = f16_bits(value);
    } else if constexpr (kKind == CacheKind::kBf16) {
      reinterpret_cast<uint16_t*>(row)[i] = bf16_bits(value);
    } else if constexpr (kKind == CacheKind::kI8) {
      row[i] = uint8_t(int8_t(round_to_even(value)));
    } else {
      row[i] = e4m3_bits(value);
    }
  }
}

// Elements 8 j to 8 j + 7 of a row of the cache, without its factor.
template <CacheKind kKind>
QGEN_DEVICE void load_piece(const uint8_t* row, int j, float (&out)[kPiece]) {
  if constexpr (kKind == CacheKind::kF32) {
    const float* from = reinterpret_cast<const float*>(row) + j * kPiece;
    QGEN_UNROLL
    for (int i = 0; i < kPiece; ++i) out[i] = from[i];
  } else if constexpr (kKind == CacheKind::kF16 || kKind == CacheKind::kBf16) {
    const Bytes16 piece = *reinterpret_cast<const Bytes16*>(row + j * 16);
    QGEN_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      const uint16_t bits = uint16_t(piece.word[i / 2] >> (i % 2 * 16));
      out[i] = kKind == CacheKind::kF16 ? f16_value(bits) : bf16_value(bits);
    }
  } else {
    const Bytes8 piece = *reinterpret_cast<const Bytes8*>(row + j * 8);
    QGEN_UNROLL
    for (int i = 0; i < kPiece; i += 2) {
      const uint32_t two = piece.word[i / 4] >> (i % 4 * 8) & 0xFFFF;
      if constexpr (kKind == CacheKind::kI8) {
        out[i] = float(int8_t(two));
        out[i + 1] = float(int8_t(two >> 8));
      } else {
        // Where a row has a NaN its factor is NaN, whatever becomes of the code.
        const uint32_t pair = e4m3_pair_to_f16(two);
        out[i] = f16_value(uint16_t(pair));
        out[i + 1] = f16_value(uint16_t(pair >> 16));
      }
    }
  }
}

// What the key-value head of a token needs before anyone attends to it: two warps, one for the key and one for the
// value. `rotated` (padded head) is shared memory.
template <CacheKind kKind>
QGEN_DEVICE void store_token(const AttendArgs& args, int token, int kv, bool key, float* rotated) {
  const Cache& cache = args.cache;
  const int64_t at = int64_t(kv) * cache.context + *args.call.position + token;
  const float* row = args.qkv + token * args.qkv_stride;
  const int d = args.head_dim;
  if (key) {
    rotate_head(args, row + (args.heads + kv) * d, args.k_norm, token, 1, rotated);
    warp_barrier();
    store_row<kKind>(rotated, d, cache.keys + at * cache.row_bytes, cache.key_factor + at);
  } else {
    store_row<kKind>(row + (args.heads + args.kv_heads + kv) * d, d, cache.values + at * cache.row_bytes,
                     cache.value_factor + at);
  }
}

// Two warps a block: key and value of (key-value head, token).
template <CacheKind kKind>
QGEN_KERNEL(2 * kWarp, 1)
store_keys_kernel(const AttendArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int token = args.first_token + int(block_index().y);
  store_token<kKind>(args, token, int(block_index().x), warp_index() == 0, shared_memory<float>());
}

// Which keys a block sees.
struct Keys {
  int begin, end;
  int parts;  // that have any
};
QGEN_DEVICE Keys keys_of(const AttendArgs& args, int token, int split) {
  const int length = *args.call.position + token + 1;  // token: of the call
  const int first = args.window > 0 && length > args.window ? length - int(args.window) : 0;
  const int count = length - first;
  const int even = (count + args.splits - 1) / args.splits;
  const int size = (even + kSplitUnit - 1) / kSplitUnit * kSplitUnit;
  const int begin = first + split * size;
  return {begin, begin + size < length ? begin + size : length, (count + size - 1) / size};
}

// Of a part of the keys: the largest score, the sum of exp(score - largest) and so weighted values.
struct Running {
  float largest, sum;
};
constexpr float kLowest = -3.0e38f;
// What the sums of a part with `part` as largest score are worth beside one with `all`.
QGEN_DEVICE float worth(float part, float all) { return exp_fast(part - all); }

struct AttendKernelArgs {
  AttendArgs attend;
  bool store;
};

template <CacheKind kKind, int kQueries>
QGEN_KERNEL(kAttendThreads, 1)
attend_kernel(const AttendKernelArgs both, const LaunchTimes times) {
  const AttendArgs& args = both.attend;
  KernelScope scope(times);
  const int group = args.heads / args.kv_heads, tiles = (group + kQueries - 1) / kQueries;
  const int split = int(block_index().x), row_of_call = int(block_index().z), token = args.first_token + row_of_call;
  // The first blocks, so that they do not wait for others to end, fetch what the next kernel reads.
  const int fetches = args.next_bytes > 0;
  if (fetches && block_index().y == 0) {
    const int64_t share = (args.next_bytes / args.splits + kFetch - 1) / kFetch * kFetch, from = split * share;
    const int64_t to = from + share < args.next_bytes && split + 1 < args.splits ? from + share : args.next_bytes;
    for (int64_t i = from + thread_index() * kFetch; i < to; i += kAttendThreads * kFetch)
      prefetch(args.next + i, int(i + kFetch < to ? kFetch : to - i));
    return;
  }
  const int y_index = int(block_index().y) - fetches, kv = y_index / tiles, tile = y_index % tiles;
  const int first_head = kv * group + tile * kQueries;
  const int queries = group - tile * kQueries < kQueries ? group - tile * kQueries : kQueries;
  scope.wait_for_inputs();
  const Keys keys = keys_of(args, token, split);
  if (split >= keys.parts) return;

  const int d = args.head_dim, row = padded(d);
  float* const q_shared = shared_memory<float>();       // (queries, row)
  float* const key_shared = q_shared + kQueries * row;  // (row)
  float* const merged = key_shared + row;               // (warps, queries, row + 2)
  float* const flag = merged + kAttendWarps * kQueries * (row + 2);

  const int warp = warp_index();
  for (int i = warp; i < kQueries; i += kAttendWarps) {
    if (i < queries) {
      rotate_head(args, args.qkv + token * args.qkv_stride + (first_head + i) * d, args.q_norm, token,
                  rsqrt_exact(float(d)), q_shared + i * row);
    } else {
      for (int c = lane_index(); c < row; c += kWarp) q_shared[i * row + c] = 0;
    }
  }
  // A single token's key and value are stored by whoever reads them, tiles of the same head all alike.
  if (both.store && split == keys.parts - 1 && warp < 2) store_token<kKind>(args, token, kv, warp == 0, key_shared);
  barrier();

  // As many lanes as a row has pieces take a key, a power of two.
  int lanes = 1;
  while (lanes * kPiece < row) lanes *= 2;
  const int j = lane_index() % lanes;
  const bool holds = j * kPiece < row;
  const int at_once = kAttendThreads / lanes;
  float q[kQueries][kPiece], sums[kQueries][kPiece];
  Running running[kQueries];
  QGEN_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    running[i] = {kLowest, 0};
    QGEN_UNROLL
    for (int c = 0; c < kPiece; ++c) {
      q[i][c] = holds ? q_shared[i * row + j * kPiece + c] : 0;
      sums[i][c] = 0;
    }
  }
  const Cache& cache = args.cache;
  constexpr int kInFlight = kQueries <= 4 ? 4 : 2;  // keys of a lane
  for (int base = keys.begin; base < keys.end; base += kInFlight * at_once) {
    float key[kInFlight][kPiece], value[kInFlight][kPiece];
    float key_factor[kInFlight], value_factor[kInFlight];
    bool there[kInFlight];
    QGEN_UNROLL
    for (int u = 0; u < kInFlight; ++u) {
      const int index = base + u * at_once + thread_index() / lanes;
      there[u] = index < keys.end;
      const int64_t at = int64_t(kv) * cache.context + (there[u] ? index : keys.begin);
      if (holds) {
        load_piece<kKind>(cache.keys + at * cache.row_bytes, j, key[u]);
        load_piece<kKind>(cache.values + at * cache.row_bytes, j, value[u]);
      } else {
        QGEN_UNROLL
        for (int c = 0; c < kPiece; ++c) key[u][c] = value[u][c] = 0;
      }
      key_factor[u] = has_factors(kKind) ? cache.key_factor[at] : 1;
      value_factor[u] = has_factors(kKind) ? cache.value_factor[at] : 1;
    }
    QGEN_UNROLL
    for (int u = 0; u < kInFlight; ++u) {
      QGEN_UNROLL
      for (int i = 0; i < kQueries; ++i) {
        float score = 0;
        QGEN_UNROLL
        for (int c = 0; c < kPiece; ++c) score += q[i][c] * key[u][c];
        score = sum_lanes(score, lanes);
        score = there[u] ? score * key_factor[u] : kLowest;
        if (score > running[i].largest || !(score == score)) {
          const float old = worth(running[i].largest, score);
          running[i].largest = score;
          running[i].sum *= old;
          QGEN_UNROLL
          for (int c = 0; c < kPiece; ++c) sums[i][c] *= old;
        }
        const float weight = there[u] ? worth(score, running[i].largest) : 0;
        running[i].sum += weight;
        QGEN_UNROLL
        for (int c = 0; c < kPiece; ++c) sums[i][c] += weight * value_factor[u] * value[u][c];
      }
    }
  }

  // The keys of a warp together, then the warps.
  QGEN_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    for (int mask = lanes; mask < kWarp; mask *= 2) {
      const float largest = shuffle_xor(running[i].largest, mask), sum = shuffle_xor(running[i].sum, mask);
      const float all = larger(running[i].largest, largest);
      const float mine = worth(running[i].largest, all), theirs = worth(largest, all);
      running[i] = {all, running[i].sum * mine + sum * theirs};
      QGEN_UNROLL
      for (int c = 0; c < kPiece; ++c) sums[i][c] = sums[i][c] * mine + shuffle_xor(sums[i][c], mask) * theirs;
    }
    float* const out = merged + (warp * kQueries + i) * (row + 2);
    if (lane_index() < lanes && holds) {
      QGEN_UNROLL
      for (int c = 0; c < kPiece; ++c) out[j * kPiece + c] = sums[i][c];
    }
    if (lane_index() == 0) {
      out[row] = running[i].largest;
      out[row + 1] = running[i].sum;
    }
  }
  barrier();
  // (parts, row + 2) at `from`, the parts `stride` apart, as one.
  const auto put_together = [&](const float* from, int64_t stride, int parts, int c, Running& all) {
    float largest = from[row];
    for (int p = 1; p < parts; ++p) largest = larger(largest, from[p * stride + row]);
    float sum = 0, value = 0;
    for (int p = 0; p < parts; ++p) {
      const float share = worth(from[p * stride + row], largest);
      sum += share * from[p * stride + row + 1];
      value += share * from[p * stride + c];
    }
    all = {largest, sum};
    return value;
  };
  float* const y = args.y + token * args.y_stride;
  const int64_t partial_row = row + 2;
  const auto partial = [&](int head, int part) {
    return args.partial + ((int64_t(row_of_call) * args.heads + head) * args.splits + part) * partial_row;
  };
  for (int index = thread_index(); index < queries * row; index += kAttendThreads) {
    const int i = index / row, c = index % row, head = first_head + i;
    Running all;
    const float value = put_together(merged + i * (row + 2), kQueries * (row + 2), kAttendWarps, c, all);
    if (keys.parts == 1) {
      if (c < d) y[head * d + c] = value / all.sum;
    } else {
      float* const out = partial(head, split);
      out[c] = value;
      if (c == 0) {
        out[row] = all.largest;
        out[row + 1] = all.sum;
      }
    }
  }
  if (keys.parts == 1) return;

  // Who ends last has all parts.
  uint32_t* const counter = args.counter + (row_of_call * args.kv_heads + kv) * tiles + tile;
  if (!ends_last(counter, uint32_t(keys.parts), reinterpret_cast<uint32_t*>(flag))) return;
  for (int index = thread_index(); index < queries * d; index += kAttendThreads) {
    const int head = first_head + index / d, c = index % d;
    Running all;
    const float value = put_together(partial(head, 0), partial_row, keys.parts, c, all);
    y[head * d + c] = value / all.sum;
  }
}

}  // namespace qgen::QGEN_BACKEND
