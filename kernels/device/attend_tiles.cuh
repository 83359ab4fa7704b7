// Attention of many tokens: a block's warps go through the keys of a key-value head tile by tile, each with up to 32
// queries of one head, all products in 16-bit floats with sums in F32, and no score ever leaves the registers
// (FlashAttention-2, Dao 2023).
#pragma once

#include "kernels/device/attend.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kTileAttendWarps = 4, kTileAttendThreads = kTileAttendWarps * kWarp;

struct TileAttendArgs {
  AttendArgs attend;
  int group;               // heads of queries of a key-value head
  uint32_t inverse_group;  // 2^31 / group, rounded up
};

// kDim: the longer of key and value, or the next that there is; what lies between is zero.
template <CacheKind kKind, int kDim>
struct TileShape {
  // A warp has one or two row tiles of 16 queries: with two, each operand that it loads from shared memory is used in
  // two products. Registers are enough for two up to 128 elements, and for the scores of 64 keys up to 64 elements.
  static constexpr int kRowTiles = kDim > 128 ? 1 : 2, kKeys = kDim > 64 ? 32 : 64;
  // Windows of the queries, 32 columns each, that stay in registers: as many as find room.
  static constexpr int kHeldWindows = kDim == 64 ? 2 : kDim == 128 ? 0 : 4;
  static constexpr int kWarpQueries = 16 * kRowTiles, kQueries = kTileAttendWarps * kWarpQueries;
  static constexpr int kRowBytes = kDim * 2;
  // Queries, as operands of MMA, then keys and values of a tile, all in 16-bit floats. The 16 bytes of keys and values
  // are in another order in every row, so that lanes which read together find them in different banks: see key_unit()
  // and value_unit(). Of caches of 8 bits, behind them, codes of keys and values, and twice the factors of both, which
  // are needed while the next are on their way.
  static constexpr bool kHasCodes = has_factors(kKind);
  static constexpr int kQueryBytes = kQueries * kRowBytes, kRowsBytes = kKeys * kRowBytes;
  static constexpr int kKeysAt = kQueryBytes, kValuesAt = kKeysAt + kRowsBytes, kCodesAt = kValuesAt + kRowsBytes;
  static constexpr int kFactorsAt = kCodesAt + 2 * kKeys * kDim, kFactorBytes = 2 * kKeys * 4;
  static constexpr int kBytes = kHasCodes ? kFactorsAt + 2 * kFactorBytes : kCodesAt;
  // Before there are values each warp prepares queries there, and behind the last tile results pass through all of
  // this, both in floats.
  static constexpr int kPreparedAtOnce = 4;
  static_assert(kTileAttendWarps * kPreparedAtOnce * kDim * 4 <= kRowsBytes);
  static_assert(kTileAttendWarps * 16 * kDim * 4 <= kBytes);
};

// A block's work: prepare(), attend() for each tile of keys, write(). Its warps have tiles of queries one after the
// other, those of all heads of a group before those of the next tokens: with four heads or more mostly of the same
// tokens, which see nearly the same keys.
template <CacheKind kKind, int kDim>
class TileAttention {
  using Shape = TileShape<kKind, kDim>;
  static constexpr bool kHasCodes = Shape::kHasCodes;
  static constexpr int kKeys = Shape::kKeys, kRowBytes = Shape::kRowBytes, kRowTiles = Shape::kRowTiles;
  static constexpr int kWarpQueries = Shape::kWarpQueries;
  static constexpr int kWindows = kDim / 32;  // of which each lane has 8 elements of a query or key
  // Products with keys and with values. Values of codes are multiplied by weights that have taken in their factors,
  // which can be small: bf16 reaches that far, and has all codes exactly.
  static constexpr bool kBf16Keys = kKind == CacheKind::kBf16, kBf16Values = kBf16Keys || kHasCodes;
  // A lane's scores, of queries g and g + 8 of each row tile with keys 2q and 2q + 1 of each 8.
  using Scores = float[kRowTiles][kKeys / 8][4];
  // A lane's elements of queries g and g + 8 of each row tile, of each 16 columns of a window: operands of MMA.
  struct WindowQueries {
    Bytes16 at[kRowTiles][2];
  };

