// The reference: the plan in double precision, straight from the codes, with no cleverness. Other engines are measured
// against it.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/blank_memory.h"
#include "engine/engine_table.h"
#include "engine/norm.h"
#include "engine/route.h"

namespace qgen {
namespace {

constexpr int64_t kBatchTokens = 64;
constexpr int64_t kScoredTokens = 4;

int64_t row_tokens(const Row& row) { return row.scored ? kScoredTokens : kBatchTokens; }

using Values = std::vector<double>;

int64_t state_elements(const State& state) {
  return state.kv_heads * (state.key_dim + (state.values_in_keys ? 0 : state.value_dim));
}

// Keys and values of a state: pages of tokens, a token's keys before its values.
class ReferenceCache {
 public:
  ReferenceCache(const Plan& plan, const CacheLayout& layout) : layout_(layout) {
    for (size_t i = 0; i < plan.states.size(); ++i) {
      elements_.push_back(state_elements(plan.states[i]));
      const int32_t group = layout.group_of(StateId(i));
      const int64_t tokens = group < 0 ? 0 : layout.groups()[size_t(group)].pages * layout.page_tokens();
      memory_.emplace_back(size_t(tokens * elements_.back()) * sizeof(double), "cache");
    }
  }

  double* token(StateId state, const Segment& segment, int64_t position) {
    const std::vector<int32_t>& pages = segment.pages[size_t(layout_.group_of(state))];
    const int64_t page = pages[size_t(position / layout_.page_tokens()) % pages.size()];
    const int64_t index = page * layout_.page_tokens() + position % layout_.page_tokens();
    return reinterpret_cast<double*>(memory_[size_t(state)].bytes().data()) + index * elements_[size_t(state)];
  }
  void copy_page(int32_t group, int32_t from, int32_t to) {
    for (const StateId state : layout_.groups()[size_t(group)].states) {
      const int64_t count = layout_.page_tokens() * elements_[size_t(state)];
      double* const data = reinterpret_cast<double*>(memory_[size_t(state)].bytes().data());
      std::copy_n(data + from * count, count, data + to * count);
    }
  }

 private:
  const CacheLayout& layout_;
  std::vector<int64_t> elements_;
  std::vector<BlankMemory> memory_;
};

class ReferenceBackend : public Backend {
 public:
  ReferenceBackend(const Plan& plan, const EngineOptions& options)
      : plan_(plan),
        options_(options),
        layout_(plan, cache_limits(options, kBatchTokens)),
        cache_(plan, layout_),
        fixed_(plan.states.size()) {
    for (size_t i = 0; i < fixed_.size(); ++i)
      fixed_[i].assign(size_t(state_slots(options) * plan.states[i].elements), 0.0);
    for (const Row& row : plan.rows) rows_.emplace_back(size_t(row_tokens(row) * row.cols));
    for (const Vector& vector : plan.vectors) vectors_.emplace(&vector, vector.values());
  }

  std::string description() const override { return "reference, double precision"; }
  Activations activations() const override { return Activations::kF32; }
  MemoryUse memory() const override { return account_reference(plan_, options_); }
  int64_t batch_tokens() const override { return kBatchTokens; }
  int64_t scored_tokens() const override { return kScoredTokens; }
  bool runs_in_parts() const override { return true; }

  void run(const Batch& batch, size_t first, size_t last) override {
    for (size_t i = first; i < last; ++i)
      std::visit([&](const auto& step) { execute(step, batch); }, plan_.steps[i].op);
    if (batch.scored.empty()) return;
    const Values& scores = rows_[size_t(plan_.scores)];
    scores_.assign(scores.begin(), scores.begin() + int64_t(batch.scored.size()) * plan_.model.vocab);
  }

  void read(int64_t token, const View& view, std::span<float> out) override {
    std::copy_n(at(view, token), view.cols, out.begin());
  }
  void read_row(RowId row, std::span<float> out) override {
    std::copy_n(rows_[size_t(row)].begin(), out.size(), out.begin());
  }
  void write_row(RowId row, std::span<const float> values) override {
    std::copy(values.begin(), values.end(), rows_[size_t(row)].begin());
  }
  void copy_page(int32_t group, int32_t from, int32_t to) override { cache_.copy_page(group, from, to); }
  void copy_slot(int32_t from, int32_t to) override {
    for (StateId i = 0; i < StateId(fixed_.size()); ++i)
      std::copy_n(fixed(i, from), plan_.states[size_t(i)].elements, fixed(i, to));
  }
  void clear_slot(int32_t slot) override {
    for (StateId i = 0; i < StateId(fixed_.size()); ++i)
      std::fill_n(fixed(i, slot), plan_.states[size_t(i)].elements, 0.0);
  }

