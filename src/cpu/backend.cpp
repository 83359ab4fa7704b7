// The CPU engine: walks the plan with all workers at once. Weights stay as they are in memory and are decoded inside
// the dot products; activations are f32 between steps, and of the asked precision inside the large products.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_map>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/rounding.h"
#include "cpu/arena.h"
#include "cpu/attention.h"
#include "cpu/head_linear.h"
#include "cpu/isa/targets.h"
#include "cpu/linear.h"
#include "cpu/mixture.h"
#include "cpu/recurrence.h"
#include "cpu/thread_pool.h"
#include "engine/engine.h"
#include "engine/engine_table.h"
#include "engine/route.h"

namespace qgen {
namespace cpu {
namespace {

constexpr int64_t kBatchTokens = 512;  // that go through the plan together
constexpr int64_t kScoredTokens = 16;  // whose scores are held at once
constexpr int64_t kMaxTaskRows = 1024;

// A LinearStep's kernels: those of its projections, gates before them, and the forms of their common input.
struct LinearState {
  struct Part {
    size_t layer;           // of `layers`
    int gate_layer = -1;    // likewise; -1: no gate
    int64_t first_row = 0;  // of the step's rows, which are those of all projections one after the other
  };
  std::vector<const LinearKernel*> layers;
  std::vector<Part> parts;
  std::unique_ptr<InputForms> input;
  int64_t rows = 0;
};

class CpuBackend : public Backend {
 public:
  // `loaded`: the plan's weights have been loaded. Else nothing but memory() is asked, for the account.
  CpuBackend(const Plan& plan, const EngineOptions& options, bool loaded)
      : plan_(plan),
        options_(options),
        target_(find_target(options.target)),
        workers_(options.threads > 0 ? options.threads : useful_cpu_threads(plan)),
        batch_(std::min(kBatchTokens, round_up(options.context * options.sequences, 1))),
        scored_(std::min(kScoredTokens, batch_)),
        layout_(plan, cache_limits(options, batch_)),
        attention_(plan, layout_, options, target_, workers_, batch_),
        recurrence_(plan, target_, state_slots(options), batch_) {
    for (const Step& step : plan.steps) {
      linear_.push_back(make_state(step, loaded));
      experts_.push_back(make_experts(step, loaded));
      heads_.push_back(make_heads(step, loaded));
    }
    lay_out(work_, cache_);
    if (!loaded) return;
    work_.allocate("work space");
    cache_.allocate("key-value cache");
    lay_out(work_, cache_);
    for (const Step& step : plan.steps) {
      if (std::holds_alternative<AttendStep>(step.op) || std::holds_alternative<ConvStep>(step.op) ||
          std::holds_alternative<RecurStep>(step.op))
        continue;
      for_each_vector(step, [&](const Vector& vector) { vectors_.emplace(&vector, vector.values()); });
    }
    attention_.load();
    recurrence_.load();
    pool_ = std::make_unique<ThreadPool>(workers_);
  }

  std::string description() const override {
    return fmt::format("cpu {}, {} activations, {} thread{}", target_.name, activations_name(activations()), workers_,
                       workers_ == 1 ? "" : "s");
  }
  Activations activations() const override {
    if (options_.activations != Activations::k8Bit) return options_.activations;
    const bool some = std::any_of(kernels_.begin(), kernels_.end(),
                                  [](const auto& kernel) { return kernel.second.kernels().gemm.form == Form::kInt8; });
    return some ? Activations::k8Bit : Activations::k16Bit;
  }
  MemoryUse memory() const override {
    size_t copied = 0;
    for (const auto& [weight, kernel] : kernels_) copied += kernel.copied_bytes();
    return {plan_.weight_bytes() + copied, cache_.used(), work_.used()};
  }
  int64_t batch_tokens() const override { return batch_; }
  int64_t scored_tokens() const override { return scored_; }
  bool runs_in_parts() const override { return true; }

  void run(const Batch& batch, size_t first, size_t last) override {
    attention_.start(batch);
    pool_->run([&](int worker) {
      for (size_t i = first; i < last; ++i)
        std::visit([&](const auto& step) { execute(step, i, batch, worker); }, plan_.steps[i].op);
    });
  }