 public:
  QGEN_DEVICE explicit TileAttention(const TileAttendArgs& kernel) : kernel_(kernel), args_(kernel.attend) {
    const AttendArgs& args = args_;
    const int position = args.position[args.first_token];
    const int first_token = token_of(first_tile()), end = token_of(first_tile() + kTileAttendWarps - 1) + kWarpQueries;
    end_ = position + (end < args.tokens ? end : args.tokens);
    begin_ = first_key(args, position + first_token) / kKeys * kKeys;
    warp_at_ = position + token_of(first_tile() + warp_index());
    table_ = args.sequence[args.first_token] * args.cache.ring;
    find_page(begin_);
    QGEN_UNROLL
    for (int row = 0; row < 2 * kRowTiles; ++row) running_[row / 2][row % 2] = {kLowest, 0};
  }

  // The first key of its first tile, and the end of the keys.
  QGEN_DEVICE int begin() const { return begin_; }
  QGEN_DEVICE int end() const { return end_; }

  // Asks for the first tile, and prepares queries meanwhile.
  QGEN_DEVICE void prepare() {
    ask(begin_);
    prepare_queries();
  }

  // The tile of keys from `key` on. The block meets when its keys have arrived, and again when its values have: between
  // the two it asks for the values, behind them for the next keys, so that either are on their way while the warps
  // compute with the others. Codes arrive together, and the next are asked for as soon as these have become the tile.
  QGEN_DEVICE void attend(int key) {
    Scores score = {};
    arrive();
    if constexpr (kHasCodes) {
      widen();
      barrier();
      ask(key + kKeys);
    } else {
      ask_values(key);
    }
    score_keys(score);  // all warps, as they meet behind it, and nearly all see the tile
    if constexpr (!kHasCodes) {
      arrive();
      ask(key + kKeys);
    }
    if (key >= warp_at_ + kWarpQueries) return;  // none of the warp's queries sees any
    if constexpr (kHasCodes)
      for_factors(
          key, 0, [&](float& one, float factor) { one *= factor; }, score);
    if (args_.softcap > 0) [[unlikely]] {
      QGEN_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        QGEN_UNROLL
        for (int n = 0; n < kKeys / 8; ++n) {
          QGEN_UNROLL
          for (int j = 0; j < 4; ++j) score[r][n][j] = capped_score(score[r][n][j], args_.softcap);
        }
      }
    }
    if (key + kKeys - 1 > warp_at_ || key < first_key(args_, warp_at_ + kWarpQueries - 1)) hide_keys(key, score);
    weigh(score);
    if constexpr (kHasCodes) {
      // A key that a query does not see has weight 0, and may have a NaN factor: 0 * NaN would be NaN.
      for_factors(
          key, kKeys,
          [&](float& weight, float factor) {
            if (weight != 0) weight *= factor;
          },
          score);
    }
    add_values(score);
  }

  // By way of shared memory, so that a warp writes whole rows.
  QGEN_DEVICE void write() const {
    const int g = lane_index() / 4, q = lane_index() % 4;
    float* const own = shared_memory<float>() + warp_index() * 16 * kDim;
    const auto place = [](int row, int pair) { return row * kDim + (pair ^ row % 4 * 4) * 2; };  // no bank conflicts
    barrier();  // no warp still reads what lies there
    const int own_head = head();
    QGEN_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Running all = {running_[r][h].largest, sum_lanes(running_[r][h].sum, 4)};
        const Share share = share_of(args_, own_head, all);
        const float by = share.factor / share.sum;
        QGEN_UNROLL
        for (int n = 0; n < kDim / 8; ++n)
          *reinterpret_cast<Bytes8*>(own + place(h * 8 + g, n * 4 + q)) = {
              {float_bits(sums_[r][n][2 * h] * by), float_bits(sums_[r][n][2 * h + 1] * by)}};
      }
      warp_barrier();
      const int first = warp_token() + r * 16, left = args_.tokens - first;
      QGEN_UNROLL_BY(1)
      for (int row = 0; row < (left < 16 ? left : 16); ++row) {
        const int at = args_.first_token + first + row;
        const int first_column = own_head * args_.value_dim;
        const bool rounds = args_.rounds_to != Rounded::kNo;
        if (rounds && own_head == 0 && lane_index() == 0) args_.rounded.factor[at] = 1;
        QGEN_UNROLL
        for (int s = 0; s < kDim / kWarp; ++s) {
          const int c = lane_index() + s * kWarp;
          if (c >= args_.value_dim) continue;
          float value = own[place(row, c / 2) + c % 2];
          if (args_.gate.x != nullptr) value *= sigmoid(head_of(args_.gate, at, own_head)[c]);
          if (rounds) {
            args_.rounded.values[at * args_.rounded.stride + first_column + c] =
                args_.rounds_to == Rounded::kBf16 ? bf16_bits(value) : f16_bits(value);
          } else {
            args_.y[at * args_.y_stride + first_column + c] = value;
          }
        }
      }
      warp_barrier();
    }
  }

 private:
  // Until the copies that were asked for last have arrived, of all threads; none still reads what was there before.
  QGEN_DEVICE static void arrive() {
    copy_async_wait<0>();
    barrier();
  }

  // Begins the copies of a tile's keys, or of all its codes. The tile is the one behind that which was asked for last.
  QGEN_DEVICE void ask(int key) {
    if (key >= end_) return;
    const Cache& cache = args_.cache;
    const int64_t from = first_row(key);
    const uint8_t* const keys = cache.keys + from * cache.key_bytes;
    if constexpr (kHasCodes) {
      const auto plain = [](int, int unit) { return unit; };
      copy<kDim>(memory() + Shape::kCodesAt, keys, cache.key_bytes, end_ - key, plain);
      copy<kDim>(memory() + Shape::kCodesAt + kKeys * kDim, cache.values + from * cache.value_bytes, cache.value_bytes,
                 end_ - key, plain);
      if (const int row = thread_index(); row < 2 * kKeys)
        copy_async4(factors(key) + row, (row < kKeys ? cache.key_factor : cache.value_factor) + from + row % kKeys,
                    key + row % kKeys < end_);
      find_page(key + kKeys);
    } else {
      copy<kRowBytes>(memory() + Shape::kKeysAt, keys, cache.key_bytes, end_ - key, key_unit);
    }
    copy_async_commit();
  }
  // Of the values that belong to these keys.
  QGEN_DEVICE void ask_values(int key) {
    const Cache& cache = args_.cache;
    copy<kRowBytes>(memory() + Shape::kValuesAt, cache.values + first_row(key) * cache.value_bytes, cache.value_bytes,
                    end_ - key, value_unit);
    copy_async_commit();
    find_page(key + kKeys);
  }
  // The row of the cache where a tile begins: at a multiple of its keys, so that it lies in one page.
  QGEN_DEVICE uint32_t first_row(int key) const {
    return uint32_t(page_row(args_.cache, page_, args_.kv_heads, kv_head())) + uint32_t(page_offset(args_.cache, key));
  }
  // The page of the tile that is asked for next: it is there when it is needed.
  QGEN_DEVICE void find_page(int key) {
    if (key < end_) page_ = page_at(args_.cache, args_.cache.tables + table_, key >> args_.cache.page_shift);
  }

  // The codes that have arrived become the tile.
  QGEN_DEVICE void widen() const {
    constexpr int kUnits = kDim / 8, kRowsAtOnce = kTileAttendThreads / kUnits;  // of 8 elements
    constexpr Codes kCodes = kKind == CacheKind::kI8 ? Codes::kI8 : Codes::kE4M3;
    const int first = thread_index() / kUnits, unit = thread_index() % kUnits;
    const uint8_t* const codes = memory() + Shape::kCodesAt;
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
      *reinterpret_cast<Bytes16*>(memory() + Shape::kKeysAt + row * kRowBytes + place * 16) = wide;
    }
  }

  // Norm, rotation and scale of the warp's queries.
  QGEN_DEVICE void prepare_queries() {
    constexpr int kSlots = kDim / kWarp, kAtOnce = Shape::kPreparedAtOnce;
    const int dim = args_.key_dim, lane = lane_index(), first_query = warp_token();
    float* const rotated = reinterpret_cast<float*>(memory() + Shape::kValuesAt) + warp_index() * kAtOnce * kDim;
    LaneHead<kSlots> next[kAtOnce];  // on their way while those before them are prepared
    const int own_head = head();
    QGEN_UNROLL
    for (int i = 0; i < kAtOnce; ++i) next[i].load_weights(args_.q_norm, own_head, dim);
    const auto load = [&](int query) {
      QGEN_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        // Behind the last query that one again.
        const int token = args_.first_token + (query + i < args_.tokens ? query + i : args_.tokens - 1);
        next[i].load(head_of(args_.q, token, own_head), dim, args_.rotation, token);
      }
    };
    load(first_query);
    QGEN_UNROLL_BY(1)
    for (int r = 0; r < kWarpQueries; r += kAtOnce) {
      LaneHead<kSlots> now[kAtOnce];
      QGEN_UNROLL
      for (int i = 0; i < kAtOnce; ++i) now[i] = next[i];
      if (r + kAtOnce < kWarpQueries) load(first_query + r + kAtOnce);
      prepare_heads(now, args_, args_.q_norm, own_head, dim, padded(dim), true, rotated, kDim);
      // As score_keys() reads them: 16 bytes of each lane for 16 of a window's columns and the 16 queries of a row
      // tile, in the order of the operand.
      uint8_t* const rows = queries() + (r / 16 * 2 * kWarp + r % 8 * 4) * 16 + r % 16 / 8 * 4;
      QGEN_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const bool there = first_query + r + i < args_.tokens;
        const float scale = query_scale(args_, warp_at_ + r + i);
        QGEN_UNROLL
        for (int s = 0; s < kSlots / 2; ++s) {
          const int c = 2 * (lane + s * kWarp);
          const float first = there && c < dim ? rounded_product(rotated[i * kDim + c], scale) : 0,
                      second = there && c + 1 < dim ? rounded_product(rotated[i * kDim + c + 1], scale) : 0;
          const int unit = (c / 32 * 2 * kRowTiles + c % 8 / 4) * kWarp + i * 4 + c % 32 / 8;
          *reinterpret_cast<uint32_t*>(rows + unit * 16 + c % 4 / 2 * 8) = pair<kBf16Keys>(first, second);
        }
      }
      warp_barrier();
    }
    QGEN_UNROLL
    for (int window = 0; window < Shape::kHeldWindows; ++window) held_[window] = load_queries(window);
  }

  // A warp reads 64 bytes of each of two neighbouring keys at once, and 16 bytes of each of eight neighbouring values.
  QGEN_DEVICE static int key_unit(int row, int unit) { return unit ^ row % 2 * 4; }
  QGEN_DEVICE static int value_unit(int row, int unit) { return unit ^ row % 8; }

  template <bool kBf16>
  QGEN_DEVICE static uint32_t pair(float low, float high) {
    return kBf16 ? bf16_pair(low, high) : f16_pair(low, high);
  }
  template <bool kBf16>
  static constexpr Codes kFloats = kBf16 ? Codes::kBf16 : Codes::kF16;
  QGEN_DEVICE static int kv_head() { return int(block_index().x); }
  // A warp's queries of a head are a tile of queries: those of all heads of the group come before the next tokens'. The
  // first one of the block: the last, which see most keys, come first, of all key-value heads: short blocks fill up
  // what is left at the end.
  QGEN_DEVICE static int first_tile() { return int(grid_size().y - 1 - block_index().y) * kTileAttendWarps; }
  // A tile's number among those of its head; exact as long as tiles times heads of a group are below 2^31.
  QGEN_DEVICE int number_of(int tile) const { return int(upper_product(2 * uint32_t(tile), kernel_.inverse_group)); }
  QGEN_DEVICE int head() const {  // computed anew: it would take a register of the loop
    const int tile = own_tile();
    return (kv_head() - number_of(tile)) * kernel_.group + tile;
  }
  QGEN_DEVICE int token_of(int tile) const { return number_of(tile) * kWarpQueries; }  // of the launch
  QGEN_DEVICE int warp_token() const { return token_of(own_tile()); }
  QGEN_DEVICE static int own_tile() { return first_tile() + thread_index_anew() / kWarp; }
  QGEN_DEVICE static uint8_t* memory() { return shared_memory<uint8_t>(); }
  // The warp's.
  QGEN_DEVICE static uint8_t* queries() { return memory() + warp_index() * kWarpQueries * kRowBytes; }
  // Of a tile's keys, then of its values.
  QGEN_DEVICE static float* factors(int key) {
    return reinterpret_cast<float*>(memory() + Shape::kFactorsAt + key / kKeys % 2 * Shape::kFactorBytes);
  }

  // A thread's part of keys or values, kBytes of each row from `from` on, where there are so many `rows`; zeros behind
  // them. place(row, unit): which 16 bytes of a row in shared memory those of `unit` become. It changes bits of the
  // unit by those of the row, so that a sum of rows without common bits changes what either does.
  template <int kBytes, typename Place>
  QGEN_DEVICE static void copy(uint8_t* to, const uint8_t* from, int64_t row_bytes, int rows, const Place& place) {
    constexpr int kUnits = kBytes / 16, kRowsAtOnce = kTileAttendThreads / kUnits;
    const int first = thread_index() / kUnits, unit = thread_index() % kUnits;
    const int left = unit * 16 < int(row_bytes) ? rows - first : 0, own = place(first, unit);
    to += first * kBytes;
    from += first * row_bytes + unit * 16;
    QGEN_UNROLL
    for (int row = 0; row < kKeys; row += kRowsAtOnce) {
      copy_async16(to + row * kBytes + place(row, own) * 16, from, row < left);
      from += kRowsAtOnce * row_bytes;
    }
  }

  // use(element, factor) for each of a lane's scores or weights, with the factor of its key or value.
  template <typename Use>
  QGEN_DEVICE static void for_factors(int key, int first, const Use& use, Scores& scores) {
    const float* const own = factors(key) + first + 2 * (lane_index() % 4);
    QGEN_UNROLL
    for (int n = 0; n < kKeys / 8; ++n) {
      QGEN_UNROLL
      for (int j = 0; j < 2; ++j) {
        const float factor = own[n * 8 + j];
        QGEN_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          use(scores[r][n][j], factor);
          use(scores[r][n][2 + j], factor);
        }
      }
    }
  }

  QGEN_DEVICE static WindowQueries load_queries(int window) {
    WindowQueries query;
    QGEN_UNROLL
    for (int i = 0; i < 2 * kRowTiles; ++i)
      query.at[i / 2][i % 2] =
          *reinterpret_cast<const Bytes16*>(queries() + ((window * 2 * kRowTiles + i) * kWarp + lane_index()) * 16);
    return query;
  }

  QGEN_DEVICE void score_keys(Scores& score) const {
    const int g = lane_index() / 4, q = lane_index() % 4;
    const uint8_t* const own = memory() + Shape::kKeysAt + g * kRowBytes + q * 16;
    QGEN_UNROLL
    for (int window = 0; window < kWindows; ++window) {
      const WindowQueries query = window < Shape::kHeldWindows ? held_[window] : load_queries(window);
      QGEN_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        const Bytes16 key = *reinterpret_cast<const Bytes16*>(own + n * 8 * kRowBytes + key_unit(g, window * 4) * 16);
        QGEN_UNROLL
        for (int s = 0; s < 2; ++s) {
          const uint32_t b[2] = {key.word[2 * s], key.word[2 * s + 1]};
          QGEN_UNROLL
          for (int r = 0; r < kRowTiles; ++r) multiply_add<kFloats<kBf16Keys>>(score[r][n], query.at[r][s].word, b);
        }
      }
    }
  }

  // Takes away what a query does not see of the keys from `key` on.
  QGEN_DEVICE void hide_keys(int key, Scores& score) const {
    const int g = lane_index() / 4, q = lane_index() % 4;
    QGEN_UNROLL
    for (int row = 0; row < 2 * kRowTiles; ++row) {
      const int position = warp_at_ + g + 8 * row;
      const int last = position - key - 2 * q, first = first_key(args_, position) - key - 2 * q;
      QGEN_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 2; ++j) {
          const int of_tile = n * 8 + j;
          if (of_tile > last || of_tile < first) score[row / 2][n][row % 2 * 2 + j] = kLowest;
        }
      }
    }
  }

  // Scores become weights, and what was added up before is brought to the same largest score.
  QGEN_DEVICE void weigh(Scores& score) {
    // Exponents are those of two, from here on. As long as a query has seen no key, from zero.
    constexpr float kLog2OfE = 1.4426950408889634f;
    const auto base_of = [](float largest) { return largest == kLowest ? 0 : rounded_product(largest, kLog2OfE); };
    float old[kRowTiles][2];
    bool all_same = true;
    QGEN_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      QGEN_UNROLL
      for (int h = 0; h < 2; ++h) {
        Running& running = running_[r][h];
        float largest = running.largest;
        QGEN_UNROLL
        for (int n = 0; n < kKeys / 8; ++n)
          largest = larger(largest, larger(score[r][n][2 * h], score[r][n][2 * h + 1]));
        largest = largest_lane(largest, 4);
        const float base = base_of(largest);
        old[r][h] = running.largest == kLowest ? 0 : exp2_fast(base_of(running.largest) - base);
        all_same &= old[r][h] == 1;
        float sum = 0;
        QGEN_UNROLL
        for (int n = 0; n < kKeys / 8; ++n) {
          QGEN_UNROLL
          for (int j = 0; j < 2; ++j)
            score[r][n][2 * h + j] = exp2_fast(fused_product(score[r][n][2 * h + j], kLog2OfE, -base));
          sum += score[r][n][2 * h] + score[r][n][2 * h + 1];
        }
        running = {largest, fused_product(running.sum, old[r][h], sum)};
      }
    }
    if (!any_lane(!all_same)) return;
    QGEN_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      QGEN_UNROLL
      for (int n = 0; n < kDim / 8; ++n) {
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) sums_[r][n][j] *= old[r][j / 2];
      }
    }
  }

  QGEN_DEVICE void add_values(const Scores& weight) {
    // Matrices of load_transposed(): the first and the last 8 keys, at the first and at the last 8 of 16 elements.
    const int lane = lane_index(), key = lane % 16, half = lane / 16;
    const uint8_t* const own = memory() + Shape::kValuesAt + key * kRowBytes;
    QGEN_UNROLL
    for (int s = 0; s < kKeys / 16; ++s) {
      uint32_t a[kRowTiles][4];
      QGEN_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        QGEN_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float* const two = weight[r][2 * s + i / 2] + i % 2 * 2;
          a[r][i] = pair<kBf16Values>(two[0], two[1]);
        }
      }
      QGEN_UNROLL
      for (int n = 0; n < kDim / 16; ++n) {
        uint32_t b[4];
        load_transposed(b, own + s * 16 * kRowBytes + n / 4 * 128 + value_unit(key, n % 4 * 2 + half) * 16);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        QGEN_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          multiply_add<kFloats<kBf16Values>>(sums_[r][2 * n], a[r], left);
          multiply_add<kFloats<kBf16Values>>(sums_[r][2 * n + 1], a[r], right);
        }
      }
    }
  }

  const TileAttendArgs& kernel_;
  const AttendArgs& args_;
  int warp_at_ = 0;          // the position of the warp's first query
  int begin_ = 0, end_ = 0;  // keys of the block
  int table_ = 0;            // where the sequence's pages begin in the tables
  int32_t page_ = 0;         // of the tile that is asked for
  WindowQueries held_[Shape::kHeldWindows > 0 ? Shape::kHeldWindows : 1];
  float sums_[kRowTiles][kDim / 8][4] = {};  // of queries g and g + 8 of each row tile
  Running running_[kRowTiles][2];            // of the same; a lane's own part of the sum
};

template <CacheKind kKind, int kDim>
QGEN_KERNEL(kTileAttendThreads, 2)
attend_tiles_kernel(const TileAttendArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  TileAttention<kKind, kDim> block(args);
  block.prepare();
  QGEN_UNROLL_BY(1)
  for (int key = block.begin(); key < block.end(); key += TileShape<kKind, kDim>::kKeys) block.attend(key);
  block.write();
}

}  // namespace qgen::QGEN_BACKEND