  std::span<const float> scores(int64_t index) override {
    return std::span(scores_).subspan(size_t(index * plan_.model.vocab), size_t(plan_.model.vocab));
  }
  bool scores_finite(int64_t index) override { return Scores(scores(index)).finite(); }

 private:
  double* at(const View& view, int64_t token) {
    return rows_[size_t(view.row)].data() + token * plan_.rows[size_t(view.row)].cols + view.first;
  }
  double* at(const Heads& heads, int64_t token, int64_t head) {
    return at(View{heads.row, heads.first + head * heads.stride, 0}, token);
  }
  double* fixed(StateId state, int32_t slot) {
    return fixed_[size_t(state)].data() + slot * plan_.states[size_t(state)].elements;
  }
  // The elements of a vector; none for none.
  std::span<const float> elements(const Vector* vector) const {
    return vector == nullptr ? std::span<const float>() : std::span<const float>(vectors_.at(vector));
  }

  void execute(const LookupStep& step, const Batch& batch) {
    Values position(size_t(step.out.cols));
    for (const Segment& segment : batch.segments) {
      for (int64_t t = 0; t < segment.count; ++t) {
        double* out = at(step.out, segment.first + t);
        const std::span row(out, size_t(step.out.cols));
        dequantize_row(*step.table, batch.tokens[size_t(segment.first + t)], row);
        for (double& value : row) value *= step.scale;
        if (step.positions == nullptr) continue;
        dequantize_row(*step.positions, segment.position + t, position);
        for (size_t k = 0; k < position.size(); ++k) row[k] += position[k];
      }
    }
  }

  void execute(const LinearStep& step, const Batch& batch) {
    const bool scored = plan_.rows[size_t(step.projections.front().out.row)].scored;
    const int64_t tokens = int64_t(scored ? batch.scored.size() : batch.tokens.size());
    std::vector<Values> inputs;
    for (int64_t t = 0; t < tokens; ++t) {
      const double* in = at(step.in, scored ? batch.scored[size_t(t)] : t);
      inputs.emplace_back(in, in + step.in.cols);
      normalize(step.norm, inputs.back());
    }
    for (const Projection& p : step.projections) {
      std::vector<Values> y = multiply(*p.weight, p.bias, inputs);
      if (p.gate != nullptr) {
        const std::vector<Values> gate = multiply(*p.gate, p.gate_bias, inputs);
        for (size_t t = 0; t < y.size(); ++t) {
          for (size_t n = 0; n < y[t].size(); ++n) y[t][n] *= activate(p.activation, gate[t][n]);
        }
      }
      for (int64_t t = 0; t < tokens; ++t) {
        double* out = at(p.out, t);
        for (int64_t n = 0; n < p.weight->rows; ++n) {
          double value = y[size_t(t)][size_t(n)];
          if (p.gate == nullptr) value = activate(p.activation, value);
          value *= p.scale;
          if (p.softcap > 0) value = p.softcap * std::tanh(value / p.softcap);
          out[n] = p.add ? out[n] + value : value;
        }
      }
    }
  }

  void execute(const HeadLinearStep& step, const Batch& batch) {
    for (int64_t t = 0; t < int64_t(batch.tokens.size()); ++t) {
      for (int64_t h = 0; h < step.heads(); ++h) {
        const double* const in = at(step.in, t, h);
        const Values y = multiply(*step.weights[size_t(h)], nullptr, {Values(in, in + step.cols())}).front();
        double* const out = at(step.out, t, h);
        std::copy(y.begin(), y.end(), out);
        std::copy_n(in + step.cols(), step.kept, out + step.rows());
      }
    }
  }

  void execute(const CombineStep& step, const Batch& batch) {
    for (int64_t t = 0; t < int64_t(batch.tokens.size()); ++t) {
      const double* from = at(step.y, t);
      Values y(from, from + step.y.cols);
      normalize(step.norm, y);
      double* out = at(step.out, t);
      for (int64_t k = 0; k < step.out.cols; ++k) {
        double value = step.y_scale * y[size_t(k)];
        if (step.gate) value *= activate(step.activation, at(step.gate, t)[k * step.gate.cols / step.out.cols]);
        out[k] = (step.x ? step.x_scale * at(step.x, t)[k] : 0) + value;
      }
    }
  }