  void read(int64_t token, const View& view, std::span<float> out) override {
    std::copy_n(rows_[size_t(view.row)].at(token, view.first), view.cols, out.begin());
  }
  void read_row(RowId row, std::span<float> out) override {
    const int64_t cols = plan_.rows[size_t(row)].cols;
    for (int64_t t = 0; t < int64_t(out.size()) / cols; ++t)
      std::copy_n(rows_[size_t(row)].at(t), cols, out.begin() + t * cols);
  }
  void write_row(RowId row, std::span<const float> values) override {
    const int64_t cols = plan_.rows[size_t(row)].cols;
    for (int64_t t = 0; t < int64_t(values.size()) / cols; ++t)
      std::copy_n(values.begin() + t * cols, cols, rows_[size_t(row)].at(t));
  }
  void copy_page(int32_t group, int32_t from, int32_t to) override { attention_.copy_page(group, from, to); }
  void copy_slot(int32_t from, int32_t to) override { recurrence_.copy_slot(from, to); }
  void clear_slot(int32_t slot) override { recurrence_.clear_slot(slot); }
  StateId take_overflow() override { return attention_.take_overflow(); }

  std::span<const float> scores(int64_t index) override {
    return {rows_[size_t(plan_.scores)].at(index), size_t(plan_.model.vocab)};
  }
  bool scores_finite(int64_t index) override { return Scores(scores(index)).finite(); }

 private:
  bool is_scored(const Step& step) const { return plan_.rows[size_t(result_of(step).row)].scored; }

  LinearState make_state(const Step& step, bool loaded) {
    LinearState state;
    const auto* linear = std::get_if<LinearStep>(&step.op);
    if (linear == nullptr) return state;
    // Few tokens' scores are wanted: 8 bits would cost precision there and gain nothing.
    const bool scored = is_scored(step);
    const Activations activations =
        scored && options_.activations == Activations::k8Bit ? Activations::k16Bit : options_.activations;
    const auto add = [&](const Weight& weight) {
      state.layers.push_back(kernel_of(weight, activations, loaded));
      return state.layers.size() - 1;
    };
    int64_t temporaries = 0;
    for (const Projection& p : linear->projections) {
      LinearState::Part part;
      if (p.gate != nullptr) part.gate_layer = int(add(*p.gate));
      part.layer = add(*p.weight);
      part.first_row = state.rows;
      state.rows += p.weight->rows;
      state.parts.push_back(part);
      temporaries = std::max(temporaries, int64_t{p.gate != nullptr} + int64_t{p.add});
    }
    const int64_t tokens = scored ? scored_ : batch_;
    state.input = std::make_unique<InputForms>(state.layers, tokens, workers_);
    temporary_floats_ = std::max(temporary_floats_, temporaries * tokens * task_rows(state.rows, tokens));
    return state;
  }

  const LinearKernel* kernel_of(const Weight& weight, Activations activations, bool loaded) {
    const auto [at, added] =
        kernels_.try_emplace({&weight, activations}, LinearKernel(weight, target_, activations, loaded));
    scratch_bytes_ = std::max(scratch_bytes_, scratch_bytes(weight.cols, at->second.matrix().grid_cols));
    return &at->second;
  }

  // Null for other steps.
  std::unique_ptr<ExpertsKernel> make_experts(const Step& step, bool loaded) {
    const auto* experts = std::get_if<ExpertsStep>(&step.op);
    if (experts == nullptr) return nullptr;
    auto out = std::make_unique<ExpertsKernel>(*experts, target_, batch_, workers_, [&](const Weight& weight) {
      return kernel_of(weight, options_.activations, loaded);
    });
    temporary_floats_ = std::max(temporary_floats_, out->temporary_floats());
    return out;
  }

  // Likewise.
  std::unique_ptr<HeadLinearKernel> make_heads(const Step& step, bool loaded) {
    const auto* heads = std::get_if<HeadLinearStep>(&step.op);
    if (heads == nullptr) return nullptr;
    return std::make_unique<HeadLinearKernel>(*heads, target_, workers_, [&](const Weight& weight) {
      return kernel_of(weight, options_.activations, loaded);
    });
  }

