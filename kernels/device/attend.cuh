// Attention of one token, or of each of a few: the keys are split over blocks as well as the heads, every key and value
// is read once for all queries that share it, and the block that ends last puts the parts together. How keys are split
// depends on the length alone, so a token comes out the same alone and among others. (Split keys: Flash-Decoding, Dao
// et al. 2023; running maximum and sum: Milakov and Gimelshein 2018.)
#pragma once

#include "kernels/device/codes.cuh"
#include "kernels/device/fetch.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kAttendWarps = 4, kAttendThreads = kAttendWarps * kWarp;
constexpr int kMostQueries = 8;  // of one key-value head to a block
constexpr int kSplitUnit = 32;   // keys
constexpr int kPiece = 8;        // elements of a row to a lane, of every kPiece * kWarp
constexpr int kWideQueries = 2;  // to a block where heads are wider than that

// Head h of a token.
QGEN_DEVICE const float* head_of(const HeadRows& heads, int token, int h) {
  return heads.x + token * heads.stride + h * heads.head_stride;
}

// A warp normalizes head h, of `dim` elements, where it lies in shared memory.
QGEN_DEVICE void normalize_head(const DeviceNorm& norm, int h, int dim, float* x) {
  for (int begin = 0; begin < dim; begin += norm.group) {
    float mean = 0, squares = 0;
    if (norm.kind == Norm::Kind::kLayer) {
      for (int i = lane_index(); i < norm.group; i += kWarp) mean += x[begin + i];
      mean = sum_lanes(mean) / float(norm.group);
    }
    for (int i = lane_index(); i < norm.group; i += kWarp)
      squares = fused_product(x[begin + i] - mean, x[begin + i] - mean, squares);
    const float factor =
        norm.kind == Norm::Kind::kScale ? 1 : rsqrt_exact(sum_lanes(squares) / float(norm.group) + norm.eps);
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

// A warp's head of q or k: norm, rotation, times `scale`. `out` (padded key_dim) is shared memory. A key comes out the
// same from every kernel.
QGEN_DEVICE void prepare_head(const AttendArgs& args, const HeadRows& heads, const DeviceNorm& norm, int token, int h,
                              float scale, float* out) {
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
  if (scale != 1) {
    for (int i = lane_index(); i < d; i += kWarp) out[i] = rounded_product(out[i], scale);
  }
}

// What queries of a token are multiplied by.
QGEN_DEVICE float query_scale(const AttendArgs& args, int position) {
  if (args.temperature_beta == 0) return args.scale;
  const int steps = (position + args.temperature_offset) / args.temperature_interval;
  return args.scale * (1 + args.temperature_beta * log1p_exact(float(steps)));
}

// c tanh(score / c), by way of the exponential: its error is some 2^-23 of c.
QGEN_DEVICE float capped_score(float score, float cap) { return cap * (1 - 2 / (1 + exp_fast(2 * score / cap))); }

// The first key that a token sees.
QGEN_DEVICE int first_key(const AttendArgs& args, int position) {
  int first = args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
  if (args.chunk > 0) {
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

// A warp puts one row of a token into the cache.
template <CacheKind kKind>
QGEN_DEVICE void store_row(const float* values, int d, uint8_t* row, float* factor_out, const Cache& cache, int token) {
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
      const uint16_t bits = f16_bits(value);
      reinterpret_cast<uint16_t*>(row)[i] = bits;
      if ((bits & 0x7FFF) == 0x7C00) note_overflow(cache, token);
    } else if constexpr (kKind == CacheKind::kBf16) {
      reinterpret_cast<uint16_t*>(row)[i] = bf16_bits(value);
    } else if constexpr (kKind == CacheKind::kI8) {
      row[i] = uint8_t(int8_t(round_to_even(value)));
    } else {
      row[i] = e4m3_bits(value);
    }
  }
}

// Elements 8 j to 8 j + 7 of a row of the cache, as they are stored.
template <CacheKind kKind>
struct PieceType {
  using Type = Bytes16;
};
template <>
struct PieceType<CacheKind::kI8> {
  using Type = Bytes8;
};
template <>
struct PieceType<CacheKind::kE4M3> {
  using Type = Bytes8;
};
template <>
struct PieceType<CacheKind::kF32> {
  struct Type {
    Floats4 half[2];
  };
};
template <CacheKind kKind>
using Piece = typename PieceType<kKind>::Type;

template <CacheKind kKind>
QGEN_DEVICE Piece<kKind> load_piece(const uint8_t* row, int j) {
  if constexpr (kKind == CacheKind::kF32) {
    const float* const from = reinterpret_cast<const float*>(row) + j * kPiece;
    return {{load_floats4(from), load_floats4(from + 4)}};
  } else {
    return reinterpret_cast<const Piece<kKind>*>(row)[j];
  }
}

// Its elements, without the row's factor.
template <CacheKind kKind>
QGEN_DEVICE void widen_piece(const Piece<kKind>& piece, float (&out)[kPiece]) {
  if constexpr (kKind == CacheKind::kF32) {
    QGEN_UNROLL
    for (int i = 0; i < kPiece; ++i) out[i] = piece.half[i / 4].at[i % 4];
  } else if constexpr (kKind == CacheKind::kF16 || kKind == CacheKind::kBf16) {
    QGEN_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      const uint16_t bits = uint16_t(piece.word[i / 2] >> (i % 2 * 16));
      out[i] = kKind == CacheKind::kF16 ? f16_value(bits) : bf16_value(bits);
    }
  } else {
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

// Pieces of keys and values that a lane has under way.
template <CacheKind kKind, int kKeys, int kPieces>
struct KeyPieces {
  Piece<kKind> key[kKeys][kPieces], value[kKeys][kPieces];
  float key_factor[kKeys], value_factor[kKeys];
};

// What the key-value head of a token needs before anyone attends to it: two warps, one for the key and one for the
// value. `scratch` (padded head) is shared memory of each warp's own.
template <CacheKind kKind>
QGEN_DEVICE void store_token(const AttendArgs& args, int token, int kv, bool key, float* scratch) {
  const Cache& cache = args.cache;
  const int position = args.position[token];
  const int32_t page = page_at(cache, cache.tables + args.sequence[token] * cache.ring, position >> cache.page_shift);
  const int64_t at = page_row(cache, page, args.kv_heads, kv) + page_offset(cache, position);
  if (key) {
    prepare_head(args, args.k, args.k_norm, token, kv, 1, scratch);
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

// Which keys a block sees.
struct Keys {
  int begin, end;
  int parts;  // that have any
};
QGEN_DEVICE Keys keys_of(const AttendArgs& args, int position, int split) {
  const int length = position + 1, first = first_key(args, position), count = length - first;
  const int even = (count + args.splits - 1) / args.splits;
  const int size = (even + kSplitUnit - 1) / kSplitUnit * kSplitUnit;
  const int begin = first + split * size;
  return {begin, begin + size < length ? begin + size : length, (count + size - 1) / size};
}
// Pages at most that a split of the keys lies in.
inline int split_pages(const Cache& cache, int splits) {
  if (cache.ring == 1) return 1;
  return (cache.ring * cache.page_tokens / splits + kSplitUnit) / cache.page_tokens + 2;
}

// Of a part of the keys: the largest score, the sum of exp(score - largest) and so weighted values.
struct Running {
  float largest, sum;
};
constexpr float kLowest = -3.0e38f;
// The factor that rescales the sums of a part with `part` as largest score to those with `all`.
QGEN_DEVICE float worth(float part, float all) { return exp_fast(part - all); }

// Element c of a head: its weighted values by all that was weighed, the sink too, times the output gate.
QGEN_DEVICE float mixed_value(const AttendArgs& args, int token, int head, int c, float value, const Running& all) {
  float sum = all.sum, factor = 1;
  if (args.sinks != nullptr) {
    const float sink = args.sinks[head], largest = larger(all.largest, sink);
    factor = worth(all.largest, largest);
    sum = sum * factor + worth(sink, largest);
  }
  const float mixed = value * factor / sum;
  return args.gate.x == nullptr ? mixed : mixed * sigmoid(head_of(args.gate, token, head)[c]);
}

// Floats of shared memory for what warps and parts hand over.
constexpr int attend_merged_floats(int queries, int row, int splits) {
  const int of_warps = kAttendWarps * (row + 2), of_parts = splits + 2;
  return queries * (of_warps > of_parts ? of_warps : of_parts);
}

struct AttendKernelArgs {
  AttendArgs attend;
  bool store;
};

// kPieces: of a row to a lane.
template <CacheKind kKind, int kQueries, int kPieces>
QGEN_KERNEL(kAttendThreads, 1)
attend_kernel(const AttendKernelArgs both, const LaunchTimes times) {
  const AttendArgs& args = both.attend;
  KernelScope scope(times);
  const int group = args.heads / args.kv_heads, tiles = (group + kQueries - 1) / kQueries;
  const int split = int(block_index().x), row_of_call = int(block_index().z), token = args.first_token + row_of_call;
  // The first blocks, so that they do not wait for others to end, fetch what the next kernel reads.
  const int fetches = args.next.bytes > 0;
  if (fetches && block_index().y == 0) {
    fetch_share<kAttendThreads>(args.next, unsigned(split), unsigned(args.splits));
    return;
  }
  const int y_index = int(block_index().y) - fetches, kv = y_index / tiles, tile = y_index % tiles;
  const int first_head = kv * group + tile * kQueries;
  const int queries = group - tile * kQueries < kQueries ? group - tile * kQueries : kQueries;
  scope.wait_for_inputs();
  const int position = args.position[token];
  const Keys keys = keys_of(args, position, split);
  if (split >= keys.parts) return;

  const int key_row = padded(args.key_dim), d = args.value_dim, row = padded(d);
  float* const q_shared = shared_memory<float>();              // (queries, key_row)
  float* const store_shared = q_shared + kQueries * key_row;   // (2, longest row)
  float* const merged = store_shared + 2 * head_floats(args);  // (warps, queries, row + 2), then (queries, parts + 2)
  float* const flag = merged + attend_merged_floats(kQueries, row, args.splits);
  uint32_t* const page_rows = reinterpret_cast<uint32_t*>(flag + 1);  // where the pages of the split begin in the cache

  const Cache& cache = args.cache;
  const int warp = warp_index();
  const int first_page = keys.begin >> cache.page_shift, last_page = (keys.end - 1) >> cache.page_shift;
  const int32_t* const table = cache.tables + args.sequence[token] * cache.ring;
  for (int i = thread_index(); i <= last_page - first_page; i += kAttendThreads)
    page_rows[i] = uint32_t(page_row(cache, page_at(cache, table, first_page + i), args.kv_heads, kv));
  const float scale = query_scale(args, position);
  for (int i = warp; i < kQueries; i += kAttendWarps) {
    if (i < queries) {
      prepare_head(args, args.q, args.q_norm, token, first_head + i, scale, q_shared + i * key_row);
    } else {
      for (int c = lane_index(); c < key_row; c += kWarp) q_shared[i * key_row + c] = 0;
    }
  }
  // The block that sees a token's own key stores its key and value; blocks of other query tiles store the same bytes.
  if (both.store && split == keys.parts - 1 && warp < 2)
    store_token<kKind>(args, token, kv, warp == 0, store_shared + warp * head_floats(args));
  barrier();

  // As many lanes as the longer row has pieces take a key, a power of two.
  int lanes = 1;
  while (lanes < kWarp && (lanes * kPiece < key_row || lanes * kPiece < row)) lanes *= 2;
  constexpr int kElements = kPieces * kPiece;  // of a lane
  // Piece p of a lane.
  const auto piece = [&](int p) { return lane_index() % lanes + p * kWarp; };
  const int at_once = kAttendThreads / lanes;
  float q[kQueries][kElements], sums[kQueries][kElements];
  Running running[kQueries];
  QGEN_UNROLL
  for (int i = 0; i < kQueries; ++i) {
    running[i] = {kLowest, 0};
    QGEN_UNROLL
    for (int c = 0; c < kElements; ++c) {
      const int at = piece(c / kPiece) * kPiece + c % kPiece;
      q[i][c] = at < key_row ? q_shared[i * key_row + at] : 0;
      sums[i][c] = 0;
    }
  }
  // Keys of a lane in a step. Those of the next step are under way while it computes.
  constexpr int kKeys = kPieces > 1 ? 1 : (kQueries <= 4 ? 4 : 2) / (kKind == CacheKind::kF32 ? 2 : 1);
  const int step = kKeys * at_once;
  const auto key_at = [&](int base, int u) { return base + u * at_once + thread_index() / lanes; };
  KeyPieces<kKind, kKeys, kPieces> next;
  const auto fetch = [&](int base) {
    QGEN_UNROLL
    for (int u = 0; u < kKeys; ++u) {
      const int there = key_at(base, u), index = there < keys.end ? there : keys.begin;
      // 2^32 rows are more than a GPU has room for.
      const uint32_t at = page_rows[(index >> cache.page_shift) - first_page] + uint32_t(page_offset(cache, index));
      const uint8_t* const key = cache.keys + uint64_t(at) * uint32_t(cache.key_bytes);
      const uint8_t* const value = cache.values + uint64_t(at) * uint32_t(cache.value_bytes);
      QGEN_UNROLL
      for (int p = 0; p < kPieces; ++p) {
        const int j = piece(p);
        next.key[u][p] = next.value[u][p] = {};
        if (j * kPiece < key_row) next.key[u][p] = load_piece<kKind>(key, j);
        if (j * kPiece < row) next.value[u][p] = load_piece<kKind>(value, j);
      }
      next.key_factor[u] = has_factors(kKind) ? cache.key_factor[at] : 1;
      next.value_factor[u] = has_factors(kKind) ? cache.value_factor[at] : 1;
    }
  };
  fetch(keys.begin);
  QGEN_UNROLL_BY(1)
  for (int base = keys.begin; base < keys.end; base += step) {
    const KeyPieces<kKind, kKeys, kPieces> now = next;
    if (base + step < keys.end) fetch(base + step);
    // The scores of all queries and keys, then their weights, so that what one waits for another computes in.
    float weight[kKeys * kQueries];
    QGEN_UNROLL
    for (int u = 0; u < kKeys; ++u) {
      float key[kPieces][kPiece];
      QGEN_UNROLL
      for (int p = 0; p < kPieces; ++p) widen_piece<kKind>(now.key[u][p], key[p]);
      QGEN_UNROLL
      for (int i = 0; i < kQueries; ++i) {
        float score = 0;
        QGEN_UNROLL
        for (int c = 0; c < kElements; ++c) score += q[i][c] * key[c / kPiece][c % kPiece];
        weight[u * kQueries + i] = score;
      }
    }
    sum_lanes_each(weight, lanes);
    if constexpr (has_factors(kKind)) {
      QGEN_UNROLL
      for (int n = 0; n < kKeys * kQueries; ++n) weight[n] *= now.key_factor[n / kQueries];
    }
    if (args.softcap > 0) {
      QGEN_UNROLL
      for (int n = 0; n < kKeys * kQueries; ++n) weight[n] = capped_score(weight[n], args.softcap);
    }
    QGEN_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      float largest = running[i].largest;
      QGEN_UNROLL
      for (int u = 0; u < kKeys; ++u) {
        float& score = weight[u * kQueries + i];
        if (key_at(base, u) >= keys.end) score = kLowest;
        largest = larger(largest, score);
      }
      const float old = worth(running[i].largest, largest);
      running[i] = {largest, running[i].sum * old};
      QGEN_UNROLL
      for (int c = 0; c < kElements; ++c) sums[i][c] *= old;
      QGEN_UNROLL
      for (int u = 0; u < kKeys; ++u) {
        float& of_key = weight[u * kQueries + i];
        of_key = key_at(base, u) < keys.end ? worth(of_key, largest) : 0;
        running[i].sum += of_key;
        of_key *= now.value_factor[u];
      }
    }
    QGEN_UNROLL
    for (int u = 0; u < kKeys; ++u) {
      float value[kPieces][kPiece];
      QGEN_UNROLL
      for (int p = 0; p < kPieces; ++p) widen_piece<kKind>(now.value[u][p], value[p]);
      QGEN_UNROLL
      for (int i = 0; i < kQueries; ++i) {
        QGEN_UNROLL
        for (int c = 0; c < kElements; ++c) sums[i][c] += weight[u * kQueries + i] * value[c / kPiece][c % kPiece];
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
      for (int c = 0; c < kElements; ++c) sums[i][c] = sums[i][c] * mine + shuffle_xor(sums[i][c], mask) * theirs;
    }
    float* const out = merged + (warp * kQueries + i) * (row + 2);
    if (lane_index() < lanes) {
      QGEN_UNROLL
      for (int c = 0; c < kElements; ++c) {
        const int at = piece(c / kPiece) * kPiece + c % kPiece;
        if (at < row) out[at] = sums[i][c];
      }
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
  // Element c of a head from its weighted values and what they weigh.
  const auto put = [&](int head, int c, float value, const Running& all) {
    args.y[token * args.y_stride + head * d + c] = mixed_value(args, token, head, c, value, all);
  };
  const int64_t partial_row = row + 2;
  const auto partial = [&](int head, int part) {
    return args.partial + ((int64_t(row_of_call) * args.heads + head) * args.splits + part) * partial_row;
  };
  for (int index = thread_index(); index < queries * row; index += kAttendThreads) {
    const int i = index / row, c = index % row, head = first_head + i;
    Running all;
    const float value = put_together(merged + i * (row + 2), kQueries * (row + 2), kAttendWarps, c, all);
    if (keys.parts == 1) {
      if (c < d) put(head, c, value, all);
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

  // The block that ends last has all parts.
  uint32_t* const counter = args.counter + (row_of_call * args.kv_heads + kv) * tiles + tile;
  if (!ends_last(counter, uint32_t(keys.parts), reinterpret_cast<uint32_t*>(flag))) return;
  // What each part is worth, then the sums.
  float* const shares = merged;  // (queries, parts + 2)
  for (int i = warp; i < queries; i += kAttendWarps) {
    const float* const from = partial(first_head + i, 0) + row;
    float* const share = shares + i * (keys.parts + 2);
    float largest = kLowest, sum = 0;
    for (int p = lane_index(); p < keys.parts; p += kWarp) largest = larger(largest, from[p * partial_row]);
    largest = largest_lane(largest);
    for (int p = lane_index(); p < keys.parts; p += kWarp) {
      share[p] = worth(from[p * partial_row], largest);
      sum += share[p] * from[p * partial_row + 1];
    }
    sum = sum_lanes(sum);
    if (lane_index() == 0) {
      share[keys.parts] = largest;
      share[keys.parts + 1] = sum;
    }
  }
  barrier();
  for (int index = thread_index(); index < queries * d; index += kAttendThreads) {
    const int i = index / d, c = index % d;
    const float* const from = partial(first_head + i, 0) + c;
    const float* const share = shares + i * (keys.parts + 2);
    float value = 0;
    QGEN_UNROLL_BY(8)
    for (int p = 0; p < keys.parts; ++p) value += share[p] * from[p * partial_row];
    put(first_head + i, c, value, {share[keys.parts], share[keys.parts + 1]});
  }
}

}  // namespace qgen::QGEN_BACKEND
