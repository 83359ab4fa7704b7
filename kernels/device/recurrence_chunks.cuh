// The second kernel of recurrences in chunks (recurrence_prepare.cuh): from chunk to chunk, the state in registers.
#pragma once

#include "kernels/device/recurrence_prepare.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kChunkWarps = 8;  // half of them bring what keys give, the others what queries give

// What the shared memory of recur_chunks_kernel() has where (floats), of kColumns columns of a head. kStages: chunks
// whose inputs it has.
template <int kKeys, int kColumns, int kStages>
struct RecurChunks {
  static_assert(kKeys % kTile == 0 && kColumns % kTile == 0);
  static constexpr int kRow = padded_row(kKeys);
  // Of a chunk: keys, then queries; decays' sums, then rates.
  static constexpr int kQueries = kRecurChunk * kRow, kRates = 2 * kQueries, kStage = kRates + 2 * kRecurChunk;
  // With a row for each column: the state; what T is multiplied by; changes.
  static constexpr int kState = kStages * kStage, kNew = kState + kColumns * kRow;
  static constexpr int kChange = kNew + kColumns * kChunkRow, kSize = kChange + kColumns * kChunkRow;
  static_assert(kSize * sizeof(float) <= kMostSharedBytes);

  // Tiles of the state: rows of keys, kStep columns. Warps side by side have the same rows.
  static constexpr int kKeyTiles = kKeys / kTile, kColumnSteps = kColumns / kStep;
  static constexpr int kKeyWarps = kKeyTiles < kChunkWarps ? kKeyTiles : kChunkWarps;
  static constexpr int kOwnTiles = kKeyTiles / kKeyWarps, kOwnSteps = kColumnSteps * kKeyWarps / kChunkWarps;
  static_assert(kOwnTiles * kOwnSteps * kChunkWarps == kKeyTiles * kColumnSteps);
};

// A block's walk through the chunks, for kColumns columns of a head, whose state its warps have in
// registers. Keys: of whole 4 elements.
template <bool kDelta, int kKeys, int kColumns, int kStages>
class RecurWalk {
 public:
  using Shared = RecurChunks<kKeys, kColumns, kStages>;
  struct State {
    float tile[Shared::kOwnTiles][Shared::kOwnSteps][4];
  };

  QGEN_DEVICE RecurWalk(const RecurArgs& args, int head, int first_column)
      : args_(args), head_(head), first_column_(first_column), left_(args.tokens) {
    const int key_head = key_head_of(args, head);
    matrices_ = (kDelta && of_keys() ? args.solved + int64_t(head) * kRecurTileFloats
                                     : args.products + int64_t(key_head) * kRecurTileFloats) +
                lane_index() * 4;
    keys_ = (int64_t(copied_row()) * args.key_heads + key_head) * args.key_dim + copied_key();
    rates_ = args.rates + head * 2 + thread_index() % 2;
    values_ = args.v.x + token() * args.v.stride + head * args.v.head_stride + first_column + column();
    results_ = args.y + token() * args.y_stride + int64_t(head) * args.value_dim + first_column + column();
    skip_ = args.skip != nullptr ? args.skip[head] : 0;
  }

  // Tokens from the chunk's first one on, and of the chunk.
  QGEN_DEVICE int left() const { return left_; }
  QGEN_DEVICE int tokens() const { return chunk_tokens(left_); }
  QGEN_DEVICE void go_on() {
    left_ -= kRecurChunk;
    stage_ = (stage_ + 1) % kStages;
  }

  QGEN_DEVICE void load(State& state, int slot) const {
    for_state(state, slot, [](float& own, bool there, const float* from) { own = there ? *from : 0; });
  }
  QGEN_DEVICE void keep(State& state, int slot) const {
    for_state(state, slot, [](float own, bool there, float* to) {
      if (there) *to = own;
    });
  }

  // The inputs of a chunk of `tokens` on their way, and those of the next one when it is called again. Keys and queries
  // are zero behind the last token, sums of decays stay as they are.
  QGEN_DEVICE void ask(int tokens) {
    float* const stage = shared_memory<float>() + asked_ * Shared::kStage;
    const bool inside = copied_key() < args_.key_dim;
    const int64_t stride = int64_t(args_.key_heads) * args_.key_dim;
    QGEN_UNROLL
    for (int which = 0; which < 2; ++which) {
      const float* const from = (which == 0 ? args_.keys : args_.queries) + keys_;
      float* const to = stage + which * Shared::kQueries + copied_row() * Shared::kRow + copied_key();
      QGEN_UNROLL
      for (int row = 0; row < kRecurChunk; row += kCopiedRows) {
        const bool there = inside && copied_row() + row < tokens;
        copy_async16(to + row * Shared::kRow, from + (there ? row * stride : 0), there);
      }
    }
    if (const int t = thread_index() / 2; t < kRecurChunk) {
      copy_async4(stage + Shared::kRates + thread_index() % 2 * kRecurChunk + t,
                  rates_ + int64_t(t < tokens ? t : tokens - 1) * args_.heads * 2, true);
    }
    copy_async_commit();
    asked_ = (asked_ + 1) % kStages;
    keys_ += kRecurChunk * stride;
    rates_ += int64_t(kRecurChunk) * args_.heads * 2;
  }