  void lay_out(Arena& work, Arena& cache) {
    attention_.lay_out_cache(cache);
    recurrence_.lay_out_states(cache);
    rows_.clear();
    for (const Row& row : plan_.rows) {
      const int64_t stride = padded_cols(row.cols);
      rows_.push_back({work.take<float>((row.scored ? scored_ : batch_) * stride), stride});
    }
    attention_.lay_out_work(work);
    recurrence_.lay_out_work(work);
    scratch_bytes_ = std::max({scratch_bytes_, attention_.scratch_bytes(), lookup_bytes()});
    scratch_stride_ = round_up(scratch_bytes_, 4096);
    temporary_stride_ = round_up(temporary_floats_, 1024);
    scratch_ = work.take<std::byte>(workers_ * scratch_stride_);
    temporary_ = work.take<float>(workers_ * temporary_stride_);
    // Forms of inputs hold nothing from one step to the next: all lie over each other.
    const size_t begin = work.used();
    size_t end = begin;
    const auto lay_over = [&](auto& forms) {
      if (forms == nullptr) return;
      work.go_to(begin);
      forms->lay_out(work);
      end = std::max(end, work.used());
    };
    for (LinearState& state : linear_) lay_over(state.input);
    for (auto& experts : experts_) lay_over(experts);
    for (auto& heads : heads_) lay_over(heads);
    work.go_to(end);
  }

  int64_t lookup_bytes() const {
    int64_t most = 0;
    for (const Row& row : plan_.rows) most = std::max(most, row.cols * int64_t(sizeof(double)) * 2);
    return most;
  }

  std::byte* scratch(int worker) const { return scratch_ + worker * scratch_stride_; }
  const float* vector(const Vector* v) const { return v == nullptr ? nullptr : vectors_.at(v).data(); }
  float* at(const View& view, int64_t token) const { return rows_[size_t(view.row)].at(token, view.first); }
  int64_t stride(const View& view) const { return rows_[size_t(view.row)].stride; }

  // Rows of a task: whole panels, several tasks a worker so that a slow one does not hold up the rest.
  int64_t task_rows(int64_t rows, int64_t tokens) const {
    const int64_t unit = tokens == 1 ? 4 : target_.panel_rows, wanted = rows / (workers_ * 8);
    return std::clamp(wanted / unit * unit, unit, std::max(unit, kMaxTaskRows / unit * unit));
  }

  void normalize(const Norm& norm, const float* x, int64_t cols, float* out) const {
    const float *weight = vector(norm.weight), *bias = vector(norm.bias);
    // A weight for every column, or one that all groups share.
    const auto of_group = [&](const float* values, const Vector* v, int64_t begin) {
      return values == nullptr ? nullptr : values + (v->size > norm.group ? begin : 0);
    };
    if (norm.kind == Norm::Kind::kScale) {
      for (int64_t k = 0; k < cols; ++k) {
        const auto element = [&](const Vector* v, const float* values, float fallback) {
          return values == nullptr ? fallback : values[v->size > norm.group ? k : k % norm.group];
        };
        out[k] = x[k] * element(norm.weight, weight, 1) + element(norm.bias, bias, 0);
      }
      return;
    }
    for (int64_t begin = 0; begin < cols; begin += norm.group) {
      target_.normalize(static_cast<NormKind>(norm.kind), x + begin, of_group(weight, norm.weight, begin),
                        of_group(bias, norm.bias, begin), norm.group, float(norm.eps), out + begin);
    }
  }

  void execute(const LookupStep& step, size_t, const Batch& batch, int worker) {
    const int64_t cols = step.out.cols;
    pool_->share(int64_t(batch.tokens.size()), [&](int64_t token) {
      double* const row = reinterpret_cast<double*>(scratch(worker));
      dequantize_row(*step.table, batch.tokens[size_t(token)], {row, size_t(cols)});
      float* const out = at(step.out, token);
      for (int64_t k = 0; k < cols; ++k) out[k] = float(row[k] * step.scale);
      if (step.positions == nullptr) return;
      const Segment& segment = segment_of(batch, token);
      dequantize_row(*step.positions, segment.position + token - segment.first, {row, size_t(cols)});
      for (int64_t k = 0; k < cols; ++k) out[k] += float(row[k]);
    });
  }

