#include "cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "base/rounding.h"

namespace qgen::cpu {
namespace {

int64_t padded(int64_t dim) { return round_up(dim, kHeadPad); }

template <typename Use>
void for_each_attend(const Plan& plan, const Use& use) {
  for (const Step& step : plan.steps) {
    if (const auto* attend = std::get_if<AttendStep>(&step.op)) use(*attend);
  }
}

}  // namespace

KvCache::KvCache(const Plan& plan, const CacheLayout& layout, KvType type)
    : plan_(plan),
      layout_(layout),
      element_bytes_(kv_element_bytes(type)),
      scaled_(kv_row_bytes(type, 0) > 0),
      states_(plan.states.size()) {}

void KvCache::lay_out(Arena& arena) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const State& state = plan_.states[i];
    if (layout_.group_of(StateId(i)) < 0) continue;
    const int64_t pages = layout_.groups()[size_t(layout_.group_of(StateId(i)))].pages;
    const int64_t rows = pages * layout_.page_tokens() * state.kv_heads;
    states_[i].keys = arena.take<uint8_t>(rows * state.key_dim * element_bytes_);
    if (!state.values_in_keys) states_[i].values = arena.take<uint8_t>(rows * padded(state.value_dim) * element_bytes_);
    if (!scaled_) continue;
    states_[i].key_scales = arena.take<float>(rows);
    states_[i].value_scales = state.values_in_keys ? states_[i].key_scales : arena.take<float>(rows);
  }
}

CacheView KvCache::view(StateId state, const Segment& segment) const {
  const StateCache& cache = states_[size_t(state)];
  const State& shape = plan_.states[size_t(state)];
  const std::vector<int32_t>& pages = segment.pages[size_t(layout_.group_of(state))];
  return {.keys = cache.keys,
          .values = cache.values,
          .key_scales = cache.key_scales,
          .value_scales = cache.value_scales,
          .pages = pages.data(),
          .ring = int64_t(pages.size()),
          .page_tokens = layout_.page_tokens(),
          .kv_heads = shape.kv_heads,
          .key_dim = shape.key_dim,
          .padded_dim = padded(shape.value_dim),
          .value_dim = shape.value_dim};
}

void KvCache::copy_page(int32_t group, int32_t from, int32_t to) const {
  for (const StateId id : layout_.groups()[size_t(group)].states) {
    const State& state = plan_.states[size_t(id)];
    const StateCache& cache = states_[size_t(id)];
    const int64_t rows = layout_.page_tokens() * state.kv_heads;
    const auto copy = [&](auto* data, int64_t elements) {
      if (data != nullptr) std::copy_n(data + from * elements, elements, data + to * elements);
    };
    copy(cache.keys, rows * state.key_dim * element_bytes_);
    copy(cache.values, rows * padded(state.value_dim) * element_bytes_);
    copy(cache.key_scales, rows);
    if (!state.values_in_keys) copy(cache.value_scales, rows);
  }
}

Attention::Attention(const Plan& plan, const CacheLayout& layout, const EngineOptions& options, const IsaTarget& target,
                     int workers, int64_t tokens)
    : plan_(plan),
      layout_(layout),
      type_(options.kv),
      f32_activations_(options.activations == Activations::kF32),
      target_(target),
      workers_(workers),
      tokens_(tokens),
      cache_(plan, layout, options.kv),
      overflow_of_tokens_(size_t(tokens), -1) {
  for_each_attend(plan, [&](const AttendStep& step) {
    most_part_floats_ = std::max(most_part_floats_, step.heads * (padded(step.value_dim) + 2));
    const auto same = [&](const Split& split) { return split.window == step.window && split.chunk == step.chunk; };
    if (std::none_of(splits_.begin(), splits_.end(), same)) splits_.push_back({step.window, step.chunk, {}, {}, {}});
  });
  for (const CacheGroup& group : layout.groups()) most_parts_ = std::max(most_parts_, group.pages);
}