  QGEN_DEVICE void ask_next() {
    const int behind = left_ - kRecurChunk;
    if (behind > 0) ask(chunk_tokens(behind));
  }

  // What the warp takes of the chunk from global memory: T or the products of queries with keys, and values.
  QGEN_DEVICE void load_inputs() {
    if (kDelta || !of_keys()) {
      for_steps([&](int step) { tiles_[step] = load_floats4(matrices_ + tile_of(tile_row(), step) * kTileFloats); });
    }
    const bool wanted = of_keys() || skip_ != 0;
    for_sums([&](int n, int i) {
      const float* const from = values_ + i / 2 * 8 * args_.v.stride + n * kStep + i % 2;
      values_of_[n][i] = wanted && is_there(n, i) ? *from : 0;
    });
    matrices_ += int64_t(kDelta && of_keys() ? args_.heads : args_.key_heads) * kRecurTileFloats;
    values_ += kRecurChunk * args_.v.stride;
  }

  QGEN_DEVICE void put_state(const State& state) const {
    float* const to =
        shared_memory<float>() + Shared::kState + (own_column() + 2 * pair()) * Shared::kRow + own_key() + row();
    for_tiles([&](int m, int n, int i) {
      to[(n * kStep + i % 2) * Shared::kRow + m * kTile + i / 2 * 8] = tf32_operand(state.tile[m][n][i]);
    });
  }

  // diag(P) K S, or diag(P) Q S.
  QGEN_DEVICE void multiply_state() {
    for_sums([&](int n, int i) { sums_[n][i] = 0; });
    if (!kDelta && of_keys()) return;
    const float* const left = stage() + (of_keys() ? 0 : Shared::kQueries) + tile_row() * kTile * Shared::kRow;
    QGEN_UNROLL_BY(16)
    for (int step = 0; step < kKeys / kStep; ++step) {
      uint32_t a[4];
      load_left(a, left, Shared::kRow, step * kStep);
      multiply(a, Shared::kState, Shared::kRow, step);
    }
    QGEN_UNROLL
    for (int below = 0; below < 2; ++below) {
      const float decay = exp2_fast(decay_of(token() + 8 * below));
      QGEN_UNROLL
      for (int n = 0; n < kSteps; ++n) {
        QGEN_UNROLL
        for (int i = 0; i < 2; ++i) sums_[n][2 * below + i] *= decay;
      }
    }
  }

