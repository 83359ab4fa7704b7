// What carries a state from token to token: causal convolutions and linear recurrences (model/step.h).
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kConvTokens = 16;  // of a warp at once
constexpr int conv_tile(int warps) { return warps * kConvTokens; }

// 32 columns (x of the grid) of a segment (y), a lane a column, each warp some neighbouring tokens of a tile; the next
// tile's inputs are on their way meanwhile. shared: twice (taps - 1 + kConvTile, 32), the inputs of a tile behind those
// before it. kTaps: how many there are, or 0 for any.
template <int kTaps, int kWarps>
QGEN_KERNEL(kWarps* kWarp, 1)
convolve_kernel(const ConvArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  constexpr int kConvTile = conv_tile(kWarps);
  const int taps = kTaps > 0 ? kTaps : args.taps, before = taps - 1;
  const int warp = warp_index(), c = int(block_index().x) * kWarp + lane_index(), segment = int(block_index().y);
  const int first = args.segments.first[segment], end = args.segments.first[segment + 1];
  const int slot = args.segments.slot[segment], marked = args.segments.marked[segment];
  const bool inside = c < args.cols;
  const float* const weights = args.weight + int64_t(inside ? c : 0) * taps;
  float kept[kTaps > 0 ? kTaps : 1];
  QGEN_UNROLL
  for (int i = 0; i < kTaps; ++i) kept[i] = weights[i];
  const float bias = args.bias != nullptr && inside ? args.bias[c] : 0;
  scope.wait_for_inputs();
  if (first == end) return;
  const auto window_of = [&](int tile) {
    return shared_memory<float>() + tile % 2 * (before + kConvTile) * kWarp + lane_index();
  };
  const auto state_at = [&](int of_slot) { return args.state + int64_t(of_slot) * before * args.cols + c; };
  // The last inputs before token `from` of a tile.
  const auto keep = [&](int of_slot, int tile, int from) {
    if (warp != 0 || !inside) return;
    float* const to = state_at(of_slot);
    for (int i = 0; i < before; ++i) to[int64_t(i) * args.cols] = window_of(tile)[(from + i) * kWarp];
  };
  if (warp == 0) {
    for (int i = 0; i < before; ++i) window_of(0)[i * kWarp] = inside ? state_at(slot)[int64_t(i) * args.cols] : 0;
  }
  float next[kConvTokens];
  const auto load = [&](int from) {
    from += warp * kConvTokens;
    QGEN_UNROLL
    for (int u = 0; u < kConvTokens; ++u)
      next[u] = inside && from + u < end ? args.x[(from + u) * args.x_stride + c] : 0;
  };
  load(first);
  const int tiles = (end - first + kConvTile - 1) / kConvTile;
  QGEN_UNROLL_BY(1)
  for (int tile = 0; tile < tiles; ++tile) {
    const int tile_first = first + tile * kConvTile, mine = tile_first + warp * kConvTokens;
    float* const window = window_of(tile);
    float* const own = window + warp * kConvTokens * kWarp;  // what this warp's first token begins with
    QGEN_UNROLL
    for (int u = 0; u < kConvTokens; ++u) own[(before + u) * kWarp] = next[u];
    if (tile > 0 && warp == 0) {
      for (int i = 0; i < before; ++i) window[i * kWarp] = window_of(tile - 1)[(kConvTile + i) * kWarp];
    }
    barrier();
    if (tile + 1 < tiles) load(tile_first + kConvTile);
    const int count = end - mine < kConvTokens ? end - mine : kConvTokens;
    QGEN_UNROLL_BY(4)
    for (int u = 0; u < count; ++u) {
      float sum = bias;
      QGEN_UNROLL
      for (int i = 0; i < taps; ++i) sum = fused_product(kTaps > 0 ? kept[i] : weights[i], own[(u + i) * kWarp], sum);
      if (inside) args.y[(mine + u) * args.y_stride + c] = activated(args.activation, sum);
    }
    if (tile_first <= marked && marked < tile_first + kConvTile)
      keep(args.segments.mark_slot[segment], tile, marked + 1 - tile_first);
  }
  keep(slot, tiles - 1, end - first - (tiles - 1) * kConvTile);
}

