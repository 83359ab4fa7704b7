// Heads of queries, keys and values before attention: norm, rotation, and the rows of the cache that keys and values go
// to.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

// Head h of a token.
QGEN_DEVICE const float* head_of(const HeadRows& heads, int token, int h) {
  return heads.x + token * heads.stride + h * heads.head_stride;
}

// A warp normalizes head h, of `dim` elements, where it lies in shared memory. kTimes: that loops are unrolled.
template <int kTimes = 4>
QGEN_DEVICE void normalize_head(const DeviceNorm& norm, int h, int dim, float* x) {
  QGEN_UNROLL_BY(1)
  for (int begin = 0; begin < dim; begin += norm.group) {
    float mean = 0, squares = 0;
    if (norm.kind == Norm::Kind::kLayer) {
      QGEN_UNROLL_BY(kTimes)
      for (int i = lane_index(); i < norm.group; i += kWarp) mean += x[begin + i];
      mean = sum_lanes(mean) / float(norm.group);
    }
    QGEN_UNROLL_BY(kTimes)
    for (int i = lane_index(); i < norm.group; i += kWarp)
      squares = fused_product(x[begin + i] - mean, x[begin + i] - mean, squares);
    const float factor =
        norm.kind == Norm::Kind::kScale ? 1 : rsqrt_exact(sum_lanes(squares) / float(norm.group) + norm.eps);
    QGEN_UNROLL_BY(kTimes)
    for (int i = lane_index(); i < norm.group; i += kWarp) {
      const int column = h * dim + begin + i;
      float value = rounded_product(x[begin + i] - mean, factor);
      if (norm.weight != nullptr) value = rounded_product(value, norm.weight[norm.wide_weight ? column : i]);
      x[begin + i] = norm.bias != nullptr ? value + norm.bias[norm.wide_bias ? column : i] : value;
    }
  }
}

// A warp rotates a head in shared memory.
QGEN_DEVICE void rotate_head(const Rotation& rotation, int token, float* x) {
  for (int i = lane_index(); i < rotation.half; i += kWarp) {
    float& first = x[rotation.adjacent ? 2 * i : i];
    float& second = x[rotation.adjacent ? 2 * i + 1 : i + rotation.half];
    const float cos = rotation.cos[token * rotation.half + i], sin = rotation.sin[token * rotation.half + i];
    const float a = first, b = second;
    first = fused_product(a, cos, -rounded_product(b, sin));
    second = fused_product(b, cos, rounded_product(a, sin));
  }
}

// A warp's head of q or k: norm and rotation. `out` (padded key_dim) is shared memory. A key comes out the same from
// every kernel.
QGEN_DEVICE void prepare_head(const AttendArgs& args, const HeadRows& heads, const DeviceNorm& norm, int token, int h,
                              float* out) {
  const int d = args.key_dim;
  const float* const in = head_of(heads, token, h);
  for (int i = lane_index(); i < padded(d); i += kWarp) out[i] = i < d ? in[i] : 0;
  const bool normalizes = norm.kind != Norm::Kind::kNone;
  warp_barrier();
  if (normalizes && !args.norm_after_rotation) {
    normalize_head(norm, h, d, out);
    warp_barrier();
  }
  if (args.rotation.half > 0) {
    rotate_head(args.rotation, token, out + args.rotated_first);
    warp_barrier();
  }
  if (normalizes && args.norm_after_rotation) {
    normalize_head(norm, h, d, out);
    warp_barrier();
  }
}

// What queries of a token are multiplied by.
QGEN_DEVICE float query_scale(const AttendArgs& args, int position) {
  if (args.temperature_beta == 0) return args.scale;
  const int steps = (position + args.temperature_offset) / args.temperature_interval;
  return args.scale * (1 + args.temperature_beta * log1p_exact(float(steps)));
}

// c tanh(score / c), by way of the exponential: its error is some 2^-23 of c.
QGEN_DEVICE float capped_score(float score, float cap) {
  return cap * (1 - 2 * reciprocal_fast(1 + exp_fast(score * (2 / cap))));
}

