// What carries a state from token to token: causal convolutions and linear recurrences (model/step.h).
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kConvThreads = 128;
constexpr int kRecurWarps = 4;

constexpr int kConvAhead = 16;  // inputs of a column that are loaded at once

// A column of a segment: y of the grid. shared: of each thread's column the last taps - 1 inputs and those behind them,
// as many as are loaded at once. kTaps: how many there are, or 0 for any.
template <int kTaps>
QGEN_KERNEL(kConvThreads, 1)
convolve_kernel(const ConvArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int taps = kTaps > 0 ? kTaps : args.taps;
  const int c = int(block_index().x) * kConvThreads + thread_index(), segment = int(block_index().y);
  const int first = args.segments.first[segment], end = args.segments.first[segment + 1];
  if (c >= args.cols || first == end) return;
  const int before = taps - 1;
  float* const window = shared_memory<float>() + thread_index();
  const auto state_at = [&](int slot) { return args.state + int64_t(slot) * before * args.cols + c; };
  const auto keep = [&](int slot, int from) {
    float* const to = state_at(slot);
    for (int i = 0; i < before; ++i) to[int64_t(i) * args.cols] = window[(from + i) * kConvThreads];
  };
  const int slot = args.segments.slot[segment], marked = args.segments.marked[segment];
  for (int i = 0; i < before; ++i) window[i * kConvThreads] = state_at(slot)[int64_t(i) * args.cols];
  const float* const weights = args.weight + int64_t(c) * taps;
  float kept[kTaps > 0 ? kTaps : 1];
  QGEN_UNROLL
  for (int i = 0; i < kTaps; ++i) kept[i] = weights[i];
  const float bias = args.bias != nullptr ? args.bias[c] : 0;
  QGEN_UNROLL_BY(1)
  for (int t = first; t < end; t += kConvAhead) {
    const int count = end - t < kConvAhead ? end - t : kConvAhead;
    float next[kConvAhead];
    QGEN_UNROLL
    for (int u = 0; u < kConvAhead; ++u) next[u] = u < count ? args.x[(t + u) * args.x_stride + c] : 0;
    QGEN_UNROLL
    for (int u = 0; u < kConvAhead; ++u) window[(before + u) * kConvThreads] = next[u];
    QGEN_UNROLL_BY(4)
    for (int u = 0; u < count; ++u) {
      float sum = bias;
      if constexpr (kTaps > 0) {
        QGEN_UNROLL
        for (int i = 0; i < kTaps; ++i) sum = fused_product(kept[i], window[(u + i) * kConvThreads], sum);
      } else {
        for (int i = 0; i < taps; ++i) sum = fused_product(weights[i], window[(u + i) * kConvThreads], sum);
      }
      args.y[(t + u) * args.y_stride + c] = activated(args.activation, sum);
      if (t + u == marked) keep(args.segments.mark_slot[segment], u + 1);
    }
    for (int i = 0; i < before; ++i) window[i * kConvThreads] = window[(count + i) * kConvThreads];
  }
  keep(slot, 0);
}

