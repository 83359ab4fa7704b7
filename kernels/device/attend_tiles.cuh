// Attention of many tokens: 64 queries of a head go through the keys tile by tile, all products in 16-bit floats with
// sums in F32, and no score ever leaves the registers (FlashAttention-2, Dao 2023).
#pragma once

#include "kernels/device/attend.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kTileQueries = 64;
constexpr int kTileAttendWarps = 4, kTileAttendThreads = kTileAttendWarps * kWarp;
constexpr int kWarpQueries = kTileQueries / kTileAttendWarps;

// kDim: the longer of key and value, or the next that there is; what lies between is zero.
template <CacheKind kKind, int kDim>
struct TileShape {
  static constexpr bool kWide = kDim > 128;
  static constexpr int kKeys = kWide ? 32 : 64;  // of a tile; with more, the scores of wide heads find no registers
  static constexpr int kRowBytes = kDim * 2;
  // Keys and values of a tile, in 16-bit floats. Their 16 bytes are in another order in every row, so that lanes which
  // read together find them in different banks: see key_unit() and value_unit().
  static constexpr int kValuesAt = kKeys * kRowBytes, kTileBytes = 2 * kKeys * kRowBytes;
  // Two of them. Of caches of 8 bits one, and behind it two of codes: keys, values, and the factors of both.
  static constexpr bool kHasCodes = has_factors(kKind);
  static constexpr int kFactorsAt = 2 * kKeys * kDim, kCodesBytes = kFactorsAt + 2 * kKeys * 4;
  static constexpr int kTilesBytes = kTileBytes + (kHasCodes ? 2 * kCodesBytes : kTileBytes);
  // Queries, as operands of MMA: those of wide heads stay in shared memory, others go into registers by way of a tile
  // that is not used yet. Each warp prepares a query at that tile's end, in floats.
  static constexpr int kUnusedAt = kHasCodes ? 0 : kTileBytes, kQueryBytes = kTileQueries * kRowBytes;
  static constexpr int kQueriesAt = kWide ? kTilesBytes : kUnusedAt;
  static constexpr int kScratchAt = kUnusedAt + kTileBytes - kTileAttendWarps * kDim * 4;
  static constexpr int kBytes = kTilesBytes + (kWide ? kQueryBytes : 0);
  static_assert(kWide || kQueriesAt + kQueryBytes <= kScratchAt);
};

// A block's work: ask(0), prepare_queries(), then for each tile ask(tile + 1), widen(tile) where there are codes, and
// attend(tile); at last write().
template <CacheKind kKind, int kDim>
class TileAttention {
  using Shape = TileShape<kKind, kDim>;
  static constexpr int kKeys = Shape::kKeys, kRowBytes = Shape::kRowBytes;
  static constexpr int kWindows = kDim / 32;  // of which each lane has 8 elements of a query or key
  // Products with keys and with values. Values of codes are multiplied by weights that have taken in their factors,
  // which can be small: bf16 reaches that far, and has all codes exactly.
  static constexpr bool kBf16Keys = kKind == CacheKind::kBf16, kBf16Values = kBf16Keys || Shape::kHasCodes;

 public:
  QGEN_DEVICE explicit TileAttention(const AttendArgs& args)
      : args_(args), head_(int(block_index().y)), kv_(head_ / (args.heads / args.kv_heads)) {
    // The last queries, which see most keys, first.
    const int first_token = int(grid_size().x - 1 - block_index().x) * kTileQueries;  // of the launch
    warp_token_ = first_token + warp_index() * kWarpQueries;
    position_ = args.position[args.first_token];
    const int end = first_token + kTileQueries;
    end_ = position_ + (end < args.tokens ? end : args.tokens);
    begin_ = first_key(args, position_ + first_token) / kKeys * kKeys;
    tiles_ = (end_ - begin_ + kKeys - 1) / kKeys;
    const int warp_at = position_ + warp_token_;
    first_seen_ = first_key(args, warp_at);
    all_see_ = first_key(args, warp_at + kWarpQueries - 1);
    table_ = args.cache.tables + args.sequence[args.first_token] * args.cache.ring;
    page_ = page_of(0);
  }