void Attention::lay_out_work(Arena& arena) {
  rotations_.clear();
  for (const Rope& rope : plan_.ropes) {
    float* const cos = arena.take<float>(tokens_ * (rope.dim / 2));
    rotations_.emplace_back(cos, arena.take<float>(tokens_ * (rope.dim / 2)));
  }
  partial_ = arena.take<float>(most_parts_ * most_part_floats_);
}

void Attention::load() {
  for (const Step& step : plan_.steps) {
    if (std::holds_alternative<AttendStep>(step.op))
      for_each_vector(step, [&](const Vector& vector) { vectors_.emplace(&vector, vector.values()); });
  }
}

int64_t Attention::scratch_bytes() const {
  int64_t most = 0;
  for_each_attend(plan_, [&](const AttendStep& step) {
    most = std::max(most, attend_scratch_bytes(step.key_dim, padded(step.value_dim)));
  });
  return most;
}

const float* Attention::vector(const Vector* v) const { return v == nullptr ? nullptr : vectors_.at(v).data(); }

int64_t Attention::first_key(const AttendStep& step, int64_t position) const {
  int64_t first = step.window > 0 ? std::max<int64_t>(0, position - step.window + 1) : 0;
  if (step.chunk > 0) first = std::max(first, position / step.chunk * step.chunk);
  return first;
}

const Attention::Split& Attention::split_of(const AttendStep& step) const {
  return *std::find_if(splits_.begin(), splits_.end(),
                       [&](const Split& split) { return split.window == step.window && split.chunk == step.chunk; });
}

void Attention::start(const Batch& batch) {
  for (size_t i = 0; i < plan_.ropes.size(); ++i) {
    const auto cos = batch.ropes->cos(i), sin = batch.ropes->sin(i);
    std::copy(cos.begin(), cos.end(), rotations_[i].first);
    std::copy(sin.begin(), sin.end(), rotations_[i].second);
  }
  // The keys of a token are split at pages, by its position alone: the result does not depend on the threads.
  for (Split& split : splits_) {
    split.parts.clear();
    split.segments.clear();
    split.first_part.assign(1, 0);
    AttendStep step;
    step.window = split.window;
    step.chunk = split.chunk;
    for (size_t s = 0; s < batch.segments.size(); ++s) {
      const Segment& segment = batch.segments[s];
      if (segment.count != 1 || batch.kernels == Kernels::kPrompt) continue;
      const int64_t first = first_key(step, segment.position), last = segment.position + 1;
      for (int64_t page = first / kAttendChunk; page * kAttendChunk < last; ++page) {
        split.parts.push_back(
            {int32_t(s), std::max(first, page * kAttendChunk), std::min(last, (page + 1) * kAttendChunk)});
      }
      split.segments.push_back(int32_t(s));
      split.first_part.push_back(int32_t(split.parts.size()));
    }
  }
}

void Attention::run(const AttendStep& step, const Batch& batch, const std::vector<RowBuffer>& rows, ThreadPool& pool,
                    std::byte* scratch) {
  normalize_rows(step, batch, rows, pool);
  store(step, batch, rows, pool);
  if (!split_of(step).parts.empty()) attend_one(step, batch, rows, pool, scratch);
  for (const Segment& segment : batch.segments) {
    if (segment.count > 1 || batch.kernels == Kernels::kPrompt) attend_many(step, batch, segment, rows, pool, scratch);
  }
}

// Norms over all heads of a token together come before anything else.
void Attention::normalize_rows(const AttendStep& step, const Batch& batch, const std::vector<RowBuffer>& rows,
                               ThreadPool& pool) const {
  const auto whole = [&](const Norm& norm, const Heads& heads, int64_t dim, int64_t token) {
    if (!norm || norm.group <= dim) return;
    float* const x = rows[size_t(heads.row)].at(token, heads.first);
    target_.normalize(static_cast<NormKind>(norm.kind), x, vector(norm.weight), vector(norm.bias), norm.group,
                      float(norm.eps), x);
  };
  if ((!step.q_norm || step.q_norm.group <= step.key_dim) && (!step.k_norm || step.k_norm.group <= step.key_dim))
    return;
  pool.share(int64_t(batch.tokens.size()), [&](int64_t token) {
    whole(step.q_norm, step.q, step.key_dim, token);
    if (step.stores) whole(step.k_norm, step.k, step.key_dim, token);
  });
}