// Keys and queries of a token, divided by their lengths where that is wanted, a warp a head.
QGEN_KERNEL(kRecurWarps* kWarp, 1) recur_inputs_kernel(const RecurArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int64_t token = block_index().x;
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

// What the tokens of a head have in common: the key head that it reads, and where decays come from.
struct RecurHead {
  int index, key_head;
  float rate_of_decay, bias;
};
QGEN_DEVICE RecurHead recur_head(const RecurArgs& args, int h) {
  const int key_head = args.key_heads_repeat ? h % args.key_heads : h / (args.heads / args.key_heads);
  return {h, key_head, -exp_fast(args.a_log[h]), args.decay_bias[h]};
}
struct TokenRates {
  float decay, rate;
};
QGEN_DEVICE TokenRates rates_of(const RecurArgs& args, const RecurHead& head, int64_t t) {
  const float rise = softplus(args.decay[t * args.decay_stride + head.index] + head.bias);
  const float rate = args.delta ? sigmoid(args.rate[t * args.rate_stride + head.index]) : rise;
  return {exp_fast(head.rate_of_decay * rise), rate};
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
  const RecurHead head = recur_head(args, h);
  for (int64_t t = first; t < end; ++t) {
    const int64_t key = (t * args.key_heads + head.key_head) * args.key_dim;
    const auto [g, rate] = rates_of(args, head, t);
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

// Tokens of a chunk, and where the shared memory of recur_chunks_kernel() has what (floats).
constexpr int kRecurChunk = 8;
struct RecurChunkLayout {
  int key_dim;
  constexpr int key_row() const { return key_dim + 4; }  // rows begin in different banks
  constexpr int inputs() const { return key_dim * kWarp; }
  constexpr int inputs_size() const { return 2 * kRecurChunk * key_row(); }
  constexpr int sums() const { return inputs() + 2 * inputs_size(); }
  constexpr int products() const { return sums() + kRecurWarps * 2 * kRecurChunk * kWarp; }
  constexpr int rates() const { return products() + 2 * kRecurChunk * kRecurChunk; }
  constexpr int size() const { return rates() + 2 * 2 * kRecurChunk; }
};

// The same for many tokens, kRecurChunk at a time: what a chunk begins with is read twice and written once for all of
// its tokens, and the block waits twice for its warps (src/cpu/isa/recurrence.inc has the formulas). A chunk ends
// where the state is marked. Keys: of whole 4 elements. shared: RecurChunkLayout - the state's tile, keys and queries
// of two chunks, the warps' sums, products of keys, decays and rates of two chunks.
template <bool kDelta>
QGEN_KERNEL(kRecurWarps* kWarp, 3)
recur_chunks_kernel(const RecurArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  constexpr int kInputs = 2 * kRecurChunk;
  const int parts = (args.value_dim + kWarp - 1) / kWarp, segment = int(block_index().y);
  const int h = int(block_index().x) / parts, column = int(block_index().x) % parts * kWarp + lane_index();
  const int begin = args.segments.first[segment], end = args.segments.first[segment + 1];
  if (begin == end) return;
  const bool inside = column < args.value_dim;
  const RecurChunkLayout layout{args.key_dim};
  float* const shared = shared_memory<float>();
  float* const tile = shared + lane_index();
  float* const sums = shared + layout.sums() + lane_index();
  float* const products = shared + layout.products();
  const auto state_at = [&](int slot) {
    return args.state + (int64_t(slot) * args.heads + h) * args.key_dim * args.value_dim + column;
  };
  float* const state = state_at(args.segments.slot[segment]);
  // The warp's keys, four at a time.
  const auto each_four = [&](const auto& body) {
    for (int i = warp_index() * 4; i < args.key_dim; i += kRecurWarps * 4) body(i);
  };
  each_four([&](int i) {
    for (int j = i; j < i + 4; ++j) tile[j * kWarp] = inside ? state[int64_t(j) * args.value_dim] : 0;
  });
  const auto keep = [&](float* to) {
    each_four([&](int i) {
      for (int j = i; inside && j < i + 4; ++j) to[int64_t(j) * args.value_dim] = tile[j * kWarp];
    });
  };
  const int marked = args.segments.marked[segment];
  const RecurHead head = recur_head(args, h);
  const auto end_of = [&](int first) {
    const int last = first <= marked && marked < end ? marked + 1 : end;
    return first + kRecurChunk < last ? first + kRecurChunk : last;
  };
  // Keys, queries, decays and rates of the chunk at `first` on their way into shared memory; as if nothing happened in
  // tokens that it has not.
  const auto fetch = [&](int first, int which) {
    const int tokens = end_of(first) - first, fours = args.key_dim / 4;
    float* const inputs = shared + layout.inputs() + which * layout.inputs_size();
    for (int i = thread_index(); i < kInputs * fours; i += kRecurWarps * kWarp) {
      const int row = i / fours, at = i % fours * 4, t = row % kRecurChunk;
      const float* const from = row < kRecurChunk ? args.keys : args.queries;
      const int64_t token = t < tokens ? first + t : first;
      copy_async16(inputs + row * layout.key_row() + at,
                   from + (token * args.key_heads + head.key_head) * args.key_dim + at, t < tokens);
    }
    copy_async_commit();
    if (thread_index() >= kRecurChunk) return;
    float* const rates = shared + layout.rates() + which * kInputs + thread_index();
    const TokenRates of = thread_index() < tokens ? rates_of(args, head, first + thread_index()) : TokenRates{1, 0};
    rates[0] = of.decay;
    rates[kRecurChunk] = of.rate;
  };
  fetch(begin, 0);
  int which = 0;
  for (int first = begin, next; first < end; first = next, which = 1 - which) {
    next = end_of(first);
    float v[kRecurChunk];
    QGEN_UNROLL
    for (int t = 0; t < kRecurChunk; ++t) {
      v[t] = inside && first + t < next ? args.v.x[(first + t) * args.v.stride + h * args.v.head_stride + column] : 0;
    }
    copy_async_wait<0>();
    barrier();
    if (next < end) fetch(next, 1 - which);
    const float* const inputs = shared + layout.inputs() + which * layout.inputs_size();
    const float *const decays = shared + layout.rates() + which * kInputs, *const rates = decays + kRecurChunk;

    // A thread a product: of key i with key or query `row`, times the decays between them.
    for (int at = thread_index(); at < kRecurChunk * kInputs; at += kRecurWarps * kWarp) {
      const int i = at / kInputs, row = at % kInputs, t = row % kRecurChunk;
      if (!kDelta && row < kRecurChunk) continue;
      float product = 0;
      for (int key = 0; key < args.key_dim; key += 4) {
        const Floats4 a = load_floats4(inputs + i * layout.key_row() + key);
        const Floats4 b = load_floats4(inputs + row * layout.key_row() + key);
        for (int j = 0; j < 4; ++j) product = fused_product(a.at[j], b.at[j], product);
      }
      for (int s = i + 1; s <= t; ++s) product *= decays[s];
      products[i * kInputs + row] = product;
    }
    float of_state[kInputs] = {};
    constexpr int kFirst = kDelta ? 0 : kRecurChunk;
    each_four([&](int i) {
      float s[4];
      for (int j = 0; j < 4; ++j) s[j] = tile[(i + j) * kWarp];
      QGEN_UNROLL
      for (int row = kFirst; row < kInputs; ++row) {
        const Floats4 x = load_floats4(inputs + row * layout.key_row() + i);
        for (int j = 0; j < 4; ++j) of_state[row] = fused_product(s[j], x.at[j], of_state[row]);
      }
    });
    QGEN_UNROLL
    for (int row = kFirst; row < kInputs; ++row) sums[(warp_index() * kInputs + row) * kWarp] = of_state[row];
    barrier();
    const auto total = [&](int row) {
      float sum = 0;
      QGEN_UNROLL
      for (int w = 0; w < kRecurWarps; ++w) sum += sums[(w * kInputs + row) * kWarp];
      return sum;
    };
    // Every warp has all changes, and writes what its share of the tokens gives.
    float change[kRecurChunk], decay = 1;
    QGEN_UNROLL
    for (int t = 0; t < kRecurChunk; ++t) {
      decay *= decays[t];
      float rest = v[t];
      if (kDelta) {
        float known = decay * total(t);
        for (int i = 0; i < t; ++i) known = fused_product(products[i * kInputs + t], change[i], known);
        rest -= known;
      }
      change[t] = rates[t] * rest;
      if (t % kRecurWarps != warp_index() || first + t >= next) continue;
      float sum = decay * total(kRecurChunk + t);
      for (int i = 0; i <= t; ++i) sum = fused_product(products[i * kInputs + kRecurChunk + t], change[i], sum);
      if (args.skip != nullptr) sum = fused_product(args.skip[h], v[t], sum);
      if (inside) args.y[(first + t) * args.y_stride + int64_t(h) * args.value_dim + column] = sum;
    }
    float behind = 1;
    QGEN_UNROLL
    for (int t = kRecurChunk - 1; t >= 0; --t) {
      change[t] *= behind;
      behind *= decays[t];
    }
    each_four([&](int i) {
      float s[4];
      for (int j = 0; j < 4; ++j) s[j] = decay * tile[(i + j) * kWarp];
      QGEN_UNROLL
      for (int t = 0; t < kRecurChunk; ++t) {
        const Floats4 key = load_floats4(inputs + t * layout.key_row() + i);
        for (int j = 0; j < 4; ++j) s[j] = fused_product(key.at[j], change[t], s[j]);
      }
      for (int j = 0; j < 4; ++j) tile[(i + j) * kWarp] = s[j];
    });
    if (next - 1 == marked) keep(state_at(args.segments.mark_slot[segment]));
  }
  keep(state);
}

}  // namespace qgen::QGEN_BACKEND