  // Makes the changes, or decays the products of queries with keys.
  QGEN_DEVICE void make_changes() {
    if constexpr (kDelta) {
      if (of_keys()) put_rows(Shared::kNew, [&](int n, int i) { return values_of_[n][i] - sums_[n][i]; });
      barrier();
      if (of_keys()) {
        for_sums([&](int n, int i) { sums_[n][i] = 0; });
        multiply_tiles(Shared::kNew);
        put_rows(Shared::kChange, [&](int n, int i) { return sums_[n][i]; });
      }
    } else if (of_keys()) {
      put_rows(Shared::kChange, [&](int n, int i) { return rate_of(token() + i / 2 * 8) * values_of_[n][i]; });
    }
    if (of_keys()) return;
    for_steps([&](int step) {
      QGEN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int t = token() + i % 2 * 8, of_key = step * kStep + 2 * pair() + i / 2;
        float& product = tiles_[step].at[i];
        product = of_key <= t ? tf32_operand(exp2_fast(decay_of(t) - decay_of(of_key)) * product) : 0;
      }
    });
  }

  QGEN_DEVICE void write_results() {
    if (!of_keys()) {
      multiply_tiles(Shared::kChange);
      for_sums([&](int n, int i) {
        float* const to = results_ + i / 2 * 8 * args_.y_stride + n * kStep + i % 2;
        if (is_there(n, i)) *to = fused_product(skip_, values_of_[n][i], sums_[n][i]);
      });
    }
    results_ += kRecurChunk * args_.y_stride;
  }

  // The state behind token `last` of the chunk; kAll: that is its last one.
  template <bool kAll>
  QGEN_DEVICE void advance(State& state, int last) const {
    const float of_last = decay_of(last), all = exp2_fast(of_last);
    for_tiles([&](int m, int n, int i) { state.tile[m][n][i] *= all; });
    QGEN_UNROLL
    for (int step = 0; step < kRecurChunk / kStep; ++step) {
      float decay[2];
      QGEN_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int t = step * kStep + 2 * pair() + j;
        decay[j] = kAll || t <= last ? exp2_fast(of_last - decay_of(t)) : 0;
      }
      uint32_t b[Shared::kOwnSteps / 2][4];
      QGEN_UNROLL
      for (int n = 0; n < Shared::kOwnSteps / 2; ++n)
        load_columns(b[n], Shared::kChange, kChunkRow, own_column() + 2 * n * kStep, step);
      QGEN_UNROLL
      for (int m = 0; m < Shared::kOwnTiles; ++m) {
        const float* const key = stage() + (step * kStep + 2 * pair()) * Shared::kRow + own_key() + m * kTile + row();
        uint32_t a[4];
        QGEN_UNROLL
        for (int i = 0; i < 4; ++i)
          a[i] = float_bits(tf32_operand(key[i / 2 * Shared::kRow + i % 2 * 8] * decay[i / 2]));
        QGEN_UNROLL
        for (int n = 0; n < Shared::kOwnSteps / 2; ++n)
          multiply_pair(state.tile[m][2 * n], state.tile[m][2 * n + 1], a, b[n]);
      }
    }
  }

 private:
  // Half of the warps bring what keys give, the others what queries give: a tile's rows of tokens, half of the columns.
  static constexpr int kSteps = Shared::kColumnSteps / 2;
  QGEN_DEVICE static bool of_keys() { return warp_index() < kChunkWarps / 2; }
  QGEN_DEVICE static int tile_row() { return warp_index() / 2 % 2; }
  QGEN_DEVICE static int first_of_half() { return warp_index() % 2 * kSteps * kStep; }
  // Of a lane's elements of a tile of sums: rows row() and row() + 8, columns 2 pair() and the next.
  QGEN_DEVICE static int row() { return lane_index() / 4; }
  QGEN_DEVICE static int pair() { return lane_index() % 4; }
  QGEN_DEVICE static int token() { return tile_row() * kTile + row(); }
  QGEN_DEVICE static int column() { return first_of_half() + 2 * pair(); }
  // use(n, i) for the lane's sums: element i of tile n.
  template <typename Use>
  QGEN_DEVICE static void for_sums(const Use& use) {
    QGEN_UNROLL
    for (int n = 0; n < kSteps; ++n) {
      QGEN_UNROLL
      for (int i = 0; i < 4; ++i) use(n, i);
    }
  }
  QGEN_DEVICE bool is_there(int n, int i) const {
    return token() + i / 2 * 8 < left_ && first_column_ + column() + n * kStep + i % 2 < args_.value_dim;
  }
  // use(step) for the tiles of the warp's rows in matrices of the chunk.
  template <typename Use>
  QGEN_DEVICE static void for_steps(const Use& use) {
    QGEN_UNROLL
    for (int step = 0; step < steps_of(1); ++step) {
      if (step < steps_of(tile_row())) use(step);
    }
  }

  // The warp's tiles of the state, warps side by side have the same keys: use(tile of keys, step of columns, element).
  QGEN_DEVICE static int own_key() { return warp_index() % Shared::kKeyWarps * Shared::kOwnTiles * kTile; }
  QGEN_DEVICE static int own_column() { return warp_index() / Shared::kKeyWarps * Shared::kOwnSteps * kStep; }
  template <typename Use>
  QGEN_DEVICE static void for_tiles(const Use& use) {
    QGEN_UNROLL
    for (int m = 0; m < Shared::kOwnTiles; ++m) {
      QGEN_UNROLL
      for (int n = 0; n < Shared::kOwnSteps; ++n) {
        QGEN_UNROLL
        for (int i = 0; i < 4; ++i) use(m, n, i);
      }
    }
  }
  // use(element, whether there is such a one, where) for those of a slot.
  template <typename Use>
  QGEN_DEVICE void for_state(State& state, int slot, const Use& use) const {
    const int first_key = own_key() + row(), first = first_column_ + own_column() + 2 * pair();
    float* const at =
        args_.state + ((int64_t(slot) * args_.heads + head_) * args_.key_dim + first_key) * args_.value_dim + first;
    for_tiles([&](int m, int n, int i) {
      const int key = m * kTile + i / 2 * 8, of_column = n * kStep + i % 2;
      use(state.tile[m][n][i], first_key + key < args_.key_dim && first + of_column < args_.value_dim,
          at + int64_t(key) * args_.value_dim + of_column);
    });
  }

  // Each thread copies 16 bytes of every kCopiedRows-th row of keys and queries.
  static constexpr int kRowThreads = kKeys / 4, kCopiedRows = kChunkWarps * kWarp / kRowThreads;
  static_assert(kRecurChunk % kCopiedRows == 0);
  QGEN_DEVICE static int copied_row() { return thread_index() / kRowThreads; }
  QGEN_DEVICE static int copied_key() { return thread_index() % kRowThreads * 4; }
  QGEN_DEVICE const float* stage() const { return shared_memory<float>() + stage_ * Shared::kStage; }
  QGEN_DEVICE float decay_of(int t) const { return stage()[Shared::kRates + t]; }
  QGEN_DEVICE float rate_of(int t) const { return stage()[Shared::kRates + kRecurChunk + t]; }

  // Step `step` of the 2 * kStep columns from `first` on that are rows of `row_floats`, from `rows` on in shared
  // memory, as right operands of two products.
  QGEN_DEVICE static void load_columns(uint32_t (&b)[4], int rows, int row_floats, int first, int step) {
    load_rights(b, shared_memory<float>() + rows + first * row_floats, row_floats, step * kStep);
  }
  // Adds a left operand's tile times the warp's columns to its sums.
  QGEN_DEVICE void multiply(const uint32_t (&a)[4], int rows, int row_floats, int step) {
    if constexpr (kSteps % 2 == 0) {
      QGEN_UNROLL
      for (int n = 0; n < kSteps; n += 2) {
        uint32_t b[4];
        load_columns(b, rows, row_floats, first_of_half() + n * kStep, step);
        multiply_pair(sums_[n], sums_[n + 1], a, b);
      }
    } else {
      static_assert(kSteps == 1);
      const float* const own =
          shared_memory<float>() + rows + (first_of_half() + row()) * row_floats + step * kStep + pair();
      const uint32_t b[2] = {float_bits(own[0]), float_bits(own[4])};
      mma_tf32(sums_[0], a, b);
    }
  }
  QGEN_DEVICE void multiply_tiles(int rows) {
    for_steps([&](int step) {
      uint32_t a[4];
      QGEN_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = float_bits(tiles_[step].at[i]);
      multiply(a, rows, kChunkRow, step);
    });
  }
  // of(n, i) as the right operand of products, a row a column.
  template <typename Of>
  QGEN_DEVICE static void put_rows(int rows, const Of& of) {
    float* const to = shared_memory<float>() + rows + column() * kChunkRow + place_of(token());
    for_sums([&](int n, int i) { to[(n * kStep + i % 2) * kChunkRow + i / 2 * 8] = tf32_operand(of(n, i)); });
  }

  const RecurArgs& args_;
  const int head_, first_column_;
  int left_;
  int stage_ = 0, asked_ = 0;  // where inputs of the chunk are in shared memory, and where those of the next go
  // Of the chunk, or of the next one to be asked for.
  const float *matrices_, *rates_, *values_;
  int64_t keys_;
  float* results_;
  float skip_;
  Floats4 tiles_[steps_of(1)] = {};
  float values_of_[kSteps][4], sums_[kSteps][4];
};