// The first key that a token sees.
QGEN_DEVICE int first_key(const AttendArgs& args, int position) {
  int first = args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
  if (args.chunk > 0) [[unlikely]] {
    const int begin = position / args.chunk * args.chunk;
    if (begin > first) first = begin;
  }
  return first;
}

// The row of the cache of a key-value head at offset 0 of page `number` of a sequence's table.
QGEN_DEVICE int64_t page_row(const Cache& cache, int32_t page, int kv_heads, int kv) {
  return (int64_t(page) * kv_heads + kv) * cache.page_tokens;
}
QGEN_DEVICE int32_t page_at(const Cache& cache, const int32_t* table, int number) {
  return table[number < cache.ring ? number : number % cache.ring];
}
QGEN_DEVICE int page_offset(const Cache& cache, int position) {
  return int(uint32_t(position) & ((1u << cache.page_shift) - 1));
}

QGEN_DEVICE void note_overflow(const Cache& cache, int token) {
  *cache.overflow = 1;
  // Warps of one launch store the same mark: a race between them is harmless.
  if (cache.overflow_of_tokens[token] == 0) cache.overflow_of_tokens[token] = cache.overflow_mark;
}

// What the elements of a row are divided by, where its largest magnitude is `peak`.
template <CacheKind kKind>
QGEN_DEVICE float row_factor(float peak) {
  return peak == 0 ? 1 : peak / (kKind == CacheKind::kI8 ? 127.0f : 448.0f);
}

// Puts element i into a row of the cache, and returns whether it became an infinity that it was not allowed to be.
template <CacheKind kKind>
QGEN_DEVICE bool store_element(uint8_t* row, int i, float value) {
  if constexpr (kKind == CacheKind::kF32) {
    reinterpret_cast<float*>(row)[i] = value;
  } else if constexpr (kKind == CacheKind::kF16) {
    const uint16_t bits = f16_bits(value);
    reinterpret_cast<uint16_t*>(row)[i] = bits;
    return (bits & 0x7FFF) == 0x7C00;
  } else if constexpr (kKind == CacheKind::kBf16) {
    reinterpret_cast<uint16_t*>(row)[i] = bf16_bits(value);
  } else if constexpr (kKind == CacheKind::kI8) {
    row[i] = uint8_t(int8_t(round_to_even(value)));
  } else {
    // Where a row has a NaN its factor is NaN, and enough: a NaN code would reach queries that do not see the row.
    row[i] = value == value ? e4m3_bits(value) : 0;
  }
  return false;
}

// A warp puts one row of a token into the cache.
template <CacheKind kKind>
QGEN_DEVICE void store_row(const float* values, int d, uint8_t* row, float* factor_out, const Cache& cache, int token) {
  float factor = 1;
  if constexpr (has_factors(kKind)) {
    float peak = 0;
    for (int i = lane_index(); i < d; i += kWarp) peak = larger(peak, values[i] < 0 ? -values[i] : values[i]);
    factor = row_factor<kKind>(largest_lane(peak));
    if (lane_index() == 0) *factor_out = factor;
  }
  for (int i = lane_index(); i < padded(d); i += kWarp) {
    if (store_element<kKind>(row, i, i < d ? values[i] / factor : 0)) note_overflow(cache, token);
  }
}

// Elements of a row, as they are stored, in so many words.
constexpr int bytes_of_element(CacheKind kind) {
  return kind == CacheKind::kF32 ? 4 : kind == CacheKind::kF16 || kind == CacheKind::kBf16 ? 2 : 1;
}
template <int kWords>
struct Words;
template <>
struct Words<4> : Bytes16 {};
template <>
struct Words<2> : Bytes8 {};
template <>
struct Words<1> {
  uint32_t word[1];
};
template <CacheKind kKind, int kCount>
using Elements = Words<kCount * bytes_of_element(kKind) / 4>;

