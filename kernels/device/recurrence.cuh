// What carries a state from token to token: causal convolutions and linear recurrences (model/step.h).
#pragma once

#include "kernels/device/codes.cuh"
#include "kernels/device/norms.cuh"

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
  keep(args.segments.new_slot[segment], tiles - 1, end - first - (tiles - 1) * kConvTile);
}

QGEN_DEVICE int key_head_of(const RecurArgs& args, int h) {
  return args.key_heads_repeat ? h % args.key_heads : h / (args.heads / args.key_heads);
}

// What a head's state decays by, as a binary logarithm, and changes at, of a token.
struct RecurRates {
  float log_decay, rate;
};
QGEN_DEVICE RecurRates rates_of(const RecurArgs& args, int64_t token, int h) {
  const float rise = softplus(args.decay[token * args.decay_stride + h] + args.decay_bias[h]);
  constexpr float kLog2E = 1.4426950408889634f;
  return {-exp_fast(args.a_log[h]) * rise * kLog2E,
          args.delta ? sigmoid(args.rate[token * args.rate_stride + h]) : rise};
}

// A column of the convolution that comes before a recurrence and is done in passing (RecurArgs::conv), of a segment
// that begins with token `first`.
class PassedConv {
 public:
  QGEN_DEVICE PassedConv(const ConvArgs& args, int slot, int first, int column)
      : args_(args), slot_(slot), first_(first), column_(column) {}

  // What token t's result is made of but for its own input.
  QGEN_DEVICE float begun(int t) const {
    float sum = args_.bias != nullptr ? args_.bias[column_] : 0;
    QGEN_UNROLL_BY(1)
    for (int i = 0; i < before(); ++i) sum = fused_product(weights()[i], input(t - before() + i), sum);
    return sum;
  }
  QGEN_DEVICE float ended(float begun, float own) const {
    const float sum = fused_product(weights()[before()], own, begun);
    return args_.activation == Activation::kSilu ? silu(sum) : sum;
  }
  // The last inputs before token t, as slot `to` holds them. One thread has the whole column: in the slot of the
  // segment itself they move on.
  QGEN_DEVICE void keep(int t, int to) const {
    QGEN_UNROLL_BY(1)
    for (int i = 0; i < before(); ++i) *state(to, i) = input(t - before() + i);
  }

 private:
  QGEN_DEVICE int before() const { return args_.taps - 1; }
  QGEN_DEVICE const float* weights() const { return args_.weight + int64_t(column_) * args_.taps; }
  QGEN_DEVICE float* state(int slot, int i) const {
    return args_.state + (int64_t(slot) * before() + i) * args_.cols + column_;
  }
  // Of token t, which may have been in an earlier call.
  QGEN_DEVICE float input(int t) const {
    return t >= first_ ? args_.x[t * args_.x_stride + column_] : *state(slot_, t - first_ + before());
  }

  const ConvArgs& args_;
  const int slot_, first_, column_;
};

// A few tokens, one after the other: 32 * kColumnWarps columns (z of the grid) of a head (x) of a segment (y), a lane a
// column. Each warp has kRows keys of the state for 32 columns, in registers; what a token brings, its key, query and
// values, is shared out among all threads.
constexpr int kRecurWarps = 16;

template <int kRows, int kColumnWarps>
struct alignas(16) RecurShared {
  static constexpr int kThreads = kRecurWarps * kWarp;
  static constexpr int kKeyWarps = kRecurWarps / kColumnWarps, kKeys = kKeyWarps * kRows;
  static constexpr int kColumns = kColumnWarps * kWarp;
  // A key, a query, values.
  static constexpr int kInputs = 2 * kKeys + kColumns;
  struct Token {
    float inputs[kInputs];
    float squares[2 * kKeys / kWarp];  // the sums of those of keys and queries, 32 at a time
    float gates[kColumns];
    float decay, rate;
  };
  Token token[2];  // by turns
  float known[kKeyWarps][kColumns], sum[kKeyWarps][kColumns];
  float of_result[kColumnWarps];  // sums of the results' squares
  uint32_t flag;
};