  QGEN_DEVICE int tiles() const { return tiles_; }

  // Begins the copies of a tile, the one behind that which was asked for last.
  QGEN_DEVICE void ask(int tile) {
    if (tile >= tiles_) return;
    const Cache& cache = args_.cache;
    const int key = begin_ + tile * kKeys;
    // A tile begins at a multiple of its keys, so it lies in one page.
    const int64_t from = page_row(cache, page_, args_.kv_heads, kv_) + page_offset(cache, key);
    if (tile + 1 < tiles_) page_ = page_of(tile + 1);  // there when it is needed
    const uint8_t* const keys = cache.keys + from * cache.key_bytes;
    const uint8_t* const values = cache.values + from * cache.value_bytes;
    if constexpr (Shape::kHasCodes) {
      uint8_t* const codes = codes_of(tile);
      const auto plain = [](int, int unit) { return unit; };
      copy<kDim>(codes, keys, cache.key_bytes, end_ - key, plain);
      copy<kDim>(codes + kKeys * kDim, values, cache.value_bytes, end_ - key, plain);
      if (const int row = thread_index(); row < 2 * kKeys) {
        float* const factor = reinterpret_cast<float*>(codes + Shape::kFactorsAt) + row;
        copy_async4(factor, (row < kKeys ? cache.key_factor : cache.value_factor) + from + row % kKeys,
                    key + row % kKeys < end_);
      }
    } else {
      copy<kRowBytes>(tile_at(tile), keys, cache.key_bytes, end_ - key,
                      [](int row, int unit) { return key_unit(row, unit); });
      copy<kRowBytes>(tile_at(tile) + Shape::kValuesAt, values, cache.value_bytes, end_ - key,
                      [](int row, int unit) { return value_unit(row, unit); });
    }
    copy_async_commit();
  }

  // The codes of a tile that has arrived become the tile.
  QGEN_DEVICE void widen(int tile) const {
    constexpr int kUnits = kDim / 8, kRowsAtOnce = kTileAttendThreads / kUnits;  // of 8 elements
    constexpr Codes kCodes = kKind == CacheKind::kI8 ? Codes::kI8 : Codes::kE4M3;
    const int first = thread_index() / kUnits, unit = thread_index() % kUnits;
    const uint8_t* const codes = codes_of(tile);
    QGEN_UNROLL_BY(4)
    for (int row = first; row < 2 * kKeys; row += kRowsAtOnce) {
      const Bytes8 eight = *reinterpret_cast<const Bytes8*>(codes + row * kDim + unit * 8);
      Bytes16 wide;
      QGEN_UNROLL
      for (int i = 0; i < 2; ++i) four_codes<kCodes>(eight.word[i], i8_bias(0), wide.word[2 * i], wide.word[2 * i + 1]);
      if (row >= kKeys) {
        QGEN_UNROLL
        for (int i = 0; i < 4; ++i)
          wide.word[i] = bf16_pair(f16_value(uint16_t(wide.word[i])), f16_value(uint16_t(wide.word[i] >> 16)));
      }
      const int place = row < kKeys ? key_unit(row, unit) : value_unit(row, unit);
      *reinterpret_cast<Bytes16*>(tile_at(tile) + row * kRowBytes + place * 16) = wide;
    }
  }