// Elements without the row's factor.
template <CacheKind kKind, int kCount>
QGEN_DEVICE void widen(const Elements<kKind, kCount>& stored, float (&out)[kCount]) {
  QGEN_UNROLL
  for (int i = 0; i < kCount; i += 2) {
    if constexpr (kKind == CacheKind::kF32) {
      out[i] = bits_float(stored.word[i]);
      out[i + 1] = bits_float(stored.word[i + 1]);
    } else if constexpr (kKind == CacheKind::kF16 || kKind == CacheKind::kBf16) {
      const uint16_t low = uint16_t(stored.word[i / 2]), high = uint16_t(stored.word[i / 2] >> 16);
      out[i] = kKind == CacheKind::kF16 ? f16_value(low) : bf16_value(low);
      out[i + 1] = kKind == CacheKind::kF16 ? f16_value(high) : bf16_value(high);
    } else {
      if constexpr (kKind == CacheKind::kI8) {
        const uint32_t turned = stored.word[i / 4] ^ 0x80808080;
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) out[i + j] = turned_i8_value(turned, i % 4 + j);
      } else {
        // Where a row has a NaN its factor is NaN, whatever becomes of the code.
        const uint32_t pair = e4m3_pair_to_f16(stored.word[i / 4] >> (i % 4 * 8) & 0xFFFF);
        out[i] = f16_value(uint16_t(pair));
        out[i + 1] = f16_value(uint16_t(pair >> 16));
      }
    }
  }
}

// What the key-value head of a token needs before anyone attends to it: two warps, one for the key and one for the
// value. `scratch` (padded head) is shared memory of each warp's own.
template <CacheKind kKind>
QGEN_DEVICE void store_token(const AttendArgs& args, int token, int kv, bool key, float* scratch) {
  const Cache& cache = args.cache;
  const int position = args.position[token];
  const int32_t page = page_at(cache, cache.tables + args.sequence[token] * cache.ring, position >> cache.page_shift);
  const int64_t at = page_row(cache, page, args.kv_heads, kv) + page_offset(cache, position);
  if (key) {
    prepare_head(args, args.k, args.k_norm, token, kv, scratch);
    warp_barrier();
    store_row<kKind>(scratch, args.key_dim, cache.keys + at * cache.key_bytes, cache.key_factor + at, cache, token);
    return;
  }
  if (args.v.x == nullptr) return;  // values are in the keys
  const float* value = head_of(args.v, token, kv);
  if (args.v_norm.kind != Norm::Kind::kNone) {
    for (int i = lane_index(); i < args.value_dim; i += kWarp) scratch[i] = value[i];
    warp_barrier();
    normalize_head(args.v_norm, kv, args.value_dim, scratch);
    warp_barrier();
    value = scratch;
  }
  store_row<kKind>(value, args.value_dim, cache.values + at * cache.value_bytes, cache.value_factor + at, cache, token);
}

// Floats of a head in shared memory.
QGEN_DEVICE int head_floats(const AttendArgs& args) {
  return padded(args.key_dim > args.value_dim ? args.key_dim : args.value_dim);
}

// Two warps a block: key and value of (key-value head, token).
template <CacheKind kKind>
QGEN_KERNEL(2 * kWarp, 1)
store_keys_kernel(const AttendArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int token = args.first_token + int(block_index().y);
  store_token<kKind>(args, token, int(block_index().x), warp_index() == 0,
                     shared_memory<float>() + warp_index() * head_floats(args));
}

// A head of q, k or v on its way through a warp's registers: element i is in lane i % kWarp. What it is normalized and
// rotated by is asked for before it is needed, all at once. Its bits are those of prepare_head().
template <int kSlots>
struct LaneHead {
  float x[kSlots], weight[kSlots], cos[kSlots / 2], sin[kSlots / 2];