  void execute(const AttendStep& step, const Batch& batch) {
    const int64_t kd = step.key_dim, vd = step.value_dim;
    for (const Segment& segment : batch.segments) {
      for (int64_t t = 0; step.stores && t < segment.count; ++t) {
        const int64_t token = segment.first + t;
        double* keys = cache_.token(step.state, segment, segment.position + t);
        double* values = keys + step.kv_heads * kd;
        for (int64_t h = 0; h < step.kv_heads; ++h) {
          if (step.v) {
            const Values v = head(step.v, token, h, vd, step.v_norm);
            std::copy(v.begin(), v.end(), values + h * vd);
          }
          const Values k = rotated(step, step.k, token, h, step.k_norm, *batch.ropes);
          std::copy(k.begin(), k.end(), keys + h * kd);
        }
      }
      for (int64_t t = 0; t < segment.count; ++t) attend(step, batch, segment, t);
    }
  }

  void attend(const AttendStep& step, const Batch& batch, const Segment& segment, int64_t t) {
    const int64_t kd = step.key_dim, vd = step.value_dim, token = segment.first + t, position = segment.position + t;
    const bool in_keys = plan_.states[size_t(step.state)].values_in_keys;
    int64_t first = step.window > 0 ? std::max<int64_t>(0, position - step.window + 1) : 0;
    if (step.chunk > 0) first = std::max(first, position / step.chunk * step.chunk);
    const double temperature =
        step.temperature_beta == 0
            ? 1
            : 1 + step.temperature_beta *
                      std::log1p(double((position + step.temperature_offset) / step.temperature_interval));
    for (int64_t h = 0; h < step.heads; ++h) {
      const int64_t kv = h / (step.heads / step.kv_heads);
      const Values q = rotated(step, step.q, token, h, step.q_norm, *batch.ropes);
      Values p;
      for (int64_t j = first; j <= position; ++j) {
        const double* key = cache_.token(step.state, segment, j) + kv * kd;
        double dot = 0;
        for (int64_t i = 0; i < kd; ++i) dot += q[size_t(i)] * key[i];
        dot *= step.scale * temperature;
        p.push_back(step.softcap > 0 ? step.softcap * std::tanh(dot / step.softcap) : dot);
      }
      double highest = *std::max_element(p.begin(), p.end());
      const std::span<const float> sinks = elements(step.sinks);
      if (!sinks.empty()) highest = std::max(highest, double(sinks[size_t(h)]));
      double sum = sinks.empty() ? 0 : std::exp(double(sinks[size_t(h)]) - highest);
      for (double& value : p) sum += value = std::exp(value - highest);
      double* out = at(step.out, token) + h * vd;
      std::fill_n(out, vd, 0.0);
      for (int64_t j = first; j <= position; ++j) {
        const double* value = cache_.token(step.state, segment, j) + (in_keys ? kv * kd : step.kv_heads * kd + kv * vd);
        for (int64_t i = 0; i < vd; ++i) out[i] += p[size_t(j - first)] / sum * value[i];
      }
      if (!step.gate) continue;
      const double* gate = at(step.gate, token, h);
      for (int64_t i = 0; i < vd; ++i) out[i] *= activate(Activation::kSigmoid, gate[i]);
    }
  }

  void execute(const RouteStep& step, const Batch& batch) {
    for (int64_t t = 0; t < int64_t(batch.tokens.size()); ++t) {
      choose_experts<double>(step, {at(step.logits, t), size_t(step.logits.cols)}, elements(step.bias),
                             elements(step.expert_scale), {at(step.out, t), size_t(step.out.cols)});
    }
  }

