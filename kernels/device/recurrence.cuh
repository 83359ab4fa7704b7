// What carries a state from token to token: causal convolutions and linear recurrences (model/step.h).
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

constexpr int kConvThreads = 128;
constexpr int kRecurWarps = 4;

// A column of a segment: y of the grid. shared: the last taps - 1 inputs of each thread, in a ring.
QGEN_KERNEL(kConvThreads, 1) convolve_kernel(const ConvArgs args, const LaunchTimes times) {
  KernelScope scope(times);
  scope.wait_for_inputs();
  const int c = int(block_index().x) * kConvThreads + thread_index(), segment = int(block_index().y);
  const int first = args.segments.first[segment], end = args.segments.first[segment + 1];
  if (c >= args.cols || first == end) return;
  const int before = args.taps - 1;
  const auto state_at = [&](int slot) { return args.state + int64_t(slot) * before * args.cols + c; };
  float* const state = state_at(args.segments.slot[segment]);
  float* const history = shared_memory<float>() + thread_index();
  for (int i = 0; i < before; ++i) history[i * kConvThreads] = state[int64_t(i) * args.cols];
  int oldest = 0;
  const auto keep = [&](float* to) {
    for (int i = 0; i < before; ++i) {
      const int at = oldest + i < before ? oldest + i : oldest + i - before;
      to[int64_t(i) * args.cols] = history[at * kConvThreads];
    }
  };
  const int marked = args.segments.marked[segment];
  const float* const weight = args.weight + int64_t(c) * args.taps;
  for (int t = first; t < end; ++t) {
    const float now = args.x[t * args.x_stride + c];
    float sum = args.bias != nullptr ? args.bias[c] : 0;
    for (int i = 0; i < before; ++i) {
      const int at = oldest + i < before ? oldest + i : oldest + i - before;
      sum = fused_product(weight[i], history[at * kConvThreads], sum);
    }
    sum = fused_product(weight[before], now, sum);
    if (before > 0) history[oldest * kConvThreads] = now;
    oldest = oldest + 1 < before ? oldest + 1 : 0;
    args.y[t * args.y_stride + c] = activated(args.activation, sum);
    if (t == marked) keep(state_at(args.segments.mark_slot[segment]));
  }
  keep(state);
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
  const int key_head = args.key_heads_repeat ? h % args.key_heads : h / (args.heads / args.key_heads);
  const float rate_of_decay = -exp_fast(args.a_log[h]), bias = args.decay_bias[h];
  for (int64_t t = first; t < end; ++t) {
    const int64_t key = (t * args.key_heads + key_head) * args.key_dim;
    const float rise = softplus(args.decay[t * args.decay_stride + h] + bias);
    const float g = exp_fast(rate_of_decay * rise);
    const float v = inside ? args.v.x[t * args.v.stride + h * args.v.head_stride + column] : 0;
    float change = v * rise;
    if (args.delta) {
      float known = 0;
      for (int i = warp_index(); i < args.key_dim; i += kRecurWarps)
        known = fused_product(tile[i * kWarp], args.keys[key + i], known);
      change = sigmoid(args.rate[t * args.rate_stride + h]) * (v - g * total(known, 0));
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

}  // namespace qgen::QGEN_BACKEND