  // What no kernel writes.
  QGEN_DEVICE void load_weights(const DeviceNorm& norm, int h, int dim) {
    const int count = norm.weight == nullptr ? 0 : norm.wide_weight ? dim : norm.group;
    const float* const from = norm.weight + (norm.wide_weight ? h * dim : 0) + lane_index();
    QGEN_UNROLL
    for (int s = 0; s < kSlots; ++s) weight[s] = lane_index() + s * kWarp < count ? from[s * kWarp] : 1;
  }
  QGEN_DEVICE void load(const float* in, int dim, const Rotation& rotation, int token) {
    const float *const own = in + lane_index(), *const own_cos = rotation.cos + token * rotation.half + lane_index(),
                       *const own_sin = rotation.sin + token * rotation.half + lane_index();
    QGEN_UNROLL
    for (int s = 0; s < kSlots; ++s) x[s] = lane_index() + s * kWarp < dim ? own[s * kWarp] : 0;
    QGEN_UNROLL
    for (int s = 0; s < kSlots / 2; ++s) {
      const bool there = lane_index() + s * kWarp < rotation.half;
      cos[s] = there ? own_cos[s * kWarp] : 0;
      sin[s] = there ? own_sin[s * kWarp] : 0;
    }
  }
};

// Norm and rotation of a warp's heads, `dim` elements each, side by side: while one waits the others go on. Each ends
// up in shared memory, `pitch` floats behind the one before it, with zeros up to `row`.
template <int kSlots, int kHeads>
QGEN_DEVICE void prepare_heads(LaneHead<kSlots> (&heads)[kHeads], const AttendArgs& args, const DeviceNorm& norm, int h,
                               int dim, int row, bool rotates, float* out, int pitch) {
  const int lane = lane_index();
  const bool normalizes = norm.kind != Norm::Kind::kNone;
  // All but the common case takes the long way through shared memory.
  const bool simple = norm.kind != Norm::Kind::kLayer && norm.group == dim && norm.bias == nullptr;
  const bool before = normalizes && !args.norm_after_rotation;
  if (before && simple) {
    float factor[kHeads];
    QGEN_UNROLL
    for (int i = 0; i < kHeads; ++i) {
      float squares = 0;
      QGEN_UNROLL
      for (int s = 0; s < kSlots; ++s) squares = fused_product(heads[i].x[s], heads[i].x[s], squares);
      factor[i] = norm.kind == Norm::Kind::kScale ? 1 : rsqrt_exact(sum_lanes(squares) / float(dim) + norm.eps);
    }
    QGEN_UNROLL
    for (int i = 0; i < kHeads; ++i) {
      QGEN_UNROLL
      for (int s = 0; s < kSlots; ++s)
        heads[i].x[s] = rounded_product(rounded_product(heads[i].x[s], factor[i]), heads[i].weight[s]);
    }
  }
  QGEN_UNROLL
  for (int i = 0; i < kHeads; ++i) {
    QGEN_UNROLL
    for (int s = 0; s < kSlots; ++s) {
      if (lane + s * kWarp < row) out[i * pitch + lane + s * kWarp] = heads[i].x[s];
    }
  }
  warp_barrier();
  const Rotation& rotation = args.rotation;
  QGEN_UNROLL_BY(1)
  for (int turn = 0; turn < 2; ++turn) {
    if (turn == 0 ? before && !simple : normalizes && !before) [[unlikely]] {
      QGEN_UNROLL_BY(1)
      for (int i = 0; i < kHeads; ++i) normalize_head<1>(norm, h, dim, out + i * pitch);
      warp_barrier();
    }
    if (turn == 1 || !rotates || rotation.half == 0) continue;
    QGEN_UNROLL
    for (int i = 0; i < kHeads; ++i) {
      float* const from = out + i * pitch + args.rotated_first;
      QGEN_UNROLL
      for (int s = 0; s < kSlots / 2; ++s) {
        const int at = lane + s * kWarp;
        if (at < rotation.half) {
          float& first = from[rotation.adjacent ? 2 * at : at];
          float& second = from[rotation.adjacent ? 2 * at + 1 : at + rotation.half];
          const float a = first, b = second;
          first = fused_product(a, heads[i].cos[s], -rounded_product(b, heads[i].sin[s]));
          second = fused_product(b, heads[i].cos[s], rounded_product(a, heads[i].sin[s]));
        }
      }
    }
    warp_barrier();
  }
}