  // Norm, rotation and scale of the warp's queries.
  QGEN_DEVICE void prepare_queries() {
    constexpr int kSlots = kDim / kWarp;
    const int dim = args_.key_dim, lane = lane_index();
    float* const rotated = reinterpret_cast<float*>(shared_memory<uint8_t>() + Shape::kScratchAt) + warp_index() * kDim;
    LaneHead<kSlots> next;  // on its way while the one before it is prepared
    next.load_weights(args_.q_norm, head_, dim);
    const auto load = [&](int r) {
      if (const int token = args_.first_token + warp_token_ + r; warp_token_ + r < args_.tokens)
        next.load(head_of(args_.q, token, head_), dim, args_.rotation, token);
    };
    load(0);
    QGEN_UNROLL_BY(1)
    for (int r = 0; r < kWarpQueries; ++r) {
      const int token = warp_token_ + r;
      const bool there = token < args_.tokens;
      LaneHead<kSlots> now = next;
      if (r + 1 < kWarpQueries) load(r + 1);
      if (there) now.prepare(args_, args_.q_norm, head_, dim, padded(dim), true, rotated);
      const float scale = query_scale(args_, position_ + token);
      // As load_query() reads them: of each window, for rows up to 7 and for those behind, 16 bytes of each lane.
      uint8_t* const row = queries() + (r / 8 * kWarp + r % 8 * 4) * 16;
      QGEN_UNROLL
      for (int s = 0; s < kSlots / 2; ++s) {
        const int i = 2 * (lane + s * kWarp);
        const float first = there && i < dim ? rounded_product(rotated[i], scale) : 0,
                    second = there && i + 1 < dim ? rounded_product(rotated[i + 1], scale) : 0;
        *reinterpret_cast<uint32_t*>(row + (i / 32 * 2 * kWarp + i % 32 / 8) * 16 + i % 8 * 2) =
            pair<kBf16Keys>(first, second);
      }
      warp_barrier();
    }
    if constexpr (!Shape::kWide) {
      QGEN_UNROLL
      for (int window = 0; window < kWindows; ++window) load_query(window, query_[window]);
    }
  }