template <bool kDelta, int kRows, int kColumnWarps>
QGEN_KERNEL(kRecurWarps* kWarp, kRows* kRecurWarps > 128 * kColumnWarps ? 1 : 2)
recur_kernel(const RecurArgs args, const LaunchTimes times) {
  using Shared = RecurShared<kRows, kColumnWarps>;
  using Token = typename Shared::Token;
  constexpr int kKeys = Shared::kKeys;
  KernelScope scope(times);
  const int h = int(block_index().x), segment = int(block_index().y);
  const int first_column = int(block_index().z) * Shared::kColumns;
  const int warp = warp_index(), rows = warp / kColumnWarps * kRows;  // the warp's keys begin there
  const int own = warp % kColumnWarps * kWarp + lane_index();         // of the block's columns
  const int key_head = key_head_of(args, h);
  const int first = args.segments.first[segment], end = args.segments.first[segment + 1];
  const int slot = args.segments.slot[segment], marked = args.segments.marked[segment];
  const int column = first_column + own;
  const bool inside = column < args.value_dim, writes = warp < kColumnWarps && inside;
  const bool has_conv = args.conv.weight != nullptr;

  // Input i of the first token of all, null where there is none.
  const auto rows_of = [&](int i) -> const HeadRows& { return i < kKeys ? args.k : i < 2 * kKeys ? args.q : args.v; };
  const auto input_row = [&](int i) -> const float* {
    const HeadRows& from = rows_of(i);
    const bool of_key = i < 2 * kKeys;
    const int at = of_key ? i % kKeys : first_column + i - 2 * kKeys;
    if (at >= (of_key ? args.key_dim : args.value_dim)) return nullptr;
    return from.x + (of_key ? key_head : h) * from.head_stride + at;
  };
  const auto conv_of = [&](const float* row) { return PassedConv(args.conv, slot, first, int(row - args.conv.x)); };
  Shared& shared = *shared_memory<Shared>();
  const auto for_inputs = [&](const auto& use) {
    QGEN_UNROLL_BY(1)
    for (int i = thread_index(); i < Shared::kInputs; i += Shared::kThreads) use(i, input_row(i));
  };
  // What a token brings, in two stages.
  const auto begin = [&](int t) {
    if (!has_conv) return;
    for_inputs([&](int i, const float* row) {
      if (row != nullptr) shared.token[t % 2].inputs[i] = conv_of(row).begun(t);
    });
  };
  const auto load = [&](int64_t t) {
    Token& own_token = shared.token[t % 2];
    for_inputs([&](int i, const float* row) {
      float value = 0;
      if (row != nullptr) {
        value = row[t * rows_of(i).stride];
        if (has_conv) value = conv_of(row).ended(own_token.inputs[i], value);
      }
      own_token.inputs[i] = value;
      if (!args.unit_keys || i >= 2 * kKeys) return;  // whole warps
      const float squares = sum_lanes(value * value);
      if (lane_index() == 0) own_token.squares[i / kWarp] = squares;
    });
    if (writes && args.gate.x != nullptr)
      own_token.gates[own] = args.gate.x[t * args.gate.stride + h * args.gate.head_stride + column];
    if (thread_index() == 0) {
      const RecurRates rates = rates_of(args, t, h);
      own_token.decay = exp2_fast(rates.log_decay);
      own_token.rate = rates.rate;
    }
  };
  float state[kRows];
  const auto for_state = [&](int of_slot, const auto& use) {
    float* at = args.state + ((int64_t(of_slot) * args.heads + h) * args.key_dim + rows) * args.value_dim + column;
    const int there = inside ? args.key_dim - rows : 0;
    QGEN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      use(state[r], r < there, at);
      at += args.value_dim;
    }
  };
  // No kernel of this call but this one writes the states.
  if (first < end) {
    for_state(slot, [](float& value, bool there, const float* from) { value = there ? *from : 0; });
    begin(first);
  }
  scope.wait_for_inputs();
  if (first == end) return;
  const auto keep = [&](int of_slot) {
    for_state(of_slot, [](float value, bool there, float* to) {
      if (there) *to = value;
    });
  };

  // What a key (0) or a query (1) is multiplied by.
  const auto factor = [&](const Token& token, int which) {
    if (!args.unit_keys) return 1.0f;
    float squares = args.eps;
    QGEN_UNROLL_BY(4)
    for (int w = 0; w < kKeys / kWarp; ++w) squares += token.squares[which * (kKeys / kWarp) + w];
    return rsqrt_exact(squares);
  };
  // A lane's part of a sum, and the sum of all warps.
  const auto share = [&](float(&of_warps)[Shared::kKeyWarps][Shared::kColumns], float part) {
    of_warps[warp / kColumnWarps][own] = part;
    barrier();
  };
  const auto total = [&](const float(&of_warps)[Shared::kKeyWarps][Shared::kColumns]) {
    float sum = 0;
    QGEN_UNROLL
    for (int w = 0; w < Shared::kKeyWarps; ++w) sum += of_warps[w][own];
    return sum;
  };
  // Once round before the first token: written out for it, what a token brings would be so much more code to fetch.
  QGEN_UNROLL_BY(1)
  for (int t = not_known(first) - 1; t < end; ++t) {
    if (t >= first) barrier();
    if (t + 1 < end) {
      if (t >= first) begin(t + 1);
      load(t + 1);
    }
    if (t < first) continue;
    const Token& token = shared.token[t % 2];
    const float* const key = token.inputs + rows;
    const float* const query = key + kKeys;
    const float value = token.inputs[2 * kKeys + own], of_key = factor(token, 0);
    const float decay = token.decay, rate = token.rate;
    float change = value * rate;
    if constexpr (kDelta) {
      float known = 0;
      QGEN_UNROLL
      for (int r = 0; r < kRows; ++r) known = fused_product(state[r], key[r], known);
      share(shared.known, known);
      change = rate * (value - decay * (of_key * total(shared.known)));
    }
    change *= of_key;
    float sum = 0;
    QGEN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      state[r] = fused_product(key[r], change, decay * state[r]);
      sum = fused_product(state[r], query[r], sum);
    }
    share(shared.sum, sum);
    float result = 0;
    if (writes) {
      const float skip = args.skip != nullptr ? args.skip[h] : 0;
      result = fused_product(skip, value, args.scale * factor(token, 1) * total(shared.sum));
    }
    if (args.norm.kind != Norm::Kind::kNone) {
      const float squares = sum_lanes(result * result);
      if (warp < kColumnWarps && lane_index() == 0) shared.of_result[warp] = squares;
      barrier();
      float of_head = 0;
      QGEN_UNROLL
      for (int w = 0; w < kColumnWarps; ++w) of_head += shared.of_result[w];
      NormColumn norm;
      if (writes) norm.load(args.norm, h * args.value_dim, column);
      const GroupNorm group{0, rsqrt_exact(of_head / float(args.norm.group) + args.norm.eps)};
      result = norm.normalized(args.norm, group, result);
    }
    if (writes) {
      if (args.gate.x != nullptr) {
        const float gate = token.gates[own];
        result *= args.gate_silu ? silu(gate) : sigmoid(gate);
      }
      args.y[t * args.y_stride + int64_t(h) * args.value_dim + column] = result;
    }
    if (t == marked) keep(args.segments.mark_slot[segment]);
  }
  keep(args.segments.new_slot[segment]);
  if (!has_conv) return;
  // What the convolution's next token needs. Keys and queries are those of several blocks: of the last one to have read
  // them.
  const auto keep_inputs = [&](int from, int to) {
    QGEN_UNROLL_BY(1)
    for (int i = from + thread_index(); i < to; i += Shared::kThreads) {
      const float* const row = input_row(i);
      if (row == nullptr) continue;
      if (first <= marked && marked < end) conv_of(row).keep(marked + 1, args.segments.mark_slot[segment]);
      conv_of(row).keep(end, args.segments.new_slot[segment]);
    }
  };
  keep_inputs(2 * kKeys, Shared::kInputs);
  const unsigned sharing = unsigned(grid_size().z) * unsigned(args.heads / args.key_heads);
  if (ends_last(args.counter + segment * args.key_heads + key_head, sharing, &shared.flag)) keep_inputs(0, 2 * kKeys);
}

}  // namespace qgen::QGEN_BACKEND