void Attention::normalize_head(const Norm& norm, int64_t head, int64_t dim, float* x) const {
  if (!norm || norm.group > dim) return;
  for (int64_t begin = 0; begin < dim; begin += norm.group) {
    // An element for every column of all heads, or those of a group for all.
    const auto of_group = [&](const Vector* v) {
      return v == nullptr ? nullptr : vector(v) + (v->size > norm.group ? head * dim + begin : 0);
    };
    target_.normalize(static_cast<NormKind>(norm.kind), x + begin, of_group(norm.weight), of_group(norm.bias),
                      norm.group, float(norm.eps), x + begin);
  }
}

// Norm and rotation of a head of q or k, in place.
void Attention::prepare_head(const AttendStep& step, const Norm& norm, int64_t head, int64_t token, float* x) const {
  if (!step.norm_after_rotation) normalize_head(norm, head, step.key_dim, x);
  if (step.rope >= 0) {
    const Rope& rope = plan_.ropes[size_t(step.rope)];
    const int64_t half = rope.dim / 2;
    const auto& [cos, sin] = rotations_[size_t(step.rope)];
    target_.rotate(x + step.rotated_first, cos + token * half, sin + token * half, half,
                   rope.pairs == Rope::Pairs::kAdjacent);
  }
  if (step.norm_after_rotation) normalize_head(norm, head, step.key_dim, x);
}

void Attention::store(const AttendStep& step, const Batch& batch, const std::vector<RowBuffer>& rows,
                      ThreadPool& pool) {
  const int64_t group = step.heads / step.kv_heads, element = cache_.element_bytes();
  const auto store_row = target_.store_kv[size_t(type_)];
  pool.share(int64_t(batch.tokens.size()) * step.kv_heads, [&](int64_t task) {
    const int64_t token = task / step.kv_heads, h = task % step.kv_heads;
    const Segment& segment = segment_of(batch, token);
    const int64_t position = segment.position + token - segment.first;
    if (step.stores) {
      const CacheView view = cache_.view(step.state, segment);
      const int64_t chunk = position / kAttendChunk * kAttendChunk, at = position - chunk;
      const int64_t row = view.first_row(chunk, h);
      // Values first: they may be the keys before their norm.
      StoredRow v{1, false};
      if (step.v) {
        float* const value = rows[size_t(step.v.row)].at(token, step.v.first + h * step.v.stride);
        normalize_head(step.v_norm, h, step.value_dim, value);
        v = store_row(value, step.value_dim, const_cast<uint8_t*>(view.values) + (row + at) * view.padded_dim * element,
                      1);
      }
      float* const key = rows[size_t(step.k.row)].at(token, step.k.first + h * step.k.stride);
      prepare_head(step, step.k_norm, h, token, key);
      const int64_t block = at / kKeyBlock * kKeyBlock;
      const StoredRow k = store_row(
          key, step.key_dim,
          const_cast<uint8_t*>(view.keys) + ((row + block) * view.key_dim + at % kKeyBlock) * element, kKeyBlock);
      if (view.key_scales != nullptr) {
        cache_.key_scales(step.state)[row + at] = k.scale;
        if (step.v) cache_.value_scales(step.state)[row + at] = v.scale;
      }
      if (k.overflow || v.overflow) {
        // The first step with an overflow stays; heads of one step may be stored side by side.
        StateId none = -1;
        std::atomic_ref(overflow_of_tokens_[size_t(token)]).compare_exchange_strong(none, step.state);
        overflowed_ = true;
      }
    }
    double factor = step.scale;
    if (step.temperature_beta != 0)
      factor *= 1 + step.temperature_beta *
                        std::log1p(double((position + step.temperature_offset) / step.temperature_interval));
    for (int64_t g = h * group; g < (h + 1) * group; ++g) {
      float* const query = rows[size_t(step.q.row)].at(token, step.q.first + g * step.q.stride);
      prepare_head(step, step.q_norm, g, token, query);
      target_.scale(query, float(factor), step.key_dim, query);
    }
  });
}

