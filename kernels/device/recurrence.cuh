// What carries a state from token to token: causal convolutions and linear recurrences (model/step.h).
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kConvTokens = 16;  // of a warp at once
constexpr int conv_tile(int warps) { return warps * kConvTokens; }
constexpr int kRecurWarps = 4;

// 32 columns (x of the grid) of a segment (y), a lane a column, each warp some neighbouring tokens of a tile; the next
// tile's inputs are on their way meanwhile. shared: twice (taps - 1 + kConvTile, 32), the inputs of a tile behind those
// before it. kTaps: how many there are, or 0 for any.
template <int kTaps, int kWarps>
QGEN_KERNEL(kWarps* kWarp, 1)
convolve_kernel(const ConvArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  constexpr int kConvTile = conv_tile(kWarps);
  const int taps = kTaps > 0 ? kTaps : args.taps, before = taps - 1;
  const int warp = warp_index(), c = int(block_index().x) * kWarp + lane_index(), segment = int(block_index().y);
  const int first = args.segments.first[segment], end = args.segments.first[segment + 1];
  if (first == end) return;
  const bool inside = c < args.cols;
  const auto window_of = [&](int tile) {
    return shared_memory<float>() + tile % 2 * (before + kConvTile) * kWarp + lane_index();
  };
  const auto state_at = [&](int slot) { return args.state + int64_t(slot) * before * args.cols + c; };
  // The last inputs before token `from` of a tile.
  const auto keep = [&](int slot, int tile, int from) {
    if (warp != 0 || !inside) return;
    float* const to = state_at(slot);
    for (int i = 0; i < before; ++i) to[int64_t(i) * args.cols] = window_of(tile)[(from + i) * kWarp];
  };
  const int slot = args.segments.slot[segment], marked = args.segments.marked[segment];
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
  const float* const weights = args.weight + int64_t(inside ? c : 0) * taps;
  float kept[kTaps > 0 ? kTaps : 1];
  QGEN_UNROLL
  for (int i = 0; i < kTaps; ++i) kept[i] = weights[i];
  const float bias = args.bias != nullptr && inside ? args.bias[c] : 0;
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

// Of a token (x of the grid): keys and queries, divided by their lengths where that is wanted, a warp a head; and what
// each head's state decays by and changes at, a thread a head.
QGEN_KERNEL(kRecurWarps* kWarp, 1) recur_inputs_kernel(const RecurArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
  for (int h = thread_index(); h < args.heads; h += kRecurWarps * kWarp) {
    const float rise = softplus(args.decay[token * args.decay_stride + h] + args.decay_bias[h]);
    float* const rates = args.rates + (token * args.heads + h) * 2;
    rates[0] = exp_fast(-exp_fast(args.a_log[h]) * rise);
    rates[1] = args.delta ? sigmoid(args.rate[token * args.rate_stride + h]) : rise;
  }
  for (int h = warp_index(); h < args.key_heads; h += kRecurWarps) {
    const auto put = [&](const HeadRows& heads, float factor, float* out) {
      const float* const x = heads.x + token * heads.stride + h * heads.head_stride;
      if (args.unit_keys) {
        float squares = 0;
        for (int i = lane_index(); i < args.key_dim; i += kWarp) squares = fused_product(x[i], x[i], squares);
        factor *= rsqrt_exact(sum_lanes(squares) + args.eps);
      }
      for (int i = lane_index(); i < args.key_dim; i += kWarp)
        out[(token * args.key_heads + h) * args.key_dim + i] = x[i] * factor;
    };
    put(args.k, 1, args.keys);
    put(args.q, args.scale, args.queries);
  }
}

QGEN_DEVICE int key_head_of(const RecurArgs& args, int h) {
  return args.key_heads_repeat ? h % args.key_heads : h / (args.heads / args.key_heads);
}

// 32 columns of a head (x of the grid) of a segment (y) in shared memory, a lane a column, each warp a part of the
// keys. shared: (key_dim, 32) floats of the state, then two for each thread.
QGEN_KERNEL(kRecurWarps* kWarp, 1) recur_kernel(const RecurArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int parts = (args.value_dim + kWarp - 1) / kWarp, segment = int(block_index().y);
  const int h = int(block_index().x) / parts, column = int(block_index().x) % parts * kWarp + lane_index();
  const int first = args.segments.first[segment], end = args.segments.first[segment + 1];
  if (first == end) return;
  const bool inside = column < args.value_dim;
  float* const tile = shared_memory<float>() + lane_index();
  float* const sums = shared_memory<float>() + args.key_dim * kWarp;
  const auto state_at = [&](int slot) {
    return args.state + (int64_t(slot) * args.heads + h) * args.key_dim * args.value_dim + column;
  };
  float* const state = state_at(args.segments.slot[segment]);
  for (int i = warp_index(); i < args.key_dim; i += kRecurWarps)
    tile[i * kWarp] = inside ? state[int64_t(i) * args.value_dim] : 0;
  const auto keep = [&](float* to) {
    for (int i = warp_index(); i < args.key_dim; i += kRecurWarps) {
      if (inside) to[int64_t(i) * args.value_dim] = tile[i * kWarp];
    }
  };
  const int marked = args.segments.marked[segment];
  // Of all warps; `which`: of two sums, so that one is not written while the other one is read.
  const auto total = [&](float part, int which) {
    float* const mine = sums + which * kRecurWarps * kWarp;
    mine[warp_index() * kWarp + lane_index()] = part;
    barrier();
    float sum = 0;
    QGEN_UNROLL
    for (int w = 0; w < kRecurWarps; ++w) sum += mine[w * kWarp + lane_index()];
    return sum;
  };
  const int key_head = key_head_of(args, h);
  for (int64_t t = first; t < end; ++t) {
    const int64_t key = (t * args.key_heads + key_head) * args.key_dim;
    const float g = args.rates[(t * args.heads + h) * 2], rate = args.rates[(t * args.heads + h) * 2 + 1];
    const float v = inside ? args.v.x[t * args.v.stride + h * args.v.head_stride + column] : 0;
    float change = v * rate;
    if (args.delta) {
      float known = 0;
      for (int i = warp_index(); i < args.key_dim; i += kRecurWarps)
        known = fused_product(tile[i * kWarp], args.keys[key + i], known);
      change = rate * (v - g * total(known, 0));
    }
    float sum = 0;
    for (int i = warp_index(); i < args.key_dim; i += kRecurWarps) {
      const float s = fused_product(args.keys[key + i], change, g * tile[i * kWarp]);
      tile[i * kWarp] = s;
      sum = fused_product(s, args.queries[key + i], sum);
    }
    sum = total(sum, 1);
    if (args.skip != nullptr) sum = fused_product(args.skip[h], v, sum);
    if (warp_index() == 0 && inside) args.y[t * args.y_stride + int64_t(h) * args.value_dim + column] = sum;
    if (!args.delta) barrier();  // the sums are written again by the next token
    if (t == marked) keep(state_at(args.segments.mark_slot[segment]));
  }
  keep(state);
}

// Many tokens, kRecurChunk at a time: what a chunk begins with is read twice and written once for all of its tokens
// (src/cpu/isa/recurrence.inc has the formulas). A chunk ends where the state is marked.
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