QGEN_DEVICE int key_head_of(const RecurArgs& args, int h) {
  return args.key_heads_repeat ? h % args.key_heads : h / (args.heads / args.key_heads);
}

// What a head's state decays by and changes at, of a token.
struct RecurRates {
  float decay, rate;
};
QGEN_DEVICE RecurRates rates_of(bool delta, float decay, float rate, float a_log, float bias) {
  const float rise = softplus(decay + bias);
  return {exp_fast(-exp_fast(a_log) * rise), delta ? sigmoid(rate) : rise};
}

// A key or a query on its way through a warp's registers: element i is in lane i % kWarp.
template <int kSlots>
struct LaneKey {
  float x[kSlots];

  QGEN_DEVICE void load(const RecurArgs& args, const HeadRows& heads, int64_t token, int head) {
    const float* const from = heads.x + token * heads.stride + head * heads.head_stride + lane_index();
    QGEN_UNROLL
    for (int s = 0; s < kSlots; ++s) x[s] = lane_index() + s * kWarp < args.key_dim ? from[s * kWarp] : 0;
  }
  // Divided by its length where unit_keys is set, times `factor`; `elements` of them, zeros behind key_dim.
  QGEN_DEVICE void put(const RecurArgs& args, float factor, int elements, float* out) const {
    if (args.unit_keys) {
      float squares = 0;
      QGEN_UNROLL
      for (int s = 0; s < kSlots; ++s) squares = fused_product(x[s], x[s], squares);
      factor *= rsqrt_exact(sum_lanes(squares) + args.eps);
    }
    QGEN_UNROLL
    for (int s = 0; s < kSlots; ++s) {
      if (lane_index() + s * kWarp < elements) out[lane_index() + s * kWarp] = x[s] * factor;
    }
  }
};

// A few tokens, one after the other: 32 columns of a head (x of the grid) of a segment (y), a lane a column. Each warp
// has kRows keys of the state, in registers, and the first two prepare the next key and the next query.
constexpr int kRecurWarps = 8;

template <int kRows>
struct alignas(16) RecurShared {
  static constexpr int kKeys = kRecurWarps * kRows;
  float key[2][kKeys], query[2][kKeys];  // of two tokens by turns
  float known[kRecurWarps][kWarp], sum[kRecurWarps][kWarp];
};