  void execute(const CombineStep& step, size_t, const Batch& batch, int worker) {
    const int64_t cols = step.out.cols;
    pool_->share(int64_t(batch.tokens.size()), [&](int64_t token) {
      float* const y = reinterpret_cast<float*>(scratch(worker));
      float* const gate = y + round_up(cols, kInputPad);
      if (step.norm) {
        normalize(step.norm, at(step.y, token), cols, y);
      } else {
        std::copy_n(at(step.y, token), cols, y);
      }
      if (step.gate) {
        if (step.gate.cols == 1) {
          std::fill_n(gate, cols, *at(step.gate, token));
        } else {
          std::copy_n(at(step.gate, token), cols, gate);
        }
        target_.activate(static_cast<ActivationKind>(step.activation), gate, y, cols);
        std::copy_n(gate, cols, y);
      }
      float* const out = at(step.out, token);
      if (!step.x) {
        target_.scale(y, float(step.y_scale), cols, out);
        return;
      }
      target_.scale(at(step.x, token), float(step.x_scale), cols, out);
      target_.add(out, y, float(step.y_scale), cols);
    });
  }

  void execute(const AttendStep& step, size_t, const Batch& batch, int worker) {
    attention_.run(step, batch, rows_, *pool_, scratch(worker));
  }

  void execute(const RouteStep& step, size_t, const Batch& batch, int) {
    const auto values = [&](const Vector* v) {
      return v == nullptr ? std::span<const float>() : std::span(vectors_.at(v));
    };
    pool_->share(int64_t(batch.tokens.size()), [&](int64_t token) {
      choose_experts<float>(step, {at(step.logits, token), size_t(step.logits.cols)}, values(step.bias),
                            values(step.expert_scale), {at(step.out, token), size_t(step.out.cols)});
    });
  }

  void execute(const ExpertsStep& step, size_t index, const Batch& batch, int worker) {
    experts_[index]->run(batch, rows_, {vector(step.gate_bias), vector(step.up_bias), vector(step.down_bias)}, *pool_,
                         scratch(worker), temporary_ + worker * temporary_stride_);
  }

  void execute(const HeadLinearStep&, size_t index, const Batch& batch, int worker) {
    heads_[index]->run(batch, rows_, *pool_, worker, scratch(worker));
  }

  void execute(const ConvStep& step, size_t, const Batch& batch, int) { recurrence_.run(step, batch, rows_, *pool_); }
  void execute(const RecurStep& step, size_t, const Batch& batch, int) { recurrence_.run(step, batch, rows_, *pool_); }

  void execute(const LinearStep& step, size_t index, const Batch& batch, int worker) {
    LinearState& state = linear_[index];
    InputForms& input = *state.input;
    const bool scored = is_scored(plan_.steps[index]);
    const int64_t count = int64_t(scored ? batch.scored.size() : batch.tokens.size());
    const Row& in = plan_.rows[size_t(step.in.row)];
    // A whole row without a norm is multiplied where it lies.
    const bool in_place = !step.norm && !scored && step.in.first == 0 && step.in.cols == in.cols;
    const auto token_of = [&](int64_t t) { return scored ? int64_t{batch.scored[size_t(t)]} : t; };
    const auto prepare = [&](int64_t t, int64_t row) {
      const float* x = at(step.in, token_of(t));
      if (!in_place) {
        if (step.norm) {
          normalize(step.norm, x, step.in.cols, input.row(row));
        } else {
          std::copy_n(x, step.in.cols, input.row(row));
        }
        x = input.row(row);
      }
      input.prepare(target_, x, row, count, batch.kernels);
    };
    // One token is prepared by every worker in a row of its own, which costs less than a wait for one that does it for
    // all; with its first task in hand, so that no step after this one can begin meanwhile.
    const bool together = count > 1;
    if (together) pool_->share(count, [&](int64_t t) { prepare(t, t); });
    bool ready = together;
    const int64_t size = task_rows(state.rows, count);
    pool_->share((state.rows + size - 1) / size, [&](int64_t task) {
      if (!ready) prepare(0, worker);
      ready = true;
      const int64_t row = together ? 0 : worker;
      const float* const x = in_place ? at(step.in, 0) : input.row(row);
      const int64_t begin = task * size, end = std::min(state.rows, begin + size);
      for (size_t p = 0; p < state.parts.size(); ++p) {
        const LinearState::Part& part = state.parts[p];
        const int64_t rows = step.projections[p].weight->rows;
        const int64_t from = std::max(begin - part.first_row, int64_t{0}), to = std::min(end - part.first_row, rows);
        if (from < to) project(step.projections[p], state, part, x, row, count, batch.kernels, from, to, worker);
      }
    });
  }

