// The reference engine: the plan in double precision, straight from W = (code - offset) * scale, one token
// at a time, with no cleverness. Other engines are measured against it.
#include <algorithm>
#include <cmath>

#include "engine/engine.h"

namespace qgen {
namespace {

using Vector = std::vector<double>;

class ReferenceEngine : public Engine {
 public:
  ReferenceEngine(const Plan& plan, const EngineOptions& options)
      : plan_(plan), model_(plan.model), context_(options.context), rotary_(model_.rope, model_.head_dim) {
    keys_.resize(model_.layers);
    values_.resize(model_.layers);
  }

  std::string description() const override { return "reference, double precision"; }
  Activations activations() const override { return Activations::kF32; }
  int64_t position() const override { return position_; }
  void set_trace(StepTrace trace) override { trace_ = std::move(trace); }
  void set_observer(PrefillObserver observer) override { observer_ = std::move(observer); }
  MemoryUse memory() const override {
    EngineOptions options;
    options.context = context_;
    return account_reference_engine(plan_, options);
  }

  void rewind(int64_t position) override {
    position_ = std::min(position_, position);
    const size_t elements = size_t(position_ * model_.kv_heads * model_.head_dim);
    for (auto* cache : {&keys_, &values_}) {
      for (Vector& layer : *cache) layer.resize(elements);
    }
  }

  Scores prefill(std::span<const TokenId> tokens, const LogitsSink& each) override {
    check_tokens(tokens, position_, context_, model_.vocab);
    rotary_.start(position_ + int64_t(tokens.size()));
    rotary_.compute(position_, int64_t(tokens.size()));
    for (size_t t = 0; t < tokens.size(); ++t) {
      const bool want_logits = each || t + 1 == tokens.size();
      run(tokens[t], int64_t(t), want_logits, t + 1 == tokens.size());
      ++position_;
      if (each) each(int64_t(t), logits_);
      if (observer_ && tokens.size() > 1 && !observer_(double(t + 1)) && t + 1 < tokens.size()) return {};
    }
    return std::span<const float>(logits_);
  }

 private:
  // One token through all steps; `index` is its place in the current call, for the rotation.
  void run(TokenId token, int64_t index, bool want_logits, bool last) {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      if (std::holds_alternative<LogitsStep>(step) && !want_logits) continue;
      const Vector* made = std::visit([&](const auto& s) { return execute(s, token, index); }, step);
      if (last && trace_) trace_(i, std::vector<float>(made->begin(), made->end()));
    }
  }

  const Vector* execute(const EmbedStep& step, TokenId token, int64_t) {
    residual_.resize(model_.hidden);
    dequantize_row(*step.table, token, residual_);
    return &residual_;
  }

  const Vector* execute(const QkvStep& step, TokenId, int64_t) {
    const Vector x = norm(residual_, *step.norm);
    q_ = apply(step.q, x);
    k_ = apply(step.k, x);
    v_ = apply(step.v, x);
    return &q_;
  }

  const Vector* execute(const RotateStoreStep& step, TokenId, int64_t index) {
    for (int64_t h = 0; h < model_.heads; ++h) prepare_head(&q_[h * model_.head_dim], step.q_norm, index);
    for (double& value : q_) value /= std::sqrt(double(model_.head_dim));
    for (int64_t h = 0; h < model_.kv_heads; ++h) prepare_head(&k_[h * model_.head_dim], step.k_norm, index);
    keys_[step.layer].insert(keys_[step.layer].end(), k_.begin(), k_.end());
    values_[step.layer].insert(values_[step.layer].end(), v_.begin(), v_.end());
    return &q_;
  }