// A warp puts a row, of which its lanes have prepared their elements in shared memory, into the cache and, with
// `in_tile`, among the keys or values that its block has in shared memory. Returns the row's factor.
template <CacheKind kKind, int kSlots>
QGEN_DEVICE float store_row_twice(const float* values, int elements, uint8_t* row, uint8_t* tile, bool in_tile,
                                  const Cache& cache, int token) {
  float x[kSlots];
  QGEN_UNROLL
  for (int s = 0; s < kSlots; ++s) x[s] = lane_index() + s * kWarp < elements ? values[lane_index() + s * kWarp] : 0;
  float factor = 1;
  if constexpr (has_factors(kKind)) {
    float peak = 0;
    QGEN_UNROLL
    for (int s = 0; s < kSlots; ++s) peak = larger(peak, x[s] < 0 ? -x[s] : x[s]);
    factor = row_factor<kKind>(largest_lane(peak));
  }
  bool overflows = false;
  QGEN_UNROLL
  for (int s = 0; s < kSlots; ++s) {
    const int i = lane_index() + s * kWarp;
    if (i < elements) {
      const float value = x[s] / factor;
      overflows |= store_element<kKind>(row, i, value);
      if (in_tile) store_element<kKind>(tile, i, value);
    }
  }
  if (overflows) [[unlikely]]
    note_overflow(cache, token);
  return factor;
}

// Tokens of a warp that stores: what one waits for they all do, so that four take hardly longer.
constexpr int kStoreTokens = 4;

// store_keys_kernel() for kStoreTokens tokens, whose heads have at most kSlots * kWarp elements.
template <CacheKind kKind, int kSlots>
QGEN_KERNEL(2 * kWarp, 1)
store_tokens_kernel(const AttendArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int kv = int(block_index().x), begin = int(block_index().y) * kStoreTokens, left = args.tokens - begin;
  const bool keys = warp_index() == 0;
  if (!keys && args.v.x == nullptr) return;  // values are in the keys
  const Cache& cache = args.cache;
  const int dim = keys ? args.key_dim : args.value_dim, row = padded(dim);
  const HeadRows& from = keys ? args.k : args.v;
  const DeviceNorm& norm = keys ? args.k_norm : args.v_norm;
  // Behind the last token that one again.
  int token[kStoreTokens], position[kStoreTokens], table[kStoreTokens];
  QGEN_UNROLL
  for (int i = 0; i < kStoreTokens; ++i) {
    token[i] = args.first_token + begin + (i < left ? i : left - 1);
    position[i] = args.position[token[i]];
    table[i] = args.sequence[token[i]] * cache.ring;
  }
  LaneHead<kSlots> heads[kStoreTokens];
  heads[0].load_weights(norm, kv, dim);
  QGEN_UNROLL
  for (int i = 0; i < kStoreTokens; ++i) {
    QGEN_UNROLL
    for (int s = 0; s < kSlots; ++s) heads[i].weight[s] = heads[0].weight[s];
    heads[i].load(head_of(from, token[i], kv), dim, args.rotation, token[i]);
  }
  int64_t at[kStoreTokens];
  QGEN_UNROLL
  for (int i = 0; i < kStoreTokens; ++i) {
    const int32_t page = page_at(cache, cache.tables + table[i], position[i] >> cache.page_shift);
    at[i] = page_row(cache, page, args.kv_heads, kv) + page_offset(cache, position[i]);
  }
  const int pitch = head_floats(args);
  float* const prepared = shared_memory<float>() + warp_index() * kStoreTokens * pitch;
  prepare_heads(heads, args, norm, kv, dim, row, keys, prepared, pitch);
  QGEN_UNROLL
  for (int i = 0; i < kStoreTokens; ++i) {
    if (i >= left) break;
    uint8_t* const to = keys ? cache.keys + at[i] * cache.key_bytes : cache.values + at[i] * cache.value_bytes;
    const float factor = store_row_twice<kKind, kSlots>(prepared + i * pitch, row, to, nullptr, false, cache, token[i]);
    if constexpr (has_factors(kKind)) {
      if (lane_index() == 0) (keys ? cache.key_factor : cache.value_factor)[at[i]] = factor;
    }
  }
}

}  // namespace qgen::QGEN_BACKEND