template <bool kDelta, int kRows>
QGEN_KERNEL(kRecurWarps* kWarp, kRows > 16 ? 1 : 2)
recur_kernel(const RecurArgs args, const LaunchTimes times) {
  using Shared = RecurShared<kRows>;
  constexpr int kSlots = (Shared::kKeys + kWarp - 1) / kWarp;
  KernelScope scope(times);
  const int parts = (args.value_dim + kWarp - 1) / kWarp, segment = int(block_index().y);
  const int h = int(block_index().x) / parts, column = int(block_index().x) % parts * kWarp + lane_index();
  const int warp = warp_index(), key_head = key_head_of(args, h);
  const int first = args.segments.first[segment], end = args.segments.first[segment + 1];
  const int slot = args.segments.slot[segment], marked = args.segments.marked[segment];
  const bool inside = column < args.value_dim;
  const float a_log = args.a_log[h], bias = args.decay_bias[h], skip = args.skip != nullptr ? args.skip[h] : 0;
  float state[kRows];
  const auto for_state = [&](int of_slot, const auto& use) {
    float* const at = args.state + (int64_t(of_slot) * args.heads + h) * args.key_dim * args.value_dim + column;
    QGEN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int key = warp * kRows + r;
      use(state[r], inside && key < args.key_dim, at + int64_t(key) * args.value_dim);
    }
  };
  // No kernel of this call but this one writes the state.
  if (first < end) for_state(slot, [](float& own, bool there, const float* from) { own = there ? *from : 0; });
  scope.wait_for_inputs();
  if (first == end) return;
  const auto keep = [&](int of_slot) {
    for_state(of_slot, [](float own, bool there, float* to) {
      if (there) *to = own;
    });
  };

  Shared& shared = *shared_memory<Shared>();
  LaneKey<kSlots> lane_key;
  float v = 0, decay = 0, rate = 0;  // of the next token
  const auto load = [&](int64_t t) {
    if (warp < 2) lane_key.load(args, warp == 0 ? args.k : args.q, t, key_head);
    v = inside ? args.v.x[t * args.v.stride + h * args.v.head_stride + column] : 0;
    decay = args.decay[t * args.decay_stride + h];
    if (kDelta) rate = args.rate[t * args.rate_stride + h];
  };
  // A lane's part of a sum, and the sum of all warps.
  const auto share = [&](float(&of_warps)[kRecurWarps][kWarp], float part) {
    of_warps[warp][lane_index()] = part;
    barrier();
  };
  const auto total = [&](const float(&of_warps)[kRecurWarps][kWarp]) {
    float sum = 0;
    QGEN_UNROLL
    for (int w = 0; w < kRecurWarps; ++w) sum += of_warps[w][lane_index()];
    return sum;
  };
  load(first);
  QGEN_UNROLL_BY(1)
  for (int t = first; t < end; ++t) {
    const int turn = t % 2;
    if (warp < 2)
      lane_key.put(args, warp == 0 ? 1 : args.scale, Shared::kKeys, warp == 0 ? shared.key[turn] : shared.query[turn]);
    const RecurRates rates = rates_of(kDelta, decay, rate, a_log, bias);
    const float value = v;
    barrier();
    if (t + 1 < end) load(t + 1);
    const float* const key = shared.key[turn] + warp * kRows;
    const float* const query = shared.query[turn] + warp * kRows;
    float change = value * rates.rate;
    if constexpr (kDelta) {
      float known = 0;
      QGEN_UNROLL
      for (int r = 0; r < kRows; ++r) known = fused_product(state[r], key[r], known);
      share(shared.known, known);
      change = rates.rate * (value - rates.decay * total(shared.known));
    }
    float sum = 0;
    QGEN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      state[r] = fused_product(key[r], change, rates.decay * state[r]);
      sum = fused_product(state[r], query[r], sum);
    }
    share(shared.sum, sum);
    if (warp == 0 && inside)
      args.y[t * args.y_stride + int64_t(h) * args.value_dim + column] = fused_product(skip, value, total(shared.sum));
    if (t == marked) keep(args.segments.mark_slot[segment]);
  }
  keep(slot);
}

// Many tokens, kRecurChunk at a time: what a chunk begins with is read twice and written once for all of its tokens
// (src/cpu/isa/recurrence.inc has the formulas). A chunk ends where the state is marked.
constexpr int kInputWarps = 4;

// Of a token (x of the grid): keys and queries, divided by their lengths where that is wanted, a warp a head; and what
// each head's state decays by and changes at, a thread a head.
QGEN_KERNEL(kInputWarps* kWarp, 1) recur_inputs_kernel(const RecurArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
  for (int h = thread_index(); h < args.heads; h += kInputWarps * kWarp) {
    float* const out = args.rates + (token * args.heads + h) * 2;
    const RecurRates rates =
        rates_of(args.delta, args.decay[token * args.decay_stride + h],
                 args.delta ? args.rate[token * args.rate_stride + h] : 0, args.a_log[h], args.decay_bias[h]);
    out[0] = rates.decay;
    out[1] = rates.rate;
  }
  for (int h = warp_index(); h < args.key_heads; h += kInputWarps) {
    LaneKey<kMaxKeyDim / kWarp> key, query;
    key.load(args, args.k, token, h);
    query.load(args, args.q, token, h);
    const int64_t at = (token * args.key_heads + h) * args.key_dim;
    key.put(args, 1, args.key_dim, args.keys + at);
    query.put(args, args.scale, args.key_dim, args.queries + at);
  }
}