  const Vector* execute(const AttendStep& step, TokenId, int64_t) {
    const int64_t d = model_.head_dim, row = model_.kv_heads * d;
    const int64_t first = step.window > 0 ? std::max<int64_t>(0, position_ - step.window + 1) : 0;
    const Vector& keys = keys_[step.layer];
    const Vector& values = values_[step.layer];
    mixed_.assign(model_.heads * d, 0);
    for (int64_t h = 0; h < model_.heads; ++h) {
      const int64_t kv = h / (model_.heads / model_.kv_heads) * d;
      Vector p(position_ + 1 - first);
      for (int64_t t = first; t <= position_; ++t) {
        double dot = 0;
        for (int64_t i = 0; i < d; ++i) dot += q_[h * d + i] * keys[t * row + kv + i];
        p[t - first] = dot;
      }
      const double highest = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (double& value : p) sum += value = std::exp(value - highest);
      for (int64_t t = first; t <= position_; ++t) {
        for (int64_t i = 0; i < d; ++i) mixed_[h * d + i] += p[t - first] / sum * values[t * row + kv + i];
      }
    }
    return &mixed_;
  }

  const Vector* execute(const OutStep& step, TokenId, int64_t) { return add_to_residual(apply(step.o, mixed_)); }

  const Vector* execute(const GateUpStep& step, TokenId, int64_t) {
    const Vector x = norm(residual_, *step.norm);
    inner_ = apply(step.gate, x);
    const Vector up = apply(step.up, x);
    for (size_t i = 0; i < inner_.size(); ++i) inner_[i] = inner_[i] / (1 + std::exp(-inner_[i])) * up[i];
    return &inner_;
  }

  const Vector* execute(const DownStep& step, TokenId, int64_t) { return add_to_residual(apply(step.down, inner_)); }

  const Vector* execute(const LogitsStep& step, TokenId, int64_t) {
    scores_ = apply(step.head, norm(residual_, *step.norm));
    logits_.assign(scores_.begin(), scores_.end());
    return &scores_;
  }

  const Vector* add_to_residual(const Vector& x) {
    for (size_t i = 0; i < x.size(); ++i) residual_[i] += x[i];
    return &residual_;
  }

  Vector norm(std::span<const double> x, const std::vector<float>& weight) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double factor = 1 / std::sqrt(squares / double(x.size()) + model_.norm_eps);
    Vector out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * factor * weight[i];
    return out;
  }

  void prepare_head(double* head, const std::vector<float>* weight, int64_t index) const {
    const int64_t d = model_.head_dim, half = d / 2;
    if (weight != nullptr) {
      const Vector normed = norm({head, size_t(d)}, *weight);
      std::copy(normed.begin(), normed.end(), head);
    }
    const auto cos = rotary_.cos(index), sin = rotary_.sin(index);
    for (int64_t i = 0; i < half; ++i) {
      const double a = head[i], b = head[i + half];
      head[i] = a * cos[i] - b * sin[i];
      head[i + half] = b * cos[i] + a * sin[i];
    }
  }

  Vector apply(const Linear& linear, const Vector& x) {
    const Weight& weight = *linear.weight;
    Vector out(weight.rows);
    Vector row(weight.cols);
    for (int64_t n = 0; n < weight.rows; ++n) {
      dequantize_row(weight, n, row);
      double dot = linear.bias == nullptr ? 0 : (*linear.bias)[n];
      for (int64_t k = 0; k < weight.cols; ++k) dot += row[k] * x[k];
      out[n] = dot;
    }
    return out;
  }

  const Plan& plan_;
  const Description& model_;
  int64_t context_;
  int64_t position_ = 0;
  RotaryTable rotary_;
  StepTrace trace_;
  PrefillObserver observer_;
  std::vector<Vector> keys_, values_;  // per layer: (position, kv_heads * head_dim)
  Vector residual_, q_, k_, v_, mixed_, inner_, scores_;
  std::vector<float> logits_;
};

}  // namespace

MemoryUse account_reference_engine(const Plan& plan, const EngineOptions& options) {
  const size_t row = size_t(plan.model.kv_heads * plan.model.head_dim) * sizeof(double);
  return {plan.weight_bytes(), 2 * size_t(plan.model.layers * options.context) * row, 0};
}

std::unique_ptr<Engine> make_reference_engine(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<ReferenceEngine>(plan, options);
}

}  // namespace qgen