  void execute(const ExpertsStep& step, const Batch& batch) {
    const int64_t chosen = step.chosen();
    for (int64_t t = 0; t < int64_t(batch.tokens.size()); ++t) {
      const double *from = at(step.in, t), *route = at(step.route, t);
      const Values x(from, from + step.in.cols);
      double* const out = at(step.out, t);
      if (!step.add) std::fill_n(out, step.out.cols, 0.0);
      for (int64_t i = 0; i < chosen; ++i) {
        const double weight = route[i];
        const size_t e = size_t(route[chosen + i]);
        Values input = x;
        if (step.weighted_input) {
          for (double& value : input) value *= weight;
        }
        Values inner = expert(*step.up[e], step.up_bias, e, input);
        const Values gate = step.gate.empty() ? inner : expert(*step.gate[e], step.gate_bias, e, input);
        const double limit = step.limit > 0 ? step.limit : INFINITY;
        for (size_t n = 0; n < inner.size(); ++n) {
          const double up = step.gate.empty() ? 1 : std::clamp(inner[n], -limit, limit) + step.up_offset;
          inner[n] = activate(step.activation, std::min(gate[n], limit)) * up;
        }
        const Values y = expert(*step.down[e], step.down_bias, e, inner);
        for (size_t n = 0; n < y.size(); ++n) out[n] += (step.weighted_input ? 1 : weight) * y[n];
      }
    }
  }

  // W x + b of expert e.
  Values expert(const Weight& weight, const Vector* bias, size_t e, const Values& x) const {
    Values y = multiply(weight, nullptr, {x}).front();
    const std::span<const float> biases = elements(bias);
    for (size_t n = 0; n < y.size() && !biases.empty(); ++n) y[n] += double(biases[e * y.size() + n]);
    return y;
  }

  void execute(const ConvStep& step, const Batch& batch) {
    const std::span<const float> weight = elements(step.weight), bias = elements(step.bias);
    const int64_t cols = step.in.cols, before = step.taps - 1;
    for (const Segment& segment : batch.segments) {
      double* const state = fixed(step.state, segment.slot);
      for (int64_t t = 0; t < segment.count; ++t) {
        const double* const in = at(step.in, segment.first + t);
        const Values now(in, in + cols);
        double* const out = at(step.out, segment.first + t);
        for (int64_t c = 0; c < cols; ++c) {
          double sum = bias.empty() ? 0 : double(bias[size_t(c)]);
          for (int64_t i = 0; i < before; ++i) sum += double(weight[size_t(c * step.taps + i)]) * state[i * cols + c];
          sum += double(weight[size_t(c * step.taps + before)]) * now[size_t(c)];
          out[c] = activate(step.activation, sum);
        }
        if (before == 0) continue;
        std::copy(state + cols, state + before * cols, state);
        std::copy(now.begin(), now.end(), state + (before - 1) * cols);
        if (t + 1 == segment.marked) std::copy_n(state, before * cols, fixed(step.state, segment.mark_slot));
      }
    }
  }

  void execute(const RecurStep& step, const Batch& batch) {
    const int64_t kd = step.key_dim, vd = step.value_dim;
    const std::span<const float> a_log = elements(step.a_log), decay_bias = elements(step.decay_bias),
                                 skip = elements(step.skip);
    const auto softplus = [](double x) { return x > 30 ? x : std::log1p(std::exp(x)); };
    for (const Segment& segment : batch.segments) {
      for (int64_t h = 0; h < step.heads; ++h) {
        double* const state = fixed(step.state, segment.slot) + h * kd * vd;
        for (int64_t token = segment.first; token < segment.first + segment.count; ++token) {
          const Values k = unit(step, at(step.k, token, step.key_head(h)));
          const Values q = unit(step, at(step.q, token, step.key_head(h)));
          const double* const v = at(step.v, token, h);
          const double rise = softplus(at(step.decay, token)[h] + double(decay_bias[size_t(h)]));
          const double g = std::exp(-std::exp(double(a_log[size_t(h)])) * rise);
          double* const out = at(step.out, token) + h * vd;
          for (int64_t j = 0; j < vd; ++j) {
            double change = rise * v[j];
            if (step.kind == RecurStep::Kind::kGatedDelta) {
              double known = 0;
              for (int64_t i = 0; i < kd; ++i) known += state[i * vd + j] * k[size_t(i)];
              change = activate(Activation::kSigmoid, at(step.rate, token)[h]) * (v[j] - g * known);
            }
            double sum = 0;
            for (int64_t i = 0; i < kd; ++i) {
              double& s = state[i * vd + j];
              s = g * s + k[size_t(i)] * change;
              sum += s * q[size_t(i)];
            }
            out[j] = step.scale * sum + (skip.empty() ? 0 : double(skip[size_t(h)]) * v[j]);
          }
          if (token + 1 == segment.first + segment.marked)
            std::copy_n(state, kd * vd, fixed(step.state, segment.mark_slot) + h * kd * vd);
        }
      }
    }
  }