// A block has kColumns columns of a head (x of the grid).
template <bool kDelta, int kKeys, int kColumns, int kStages>
QGEN_KERNEL(kChunkWarps* kWarp, kKeys > 128 ? 1 : 2)
recur_chunks_kernel(const RecurArgs args, const LaunchTimes times) {
  using Walk = RecurWalk<kDelta, kKeys, kColumns, kStages>;
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int blocks = (args.value_dim + kColumns - 1) / kColumns;
  Walk walk(args, int(block_index().x) / blocks, int(block_index().x) % blocks * kColumns);
  typename Walk::State state;
  walk.load(state, args.segments.slot[0]);
  walk.ask(walk.tokens());
  QGEN_UNROLL_BY(1)
  for (int marked = args.segments.marked[0]; walk.left() > 0; walk.go_on(), marked -= kRecurChunk) {
    walk.load_inputs();
    walk.put_state(state);
    copy_async_wait<0>();
    barrier();
    if (kStages > 1) walk.ask_next();
    walk.multiply_state();
    walk.make_changes();
    barrier();
    walk.write_results();
    if (marked >= 0 && marked < walk.tokens()) {
      auto then = state;
      walk.template advance<false>(then, marked);
      walk.keep(then, args.segments.mark_slot[0]);
    }
    walk.template advance<true>(state, walk.tokens() - 1);
    if (kStages == 1) {
      barrier();
      walk.ask_next();
    }
  }
  walk.keep(state, args.segments.new_slot[0]);
}

}  // namespace qgen::QGEN_BACKEND
