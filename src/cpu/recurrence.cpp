#include "cpu/recurrence.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen::cpu {
namespace {

constexpr int64_t kConvColumns = 256;  // of a task
constexpr int64_t kFewRecurColumns = 64;

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// Calls run(first, count) for the tokens of a segment: all at once, or up to the one behind which its state is marked,
// mark(), and those behind it.
template <typename Run, typename Mark>
void run_segment(const Segment& segment, const Run& run, const Mark& mark) {
  if (segment.marked == 0) return run(0, segment.count);
  run(0, segment.marked);
  mark();
  if (segment.marked < segment.count) run(segment.marked, segment.count - segment.marked);
}

}  // namespace

Recurrence::Recurrence(const Plan& plan, const IsaTarget& target, int64_t slots, int64_t tokens)
    : plan_(plan), target_(target), slots_(slots), tokens_(tokens), states_(plan.states.size()) {
  for (const Step& step : plan.steps) {
    if (const auto* conv = std::get_if<ConvStep>(&step.op); conv != nullptr && conv->taps > kMaxTaps) {
      fail(ErrorKind::kModel,
           fmt::format("convolutions over {} tokens are not supported (expected at most {})", conv->taps, kMaxTaps));
    }
    const auto* recur = std::get_if<RecurStep>(&step.op);
    if (recur == nullptr) continue;
    key_floats_ = std::max(key_floats_, recur->key_heads * recur->key_dim);
    heads_ = std::max(heads_, recur->heads);
  }
}

void Recurrence::lay_out_states(Arena& arena) {
  for (size_t i = 0; i < states_.size(); ++i) states_[i] = arena.take<float>(slots_ * plan_.states[i].elements);
}

void Recurrence::lay_out_work(Arena& arena) {
  keys_ = arena.take<float>(tokens_ * key_floats_);
  queries_ = arena.take<float>(tokens_ * key_floats_);
  decays_ = arena.take<float>(tokens_ * heads_);
  rates_ = arena.take<float>(tokens_ * heads_);
}

void Recurrence::load() {
  for (const Step& step : plan_.steps) {
    const auto* conv = std::get_if<ConvStep>(&step.op);
    if (conv == nullptr && !std::holds_alternative<RecurStep>(step.op)) continue;
    for_each_vector(step, [&](const Vector& v) { vectors_.emplace(&v, v.values()); });
    if (conv == nullptr) continue;
    std::vector<float>& weight = vectors_.at(conv->weight);
    std::vector<float> by_tap(weight.size());
    const int64_t cols = conv->in.cols;
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t i = 0; i < conv->taps; ++i) by_tap[size_t(i * cols + c)] = weight[size_t(c * conv->taps + i)];
    }
    weight = std::move(by_tap);
  }
}

void Recurrence::run(const ConvStep& step, const Batch& batch, const std::vector<RowBuffer>& rows,
                     ThreadPool& pool) const {
  const RowBuffer &in = rows[size_t(step.in.row)], &out = rows[size_t(step.out.row)];
  const int64_t cols = step.in.cols, blocks = (cols + kConvColumns - 1) / kConvColumns;
  pool.share(blocks * int64_t(batch.segments.size()), [&](int64_t task) {
    const Segment& segment = batch.segments[size_t(task / blocks)];
    const int64_t begin = task % blocks * kConvColumns, count = std::min(kConvColumns, cols - begin);
    ConvArguments arguments{};
    arguments.taps = step.taps;
    arguments.cols = count;
    arguments.in_stride = in.stride;
    arguments.weight = vector(step.weight) + begin;
    arguments.weight_stride = cols;
    if (step.bias != nullptr) arguments.bias = vector(step.bias) + begin;
    arguments.state = state(step.state, segment.slot) + begin;
    arguments.state_stride = cols;
    arguments.out_stride = out.stride;
    const auto convolve = [&](int64_t first, int64_t tokens) {
      arguments.tokens = tokens;
      arguments.in = in.at(segment.first + first, step.in.first + begin);
      arguments.out = out.at(segment.first + first, step.out.first + begin);
      target_.convolve(arguments);
      if (step.activation == Activation::kNone) return;
      for (int64_t t = 0; t < tokens; ++t)
        target_.activate(static_cast<ActivationKind>(step.activation), arguments.out + t * out.stride, nullptr, count);
    };
    run_segment(segment, convolve, [&] {
      float* const marked = state(step.state, segment.mark_slot) + begin;
      for (int64_t i = 0; i + 1 < step.taps; ++i) std::copy_n(arguments.state + i * cols, count, marked + i * cols);
    });
  });
}