bool Attention::take_overflow(std::span<StateId> of_tokens) {
  if (!overflowed_.exchange(false)) return false;
  std::copy_n(overflow_of_tokens_.begin(), of_tokens.size(), of_tokens.begin());
  std::ranges::fill(overflow_of_tokens_, -1);
  return true;
}

AttendArguments Attention::arguments(const AttendStep& step, const Segment& segment, int64_t kv_head, Kernels kernels,
                                     std::byte* scratch) const {
  AttendArguments a;  // without its rows
  a.cache = cache_.view(step.state, segment);
  a.kv_head = kv_head;
  a.softcap = float(step.softcap);
  a.whole_tiles = kernels == Kernels::kPrompt;
  a.scratch = scratch;
  return a;
}

// What attends where it is not worth while to turn the cache into 16-bit integers.
Attention::Kernel Attention::few_rows_kernel(const AttendStep& step) const {
  const bool codes = type_ == KvType::kInt8 && target_.attend_int8 != nullptr && !f32_activations_;
  return codes && step.key_dim % 2 == 0 ? target_.attend_int8 : target_.attend[size_t(type_)];
}

// out = mixed / sum, with a sink among the scores, times the gate. Many tokens are multiplied by the inverse.
void Attention::finish_head(const AttendStep& step, const std::vector<RowBuffer>& rows, int64_t token, int64_t head,
                            float highest, float sum, const float* mixed, bool divide) const {
  if (step.sinks != nullptr) sum += std::exp(vector(step.sinks)[head] - highest);
  float* const out = rows[size_t(step.out.row)].at(token, step.out.first + head * step.value_dim);
  if (divide) {
    for (int64_t i = 0; i < step.value_dim; ++i) out[i] = mixed[i] / sum;
  } else {
    target_.scale(mixed, 1 / sum, step.value_dim, out);
  }
  if (!step.gate) return;
  const float* const gate = rows[size_t(step.gate.row)].at(token, step.gate.first + head * step.gate.stride);
  for (int64_t i = 0; i < step.value_dim; ++i) out[i] *= 1 / (1 + std::exp(-gate[i]));
}