constexpr int kProductsWarps = 4;

// Products of the key and the query of a token with the keys of kRecurChunk tokens: its own, the one before it, ...;
// those of the key first, zero where there is no such token. Block: as many tokens (x of the grid) of a key head (y),
// a thread a product. shared: (3 kRecurChunk - 1, key_dim + 4) floats.
QGEN_KERNEL(kProductsWarps* kWarp, 1) recur_products_kernel(const RecurArgs args, const LaunchTimes times) {
  static_assert(kProductsWarps * kWarp == kRecurChunk * kRecurProducts);
  constexpr int kKeys = 2 * kRecurChunk - 1;
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int first = int(block_index().x) * kRecurChunk, key_head = int(block_index().y), row_floats = args.key_dim + 4;
  float* const rows = shared_memory<float>();
  for (int row = warp_index(); row < kKeys + kRecurChunk; row += kProductsWarps) {
    const bool of_key = row < kKeys;
    const int token = first + row - (of_key ? kRecurChunk - 1 : kKeys);
    const float* const from = of_key ? args.keys : args.queries;
    for (int i = lane_index(); i < args.key_dim; i += kWarp) {
      rows[row * row_floats + i] =
          token >= 0 && token < args.tokens ? from[(int64_t(token) * args.key_heads + key_head) * args.key_dim + i] : 0;
    }
  }
  barrier();
  const int t = thread_index() / kRecurProducts, which = thread_index() % kRecurProducts;
  if (first + t >= args.tokens) return;
  const float* const key = rows + (t + kRecurChunk - 1 - which % kRecurChunk) * row_floats;
  const float* const other = rows + (t + (which < kRecurChunk ? kRecurChunk - 1 : kKeys)) * row_floats;
  float product = 0;
  for (int i = 0; i < args.key_dim; i += 4) {
    const Floats4 a = load_floats4(key + i), b = load_floats4(other + i);
    QGEN_UNROLL
    for (int j = 0; j < 4; ++j) product = fused_product(a.at[j], b.at[j], product);
  }
  args.products[(int64_t(first + t) * args.key_heads + key_head) * kRecurProducts + which] = product;
}

constexpr int kChunkWarps = kRecurChunk;  // each brings a token's inputs
constexpr int kLaneColumns = 2, kChunkColumns = kLaneColumns * kWarp;

// Where the shared memory of recur_chunks_kernel() has what (floats). kFours: groups of 4 keys that each
// warp has.
template <int kFours>
struct RecurChunk {
  static constexpr int kRow = kFours * 4 * kChunkWarps;
  // Of two chunks: keys, then queries, of each token; values; products; decay and rate.
  static constexpr int kValues = 2 * kRecurChunk * kRow, kProducts = kValues + kRecurChunk * kChunkColumns;
  static constexpr int kRates = kProducts + kRecurChunk * kRecurProducts, kInputs = kRates + 2 * kRecurChunk;
  // Of each warp, what its keys give for every key and query; and what all give for a key.
  static constexpr int kParts = 2 * kInputs, kTotals = kParts + kChunkWarps * 2 * kRecurChunk * kChunkColumns;
  static constexpr int kSize = kTotals + kRecurChunk * kChunkColumns;
};