  // Rows [from, to) of one projection for `count` tokens, whose input's floats are at `x` and forms from row `first`
  // on.
  void project(const Projection& p, const LinearState& state, const LinearState::Part& part, const float* x,
               int64_t first, int64_t count, Kernels choice, int64_t from, int64_t to, int worker) {
    const int64_t rows = to - from, out_stride = stride(p.out);
    float* const out = at(p.out, 0) + from;
    float* const temporary = temporary_ + worker * temporary_stride_;
    float* const up = temporary + (p.add ? count * rows : 0);
    const auto multiply = [&](size_t layer, const Vector* bias, float* y, int64_t y_stride) {
      state.layers[layer]->multiply(state.input->view(layer, x, count, choice, first), choice, from, to, y, y_stride,
                                    scratch(worker));
      if (bias == nullptr) return;
      const float* const values = vector(bias) + from;
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t n = 0; n < rows; ++n) y[t * y_stride + n] += values[n];
      }
    };
    // Results that are added to a row, or multiplied with a gate, are computed into a temporary buffer.
    float* y = p.add ? temporary : out;
    int64_t y_stride = p.add ? rows : out_stride;
    if (p.gate != nullptr) {
      multiply(size_t(part.gate_layer), p.gate_bias, y, y_stride);
      multiply(part.layer, p.bias, up, rows);
    } else {
      multiply(part.layer, p.bias, y, y_stride);
    }
    for (int64_t t = 0; t < count; ++t) {
      float* const row = y + t * y_stride;
      if (p.gate != nullptr || p.activation != Activation::kNone)
        target_.activate(static_cast<ActivationKind>(p.activation), row, p.gate == nullptr ? nullptr : up + t * rows,
                         rows);
      const bool scaled = p.scale != 1 && (p.softcap > 0 || !p.add);
      if (scaled) target_.scale(row, float(p.scale), rows, row);
      if (p.softcap > 0) target_.softcap(row, float(p.softcap), rows);
      if (p.add) target_.add(out + t * out_stride, row, scaled ? 1 : float(p.scale), rows);
    }
  }

  struct KernelKey {
    const Weight* weight;
    Activations activations;
    bool operator==(const KernelKey&) const = default;
  };
  struct KernelHash {
    size_t operator()(const KernelKey& key) const {
      return std::hash<const void*>()(key.weight) * 4 + size_t(key.activations);
    }
  };

  const Plan& plan_;
  const EngineOptions options_;
  const IsaTarget& target_;
  const int workers_;
  const int64_t batch_, scored_;  // tokens at most
  const CacheLayout layout_;
  Attention attention_;
  Recurrence recurrence_;
  std::unordered_map<KernelKey, LinearKernel, KernelHash> kernels_;
  std::vector<LinearState> linear_;                      // one a step
  std::vector<std::unique_ptr<ExpertsKernel>> experts_;  // likewise
  std::vector<std::unique_ptr<HeadLinearKernel>> heads_;
  std::unordered_map<const Vector*, std::vector<float>> vectors_;
  Arena work_, cache_;
  std::vector<RowBuffer> rows_;  // of the plan's
  std::byte* scratch_ = nullptr;
  float* temporary_ = nullptr;
  int64_t scratch_bytes_ = 0, scratch_stride_ = 0, temporary_floats_ = 0, temporary_stride_ = 0;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<cpu::CpuBackend>(plan, options, true);
}

// More workers than a token's bytes keep busy would only wait for each other.
int useful_cpu_threads(const Plan& plan) {
  constexpr size_t kBytesPerWorker = 1 << 20;
  return int(std::clamp<size_t>(plan.bytes_per_token() / kBytesPerWorker, 1, size_t(physical_cores())));
}

MemoryUse account_cpu(const Plan& plan, const EngineOptions& options) {
  return cpu::CpuBackend(plan, options, false).memory();
}

}  // namespace qgen