// Keys, queries, decays and rates of a token.
void Recurrence::prepare(const RecurStep& step, int64_t token, const std::vector<RowBuffer>& rows) const {
  const bool delta = step.kind == RecurStep::Kind::kGatedDelta;
  for (int64_t h = 0; h < step.key_heads; ++h) {
    const auto put = [&](const Heads& heads, float factor, float* all) {
      const float* const x = rows[size_t(heads.row)].at(token, heads.first + h * heads.stride);
      if (step.unit_keys) {
        double squares = 0;
        for (int64_t i = 0; i < step.key_dim; ++i) squares += double(x[i]) * double(x[i]);
        factor *= float(1 / std::sqrt(squares + step.eps));
      }
      target_.scale(x, factor, step.key_dim, all + token * key_floats_ + h * step.key_dim);
    };
    put(step.k, 1, keys_);
    put(step.q, float(step.scale), queries_);
  }
  const float* const decay = rows[size_t(step.decay.row)].at(token, step.decay.first);
  const float* const rate = delta ? rows[size_t(step.rate.row)].at(token, step.rate.first) : nullptr;
  for (int64_t h = 0; h < step.heads; ++h) {
    const float rise = softplus(decay[h] + vector(step.decay_bias)[h]);
    decays_[token * heads_ + h] = std::exp(-std::exp(vector(step.a_log)[h]) * rise);
    rates_[token * heads_ + h] = delta ? 1 / (1 + std::exp(-rate[h])) : rise;
  }
}

void Recurrence::run(const RecurStep& step, const Batch& batch, const std::vector<RowBuffer>& rows,
                     ThreadPool& pool) const {
  pool.share(int64_t(batch.tokens.size()), [&](int64_t token) { prepare(step, token, rows); });
  // The columns of a task share what is computed of their head's keys; a column comes out the same in any task.
  const bool few_heads = step.heads * int64_t(batch.segments.size()) < 2 * pool.workers();
  const int64_t most = few_heads ? kFewRecurColumns : kMostRecurColumns;
  const int64_t blocks = (step.value_dim + most - 1) / most, parts = step.heads * blocks;
  const RowBuffer &v = rows[size_t(step.v.row)], &out = rows[size_t(step.out.row)];
  pool.share(parts * int64_t(batch.segments.size()), [&](int64_t task) {
    const Segment& segment = batch.segments[size_t(task / parts)];
    const int64_t h = task % parts / blocks, begin = task % blocks * most;
    RecurArguments arguments{};
    arguments.key_dim = step.key_dim;
    arguments.cols = std::min(most, step.value_dim - begin);
    arguments.delta = step.kind == RecurStep::Kind::kGatedDelta;
    arguments.in_chunks = batch.kernels == Kernels::kByCount;
    arguments.key_stride = key_floats_;
    arguments.rate_stride = heads_;
    arguments.v_stride = v.stride;
    if (step.skip != nullptr) arguments.skip = vector(step.skip)[h];
    const int64_t place = h * step.key_dim * step.value_dim + begin;
    arguments.state = state(step.state, segment.slot) + place;
    arguments.state_stride = step.value_dim;
    arguments.out_stride = out.stride;
    const auto recur = [&](int64_t from, int64_t tokens) {
      const int64_t first = segment.first + from, key = first * key_floats_ + step.key_head(h) * step.key_dim;
      arguments.tokens = tokens;
      arguments.k = keys_ + key;
      arguments.q = queries_ + key;
      arguments.decay = decays_ + first * heads_ + h;
      arguments.rate = rates_ + first * heads_ + h;
      arguments.v = v.at(first, step.v.first + h * step.v.stride + begin);
      arguments.out = out.at(first, step.out.first + h * step.value_dim + begin);
      target_.recur(arguments);
    };
    run_segment(segment, recur, [&] {
      float* const marked = state(step.state, segment.mark_slot) + place;
      for (int64_t i = 0; i < step.key_dim; ++i)
        std::copy_n(arguments.state + i * step.value_dim, arguments.cols, marked + i * step.value_dim);
    });
  });
}

void Recurrence::copy_slot(int32_t from, int32_t to) const {
  for (StateId id = 0; id < StateId(states_.size()); ++id)
    std::copy_n(state(id, from), plan_.states[size_t(id)].elements, state(id, to));
}

void Recurrence::clear_slot(int32_t slot) const {
  for (StateId id = 0; id < StateId(states_.size()); ++id)
    std::fill_n(state(id, slot), plan_.states[size_t(id)].elements, 0.0f);
}

}  // namespace qgen::cpu