  // A key or query, divided by its length where the step wants that.
  static Values unit(const RecurStep& step, const double* x) {
    Values out(x, x + step.key_dim);
    if (!step.unit_keys) return out;
    double squares = 0;
    for (const double value : out) squares += value * value;
    for (double& value : out) value /= std::sqrt(squares + step.eps);
    return out;
  }

  // Head h of a token. Norms over all heads together come before they are taken apart.
  Values head(const Heads& heads, int64_t token, int64_t h, int64_t dim, const Norm& norm) {
    if (norm.group <= dim) {
      const double* from = at(heads, token, h);
      Values out(from, from + dim);
      normalize(norm, out, h * dim);
      return out;
    }
    Values all;
    for (int64_t i = 0; i < norm.group / dim; ++i)
      all.insert(all.end(), at(heads, token, i), at(heads, token, i) + dim);
    normalize(norm, all);
    return Values(all.begin() + h * dim, all.begin() + (h + 1) * dim);
  }

  Values rotated(const AttendStep& step, const Heads& heads, int64_t token, int64_t h, const Norm& norm,
                 const RopeRows& ropes) {
    Values out = head(heads, token, h, step.key_dim, step.norm_after_rotation ? Norm() : norm);
    if (step.rope >= 0) {
      const Rope& rope = plan_.ropes[size_t(step.rope)];
      const size_t r = size_t(step.rope);
      const int64_t half = rope.dim / 2;
      const bool adjacent = rope.pairs == Rope::Pairs::kAdjacent;
      for (int64_t i = 0; i < half; ++i) {
        double& x = out[size_t(step.rotated_first + (adjacent ? 2 * i : i))];
        double& y = out[size_t(step.rotated_first + (adjacent ? 2 * i + 1 : i + half))];
        const double cos = ropes.cos(r)[size_t(token * half + i)], sin = ropes.sin(r)[size_t(token * half + i)];
        const double a = x, b = y;
        x = a * cos - b * sin;
        y = b * cos + a * sin;
      }
    }
    if (step.norm_after_rotation) normalize(norm, out, h * step.key_dim);
    return out;
  }

  void normalize(const Norm& norm, Values& x, int64_t first = 0) const {
    qgen::normalize(norm, elements(norm.weight), elements(norm.bias), x, first);
  }

  std::vector<Values> multiply(const Weight& weight, const Vector* bias, const std::vector<Values>& inputs) const {
    const std::span<const float> biases = elements(bias);
    std::vector<Values> out(inputs.size(), Values(size_t(weight.rows)));
    Values row(size_t(weight.cols));
    for (int64_t n = 0; n < weight.rows; ++n) {
      dequantize_row(weight, n, row);
      const double start = biases.empty() ? 0 : double(biases[size_t(n)]);
      for (size_t t = 0; t < inputs.size(); ++t) {
        double dot = start;
        for (size_t k = 0; k < row.size(); ++k) dot += row[k] * inputs[t][k];
        out[t][size_t(n)] = dot;
      }
    }
    return out;
  }

  const Plan& plan_;
  const EngineOptions options_;
  const CacheLayout layout_;
  ReferenceCache cache_;
  std::vector<Values> fixed_;  // (slots, elements) of each state
  std::vector<Values> rows_;   // (tokens, cols) each
  std::unordered_map<const Vector*, std::vector<float>> vectors_;
  std::vector<float> scores_;
};

}  // namespace

MemoryUse account_reference(const Plan& plan, const EngineOptions& options) {
  const CacheLayout layout(plan, cache_limits(options, kBatchTokens));
  size_t cache = 0, work = 0;
  for (const CacheGroup& group : layout.groups()) {
    for (const StateId state : group.states)
      cache += size_t(group.pages * layout.page_tokens() * state_elements(plan.states[size_t(state)])) * sizeof(double);
  }
  for (const State& state : plan.states) cache += size_t(state_slots(options) * state.elements) * sizeof(double);
  for (const Row& row : plan.rows) work += size_t(row_tokens(row) * row.cols) * sizeof(double);
  return {plan.weight_bytes(), cache, work};
}

std::unique_ptr<Backend> make_reference_backend(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<ReferenceBackend>(plan, options);
}

}  // namespace qgen