  // A tile that has arrived.
  QGEN_DEVICE void attend(int tile) {
    const int key = begin_ + tile * kKeys, warp_at = position_ + warp_token_;
    if (key > warp_at + kWarpQueries - 1 || key + kKeys <= first_seen_) return;  // none of the warp's queries sees any
    float score[kKeys / 8][4] = {};
    score_keys(tile_at(tile), score);
    if constexpr (Shape::kHasCodes) {
      for_factors(tile, 0, [&](int n, int j, float factor) { score[n][j] *= factor; });
    }
    if (args_.softcap > 0) [[unlikely]] {
      QGEN_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) score[n][j] = capped_score(score[n][j], args_.softcap);
      }
    }
    if (key + kKeys - 1 > warp_at || key < all_see_) hide_keys(key, score);
    weigh(score);
    if constexpr (Shape::kHasCodes) {
      // A key that a query does not see has weight 0, and may have a NaN factor: 0 * NaN would be NaN.
      for_factors(tile, kKeys, [&](int n, int j, float factor) {
        if (score[n][j] != 0) score[n][j] *= factor;
      });
    }
    add_values(tile_at(tile) + Shape::kValuesAt, score);
  }

  QGEN_DEVICE void write() const {
    const int g = lane_index() / 4, q = lane_index() % 4, d = args_.value_dim;
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float sum = sum_lanes(running_[h].sum, 4);
      const int token = warp_token_ + g + 8 * h;
      if (token >= args_.tokens) continue;
      const int at = args_.first_token + token;
      float* const y = args_.y + at * args_.y_stride + head_ * d;
      const Share share = share_of(args_, head_, {running_[h].largest, sum});
      const float by = share.factor / share.sum;
      const float* const gate = args_.gate.x == nullptr ? nullptr : head_of(args_.gate, at, head_);
      QGEN_UNROLL
      for (int n = 0; n < kDim / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) {
          const int c = n * 8 + 2 * q + j;
          if (c < d) y[c] = sums_[n][2 * h + j] * by * (gate == nullptr ? 1 : sigmoid(gate[c]));
        }
      }
    }
  }

 private:
  // A warp reads 64 bytes of each of two neighbouring keys at once, and 16 bytes of each of eight neighbouring values.
  QGEN_DEVICE static int key_unit(int row, int unit) { return unit ^ row % 2 * 4; }
  QGEN_DEVICE static int value_unit(int row, int unit) { return unit ^ row % 8; }

  template <bool kBf16>
  QGEN_DEVICE static uint32_t pair(float low, float high) {
    return kBf16 ? bf16_pair(low, high) : f16_pair(low, high);
  }
  template <bool kBf16>
  static constexpr Codes kFloats = kBf16 ? Codes::kBf16 : Codes::kF16;
  // Keys of a tile, then values; and the codes that they are made of.
  QGEN_DEVICE static uint8_t* tile_at(int tile) {
    return shared_memory<uint8_t>() + (Shape::kHasCodes ? 0 : tile % 2 * Shape::kTileBytes);
  }
  QGEN_DEVICE static uint8_t* codes_of(int tile) {
    return shared_memory<uint8_t>() + Shape::kTileBytes + tile % 2 * Shape::kCodesBytes;
  }
  // The warp's.
  QGEN_DEVICE static uint8_t* queries() {
    return shared_memory<uint8_t>() + Shape::kQueriesAt + warp_index() * kWarpQueries * kRowBytes;
  }

  QGEN_DEVICE int32_t page_of(int tile) const {
    return page_at(args_.cache, table_, (begin_ + tile * kKeys) >> args_.cache.page_shift);
  }

  // A thread's part of keys or values, kBytes of each row from `from` on, where there are so many `rows`; zeros behind
  // them. place(row, unit): which 16 bytes of a row in shared memory those of `unit` become.
  template <int kBytes, typename Place>
  QGEN_DEVICE static void copy(uint8_t* to, const uint8_t* from, int64_t row_bytes, int rows, const Place& place) {
    constexpr int kUnits = kBytes / 16, kRowsAtOnce = kTileAttendThreads / kUnits;
    const int first = thread_index() / kUnits, unit = thread_index() % kUnits;
    const bool inside = unit * 16 < row_bytes;
    from += first * row_bytes + unit * 16;
    QGEN_UNROLL
    for (int row = 0; row < kKeys; row += kRowsAtOnce) {
      const int at = first + row;
      copy_async16(to + at * kBytes + place(at, unit) * 16, from, inside && at < rows);
      from += kRowsAtOnce * row_bytes;
    }
  }

  // This lane's elements of a window of queries g and g + 8.
  QGEN_DEVICE static void load_query(int window, Bytes16 (&rows)[2]) {
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h)
      rows[h] = *reinterpret_cast<const Bytes16*>(queries() + ((window * 2 + h) * kWarp + lane_index()) * 16);
  }

  // use(n, j, factor) for each of a lane's scores: with those of keys, or of values behind them.
  template <typename Use>
  QGEN_DEVICE static void for_factors(int tile, int first, const Use& use) {
    const float* const factors = reinterpret_cast<const float*>(codes_of(tile) + Shape::kFactorsAt) + first;
    QGEN_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) use(n, j, factors[n * 8 + 2 * (lane_index() % 4) + j % 2]);
    }
  }

  QGEN_DEVICE void score_keys(const uint8_t* keys, float (&score)[kKeys / 8][4]) const {
    const int g = lane_index() / 4, q = lane_index() % 4;
    const uint8_t* const own = keys + g * kRowBytes + q * 16;
    QGEN_UNROLL
    for (int window = 0; window < kWindows; ++window) {
      Bytes16 rows[2];
      if constexpr (Shape::kWide) {
        load_query(window, rows);
      } else {
        rows[0] = query_[window][0];
        rows[1] = query_[window][1];
      }
      QGEN_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        const Bytes16 key = *reinterpret_cast<const Bytes16*>(own + n * 8 * kRowBytes + key_unit(g, window * 4) * 16);
        QGEN_UNROLL
        for (int s = 0; s < 2; ++s) {
          const uint32_t a[4] = {rows[0].word[2 * s], rows[1].word[2 * s], rows[0].word[2 * s + 1],
                                 rows[1].word[2 * s + 1]};
          const uint32_t b[2] = {key.word[2 * s], key.word[2 * s + 1]};
          multiply_add<kFloats<kBf16Keys>>(score[n], a, b);
        }
      }
    }
  }

  // Takes away what a query does not see of the keys from `key` on.
  QGEN_DEVICE void hide_keys(int key, float (&score)[kKeys / 8][4]) const {
    const int g = lane_index() / 4, q = lane_index() % 4;
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int position = position_ + warp_token_ + g + 8 * h, last = position - key,
                first = first_key(args_, position) - key;
      QGEN_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) {
          const int of_tile = n * 8 + 2 * q + j;
          if (of_tile > last || of_tile < first) score[n][2 * h + j] = kLowest;
        }
      }
    }
  }

  // Scores become weights, and what was added up before is brought to the same largest score.
  QGEN_DEVICE void weigh(float (&score)[kKeys / 8][4]) {
    // Exponents are those of two, from here on. As long as a query has seen no key, from zero.
    constexpr float kLog2OfE = 1.4426950408889634f;
    const auto base_of = [](float largest) { return largest == kLowest ? 0 : rounded_product(largest, kLog2OfE); };
    float old[2];
    QGEN_UNROLL
    for (int h = 0; h < 2; ++h) {
      Running& running = running_[h];
      float largest = running.largest;
      QGEN_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) largest = larger(largest, larger(score[n][2 * h], score[n][2 * h + 1]));
      largest = largest_lane(largest, 4);
      const float base = base_of(largest);
      old[h] = running.largest == kLowest ? 0 : exp2_fast(base_of(running.largest) - base);
      running.largest = largest;
      float sum = 0;
      QGEN_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j)
          score[n][2 * h + j] = exp2_fast(fused_product(score[n][2 * h + j], kLog2OfE, -base));
        sum += score[n][2 * h] + score[n][2 * h + 1];
      }
      running.sum = fused_product(running.sum, old[h], sum);
    }
    if (!any_lane(!(old[0] == 1 && old[1] == 1))) return;
    QGEN_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) sums_[n][j] *= old[j / 2];
    }
  }

  QGEN_DEVICE void add_values(const uint8_t* values, const float (&weight)[kKeys / 8][4]) {
    // Matrices of load_transposed(): the first and the last 8 keys, at the first and at the last 8 of 16 elements.
    const int lane = lane_index(), key = lane % 16, half = lane / 16;
    const uint8_t* const own = values + key * kRowBytes;
    QGEN_UNROLL
    for (int s = 0; s < kKeys / 16; ++s) {
      uint32_t a[4];
      QGEN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* const two = weight[2 * s + i / 2] + i % 2 * 2;
        a[i] = pair<kBf16Values>(two[0], two[1]);
      }
      QGEN_UNROLL
      for (int n = 0; n < kDim / 16; ++n) {
        uint32_t b[4];
        load_transposed(b, own + s * 16 * kRowBytes + n / 4 * 128 + value_unit(key, n % 4 * 2 + half) * 16);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        multiply_add<kFloats<kBf16Values>>(sums_[2 * n], a, left);
        multiply_add<kFloats<kBf16Values>>(sums_[2 * n + 1], a, right);
      }
    }
  }

  const AttendArgs& args_;
  const int head_, kv_;
  int warp_token_ = 0, position_ = 0;    // the warp's first query, of the launch; that of the launch's first token
  int begin_ = 0, end_ = 0, tiles_ = 0;  // keys of the block
  int first_seen_ = 0, all_see_ = 0;     // the first key that any of the warp's queries sees, and that all see
  const int32_t* table_ = nullptr;       // pages
  int32_t page_ = 0;                     // of the tile that is asked for next
  Bytes16 query_[kWindows][2];           // of heads that are not wide
  float sums_[kDim / 8][4] = {};         // of queries g and g + 8
  Running running_[2] = {{kLowest, 0}, {kLowest, 0}};  // of the same; a lane's own part of the sum
};

template <CacheKind kKind, int kDim>
QGEN_KERNEL(kTileAttendThreads, kDim == 64 ? 3 : 2)
attend_tiles_kernel(const AttendArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  TileAttention<kKind, kDim> block(args);
  block.ask(0);
  block.prepare_queries();
  QGEN_UNROLL_BY(1)
  for (int tile = 0; tile < block.tiles(); ++tile) {
    copy_async_wait<0>();
    barrier();  // all copies of this tile have arrived, and no thread still reads the tile before it
    block.ask(tile + 1);
    if constexpr (has_factors(kKind)) {
      block.widen(tile);
      barrier();
    }
    block.attend(tile);
  }
  block.write();
}

}  // namespace qgen::QGEN_BACKEND