// Segments of one token: the keys are split as well as the heads; each part leaves its sums in partial_, which are put
// together head by head.
void Attention::attend_one(const AttendStep& step, const Batch& batch, const std::vector<RowBuffer>& rows,
                           ThreadPool& pool, std::byte* scratch) {
  const Split& split = split_of(step);
  const int64_t group = step.heads / step.kv_heads, d = step.value_dim, dim = padded(d), row = dim + 2;
  const int64_t tiles = (group + kMaxAttendRows - 1) / kMaxAttendRows;
  const int64_t parts = int64_t(split.parts.size());
  const auto attend = few_rows_kernel(step);
  const auto part_of = [&](int64_t part, int64_t head) { return partial_ + (part * step.heads + head) * row; };
  pool.share(step.kv_heads * tiles * parts, [&](int64_t task) {
    const int64_t tile = task % tiles, h = task / tiles % step.kv_heads, p = task / tiles / step.kv_heads;
    const Part& part = split.parts[size_t(p)];
    const Segment& segment = batch.segments[size_t(part.segment)];
    AttendArguments a = arguments(step, segment, h, batch.kernels, scratch);
    a.rows = int(std::min<int64_t>(kMaxAttendRows, group - tile * kMaxAttendRows));
    const int64_t first_head = h * group + tile * kMaxAttendRows;
    for (int r = 0; r < a.rows; ++r) {
      a.q[r] = rows[size_t(step.q.row)].at(segment.first, step.q.first + (first_head + r) * step.q.stride);
      a.first[r] = part.first;
      a.last[r] = part.last;
    }
    attend(a);
    const bool alone = part.last - 1 == segment.position && part.first == first_key(step, segment.position);
    for (int r = 0; r < a.rows; ++r) {
      if (alone) {
        finish_head(step, rows, segment.first, first_head + r, a.highest[r], a.sum[r], a.out[r], true);
        continue;
      }
      float* const to = part_of(p, first_head + r);
      std::copy_n(a.out[r], dim, to);
      to[dim] = a.highest[r];
      to[dim + 1] = a.sum[r];
    }
  });
  if (parts == int64_t(split.segments.size())) return;
  pool.share(int64_t(split.segments.size()) * step.heads, [&](int64_t task) {
    const int64_t s = task / step.heads, head = task % step.heads;
    const int64_t begin = split.first_part[size_t(s)], end = split.first_part[size_t(s) + 1];
    if (end - begin == 1) return;
    float highest = -INFINITY, sum = 0;
    for (int64_t p = begin; p < end; ++p) highest = std::max(highest, part_of(p, head)[dim]);
    float* const mixed = part_of(begin, head);
    for (int64_t p = begin; p < end; ++p) {
      const float* const part = part_of(p, head);
      const float factor = std::exp(part[dim] - highest);
      sum += factor * part[dim + 1];
      if (p == begin) {
        for (int64_t i = 0; i < d; ++i) mixed[i] *= factor;
      } else {
        for (int64_t i = 0; i < d; ++i) mixed[i] += factor * part[i];
      }
    }
    const int64_t token = batch.segments[size_t(split.segments[size_t(s)])].first;
    finish_head(step, rows, token, head, highest, sum, mixed, true);
  });
}

// Many tokens: (token, head) rows that share one kv head, as many to a task as leave every worker some. Register tiles
// of rows begin at the same ones however they are shared out.
void Attention::attend_many(const AttendStep& step, const Batch& batch, const Segment& segment,
                            const std::vector<RowBuffer>& rows, ThreadPool& pool, std::byte* scratch) {
  const int64_t group = step.heads / step.kv_heads, count = int64_t(segment.count) * group;
  const auto int16 = target_.attend_int16[size_t(type_)];
  const bool in_int16 = int16 != nullptr && segment.count >= kGemmTokens && !f32_activations_ &&
                        batch.kernels == Kernels::kByCount && step.key_dim % 2 == 0;
  const auto attend = in_int16 ? int16 : few_rows_kernel(step);
  const int64_t share = count * step.kv_heads / (workers_ * 4) / kMaxRegisterTokens * kMaxRegisterTokens;
  const int64_t size = std::clamp<int64_t>(share, 2 * kMaxRegisterTokens, kMaxAttendRows);
  const int64_t tiles = (count + size - 1) / size;
  pool.share(step.kv_heads * tiles, [&](int64_t task) {
    const int64_t h = task / tiles;  // a worker's stretch is of few heads, and of long tiles as of short ones
    const int64_t tile = tiles - 1 - task % tiles;
    AttendArguments a = arguments(step, segment, h, batch.kernels, scratch);
    a.rows = int(std::min(size, count - tile * size));
    const auto token_of = [&](int r) { return (tile * size + r) / group; };
    const auto head_of = [&](int r) { return h * group + (tile * size + r) % group; };
    for (int r = 0; r < a.rows; ++r) {
      const int64_t position = segment.position + token_of(r);
      a.q[r] = rows[size_t(step.q.row)].at(segment.first + token_of(r), step.q.first + head_of(r) * step.q.stride);
      a.first[r] = first_key(step, position);
      a.last[r] = position + 1;
    }
    attend(a);
    for (int r = 0; r < a.rows; ++r)
      finish_head(step, rows, segment.first + token_of(r), head_of(r), a.highest[r], a.sum[r], a.out[r], false);
  });
}

}  // namespace qgen::cpu