// kChunkColumns columns of a head (x of the grid) of a segment (y): a lane has some of them for the keys of its warp,
// in registers. Keys: of whole 4 elements.
template <bool kDelta, int kFours>
QGEN_KERNEL(kChunkWarps* kWarp, 1)
recur_chunks_kernel(const RecurArgs args, const LaunchTimes times) {
  using Shared = RecurChunk<kFours>;
  constexpr int kBoth = 2 * kRecurChunk;  // keys and queries
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int warp = warp_index(), lane = lane_index(), segment = int(block_index().y);
  const int blocks = (args.value_dim + kChunkColumns - 1) / kChunkColumns;
  const int h = int(block_index().x) / blocks, column = int(block_index().x) % blocks * kChunkColumns + lane;
  const int begin = args.segments.first[segment], end = args.segments.first[segment + 1];
  if (begin == end) return;
  const auto inside = [&](int c) { return column + c * kWarp < args.value_dim; };
  float* const shared = shared_memory<float>();

  float state[kFours][4][kLaneColumns];
  const auto for_state = [&](int slot, const auto& use) {
    float* const of_slot = args.state + (int64_t(slot) * args.heads + h) * args.key_dim * args.value_dim + column;
    QGEN_UNROLL
    for (int f = 0; f < kFours; ++f) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int key = (f * kChunkWarps + warp) * 4 + j;
        QGEN_UNROLL
        for (int c = 0; c < kLaneColumns; ++c)
          use(state[f][j][c], key < args.key_dim && inside(c), of_slot + int64_t(key) * args.value_dim + c * kWarp);
      }
    }
  };
  const auto keep = [&](int slot) {
    for_state(slot, [](float own, bool there, float* to) {
      if (there) *to = own;
    });
  };
  const int slot = args.segments.slot[segment], marked = args.segments.marked[segment];
  for_state(slot, [](float& own, bool there, const float* from) { own = there ? *from : 0; });

  const int64_t key_head = key_head_of(args, h);
  const auto end_of = [&](int first) {
    const int last = first <= marked && marked < end ? marked + 1 : end;
    return first + kRecurChunk < last ? first + kRecurChunk : last;
  };
  const auto inputs_of = [&](int chunk) { return shared + chunk % 2 * Shared::kInputs; };
  // The inputs of a chunk on their way, zeros of tokens that it has not.
  const auto ask = [&](int first, int chunk) {
    float* const inputs = inputs_of(chunk);
    const bool there = first + warp < end_of(first);
    const int64_t token = there ? first + warp : first, at = token * args.key_heads + key_head;
    QGEN_UNROLL
    for (int i = lane * 4; i < Shared::kRow; i += kWarp * 4) {
      const bool valid = there && i < args.key_dim;
      copy_async16(inputs + warp * Shared::kRow + i, args.keys + at * args.key_dim + i, valid);
      copy_async16(inputs + (kRecurChunk + warp) * Shared::kRow + i, args.queries + at * args.key_dim + i, valid);
    }
    QGEN_UNROLL
    for (int c = 0; c < kLaneColumns; ++c) {
      copy_async4(inputs + Shared::kValues + warp * kChunkColumns + c * kWarp + lane,
                  args.v.x + token * args.v.stride + h * args.v.head_stride + column + c * kWarp, there && inside(c));
    }
    if (lane < kRecurProducts / 4) {
      copy_async16(inputs + Shared::kProducts + warp * kRecurProducts + lane * 4,
                   args.products + at * kRecurProducts + lane * 4, there);
    }
    if (lane < 2)
      copy_async4(inputs + Shared::kRates + warp * 2 + lane, args.rates + (token * args.heads + h) * 2 + lane, there);
    copy_async_commit();
  };
  ask(begin, 0);
  const float skip = args.skip != nullptr ? args.skip[h] : 0;
  for (int first = begin, next, chunk = 0; first < end; first = next, ++chunk) {
    next = end_of(first);
    copy_async_wait<0>();
    barrier();
    if (next < end) ask(next, chunk + 1);
    const float* const inputs = inputs_of(chunk);
    constexpr int kFirst = kDelta ? 0 : kRecurChunk;
    float of_state[kBoth][kLaneColumns] = {};
    QGEN_UNROLL
    for (int f = 0; f < kFours; ++f) {
      QGEN_UNROLL
      for (int row = kFirst; row < kBoth; ++row) {
        const Floats4 x = load_floats4(inputs + row * Shared::kRow + (f * kChunkWarps + warp) * 4);
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) {
          QGEN_UNROLL
          for (int c = 0; c < kLaneColumns; ++c)
            of_state[row][c] = fused_product(state[f][j][c], x.at[j], of_state[row][c]);
        }
      }
    }
    float* const parts = shared + Shared::kParts + lane;
    QGEN_UNROLL
    for (int row = kFirst; row < kBoth; ++row) {
      QGEN_UNROLL
      for (int c = 0; c < kLaneColumns; ++c) parts[(warp * kBoth + row) * kChunkColumns + c * kWarp] = of_state[row][c];
    }
    barrier();
    // A warp adds up what all have for one token: for its key, which every warp needs, and for its query.
    const auto total = [&](int row, int c) {
      float sum = 0;
      QGEN_UNROLL
      for (int w = 0; w < kChunkWarps; ++w) sum += parts[(w * kBoth + row) * kChunkColumns + c * kWarp];
      return sum;
    };
    float* const totals = shared + Shared::kTotals + lane;
    float of_query[kLaneColumns];
    QGEN_UNROLL
    for (int c = 0; c < kLaneColumns; ++c) {
      if (kDelta) totals[warp * kChunkColumns + c * kWarp] = total(warp, c);
      of_query[c] = total(kRecurChunk + warp, c);
    }
    if (kDelta) barrier();
    // Every warp has all changes, times the decays of the tokens behind them, and writes what one token gives.
    float change[kRecurChunk][kLaneColumns], decay = 1;
    QGEN_UNROLL
    for (int t = 0; t < kRecurChunk; ++t) {
      const float now = first + t < next ? inputs[Shared::kRates + 2 * t] : 1,
                  rate = inputs[Shared::kRates + 2 * t + 1];
      decay *= now;
      const float* const products = inputs + Shared::kProducts + t * kRecurProducts;
      QGEN_UNROLL
      for (int c = 0; c < kLaneColumns; ++c) {
        const float v = inputs[Shared::kValues + t * kChunkColumns + c * kWarp + lane];
        float known = kDelta ? decay * totals[t * kChunkColumns + c * kWarp] : 0;
        QGEN_UNROLL
        for (int i = 0; i < t; ++i) {
          change[i][c] *= now;
          if (kDelta) known = fused_product(products[t - i], change[i][c], known);
        }
        change[t][c] = rate * (v - known);
        if (t != warp || first + t >= next) continue;
        float sum = decay * of_query[c];
        QGEN_UNROLL
        for (int i = 0; i <= t; ++i) sum = fused_product(products[kRecurChunk + t - i], change[i][c], sum);
        sum = fused_product(skip, v, sum);
        if (inside(c)) args.y[(first + t) * args.y_stride + int64_t(h) * args.value_dim + column + c * kWarp] = sum;
      }
    }
    QGEN_UNROLL
    for (int f = 0; f < kFours; ++f) {
      QGEN_UNROLL
      for (int j = 0; j < 4; ++j) {
        QGEN_UNROLL
        for (int c = 0; c < kLaneColumns; ++c) state[f][j][c] *= decay;
      }
      QGEN_UNROLL
      for (int t = 0; t < kRecurChunk; ++t) {
        const Floats4 key = load_floats4(inputs + t * Shared::kRow + (f * kChunkWarps + warp) * 4);
        QGEN_UNROLL
        for (int j = 0; j < 4; ++j) {
          QGEN_UNROLL
          for (int c = 0; c < kLaneColumns; ++c)
            state[f][j][c] = fused_product(key.at[j], change[t][c], state[f][j][c]);
        }
      }
    }
    if (next - 1 == marked) keep(args.segments.mark_slot[segment]);
  }
  keep(slot);
}

}  // namespace qgen::QGEN_BACKEND
