// The CPU engine: walks the plan with all workers at once. Weights stay as they are in memory and are decoded inside
// the dot products; activations are f32 between steps, and of the asked precision inside the large products.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/rounding.h"
#include "cpu/isa/targets.h"
#include "cpu/thread_pool.h"
#include "cpu/workspace.h"
#include "engine/engine.h"
#include "engine/engine_table.h"
#include "engine/route.h"

namespace qgen {
namespace cpu {
namespace {

class CpuBackend : public Backend {
 public:
  CpuBackend(const Plan& plan, const EngineOptions& options)
      : plan_(plan), options_(options), target_(find_target(options.target)), work_(plan, options) {
    work_.allocate();
    for (const Step& step : plan.steps) {
      if (std::holds_alternative<AttendStep>(step.op) || std::holds_alternative<ConvStep>(step.op) ||
          std::holds_alternative<RecurStep>(step.op))
        continue;
      for_each_vector(step, [&](const Vector& vector) { vectors_.emplace(&vector, vector.values()); });
    }
    pool_ = std::make_unique<ThreadPool>(work_.workers);
  }

  std::string description() const override {
    return fmt::format("cpu {}, {} activations, {} thread{}", target_.name, activations_name(activations()),
                       work_.workers, work_.workers == 1 ? "" : "s");
  }
  Activations activations() const override {
    if (options_.activations != Activations::k8Bit) return options_.activations;
    const bool some =
        work_.any_kernel([](const LinearKernel& kernel) { return kernel.kernels().gemm.form == Form::kInt8; });
    return some ? Activations::k8Bit : Activations::k16Bit;
  }
  MemoryUse memory() const override { return work_.use(); }
  int64_t batch_tokens() const override { return work_.batch_tokens; }
  int64_t scored_tokens() const override { return work_.scored_tokens; }
  bool runs_in_parts() const override { return true; }

  void run(const Batch& batch, size_t first, size_t last) override {
    work_.attention.start(batch);
    const std::optional<size_t> head = batch.scored.empty() ? std::nullopt : work_.shortlist_head.step_in(first, last);
    use_ = head ? work_.shortlist->begin(batch) : Shortlist::Use::kNone;
    pool_->run([&](int worker) {
      for (size_t i = first; i < last; ++i)
        std::visit([&](const auto& step) { execute(step, i, batch, worker); }, plan_.steps[i].op);
    });
    if (batch.scored.empty()) return;
    if (head) work_.shortlist->end(use_);
    listed_.reset();
    if (use_ == Shortlist::Use::kFind) listed_ = {*head, int64_t(batch.scored.size()), batch.kernels};
  }

  void read(int64_t token, const View& view, std::span<float> out) override {
    if (view.row == plan_.scores) score_all();
    std::copy_n(work_.rows[size_t(view.row)].at(token, view.first), view.cols, out.begin());
  }
  void read_row(RowId row, std::span<float> out) override {
    const int64_t cols = plan_.rows[size_t(row)].cols;
    for (int64_t t = 0; t < int64_t(out.size()) / cols; ++t)
      std::copy_n(work_.rows[size_t(row)].at(t), cols, out.begin() + t * cols);
  }
  void write_row(RowId row, std::span<const float> values) override {
    const int64_t cols = plan_.rows[size_t(row)].cols;
    for (int64_t t = 0; t < int64_t(values.size()) / cols; ++t)
      std::copy_n(values.begin() + t * cols, cols, work_.rows[size_t(row)].at(t));
  }
  void copy_page(int32_t group, int32_t from, int32_t to) override { work_.attention.copy_page(group, from, to); }
  void copy_slot(int32_t from, int32_t to) override { work_.recurrence.copy_slot(from, to); }
  void clear_slot(int32_t slot) override { work_.recurrence.clear_slot(slot); }
  bool take_overflow(std::span<StateId> of_tokens) override { return work_.attention.take_overflow(of_tokens); }

  std::span<const float> scores(int64_t index) override {
    score_all();
    return {scores_of(index), size_t(plan_.model.vocab)};
  }
  bool scores_finite(int64_t index) override {
    return listed_ ? work_.shortlist->all_finite(scores_of(index)) : Scores(scores(index)).finite();
  }
  TopScores top_scores(int64_t index, size_t count, double temperature) override {
    if (!listed_ || count > work_.shortlist->count(index) || temperature > 0) return {};
    return {work_.shortlist->best(index, scores_of(index)), 0};
  }

 private:
  const float* vector(const Vector* v) const { return v == nullptr ? nullptr : vectors_.at(v).data(); }
  float* at(const View& view, int64_t token) const { return work_.rows[size_t(view.row)].at(token, view.first); }
  int64_t stride(const View& view) const { return work_.rows[size_t(view.row)].stride; }
  const float* scores_of(int64_t index) const { return work_.rows[size_t(plan_.scores)].at(index); }

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
      double* const row = reinterpret_cast<double*>(work_.scratch(worker));
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
      float* const y = reinterpret_cast<float*>(work_.scratch(worker));
      float* const gate = y + round_up(cols, kInputPad);
      if (step.norm) {
        normalize(step.norm, at(step.y, token), cols, y);
      } else {
        std::copy_n(at(step.y, token), cols, y);
      }
      if (step.gate) {
        const int64_t gates = step.gate.cols, span = cols / gates;
        std::copy_n(at(step.gate, token), gates, gate);
        target_.activate(static_cast<ActivationKind>(step.activation), gate, span == 1 ? y : nullptr, gates);
        if (span == 1) {
          std::copy_n(gate, cols, y);
        } else {
          for (int64_t i = 0; i < gates; ++i) target_.scale(y + i * span, gate[i], span, y + i * span);
        }
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
    work_.attention.run(step, batch, work_.rows, *pool_, work_.scratch(worker));
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
    work_.experts[index]->run(batch, work_.rows, {vector(step.gate_bias), vector(step.up_bias), vector(step.down_bias)},
                              *pool_, work_.scratch(worker), work_.temporary(worker));
  }

  void execute(const HeadLinearStep&, size_t index, const Batch& batch, int worker) {
    work_.heads[index]->run(batch, work_.rows, *pool_, worker, work_.scratch(worker));
  }

  void execute(const ConvStep& step, size_t, const Batch& batch, int) {
    work_.recurrence.run(step, batch, work_.rows, *pool_);
  }
  void execute(const RecurStep& step, size_t, const Batch& batch, int) {
    work_.recurrence.run(step, batch, work_.rows, *pool_);
  }

  bool is_scored(size_t index) const { return work_.is_scored(plan_.steps[index]); }
  // A whole row without a norm is multiplied where it lies.
  bool is_in_place(const LinearStep& step, size_t index) const {
    return !step.norm && !is_scored(index) && step.in.first == 0 &&
           step.in.cols == plan_.rows[size_t(step.in.row)].cols;
  }
  // Makes the forms of one of `count` tokens in row `row` of a step's input. Returns its floats.
  const float* prepare(const LinearStep& step, size_t index, const Batch& batch, int64_t token, int64_t count,
                       int64_t row) {
    InputForms& input = *work_.linear[index].input;
    const float* x = at(step.in, is_scored(index) ? batch.scored[size_t(token)] : token);
    if (!is_in_place(step, index)) {
      if (step.norm) {
        normalize(step.norm, x, step.in.cols, input.row(row));
      } else {
        std::copy_n(x, step.in.cols, input.row(row));
      }
      x = input.row(row);
    }
    input.prepare(target_, x, row, count, batch.kernels);
    return x;
  }

  void execute(const LinearStep& step, size_t index, const Batch& batch, int worker) {
    LinearState& state = work_.linear[index];
    if (state.copy >= 0 && use_ == Shortlist::Use::kFind) return find_best(step, index, batch, worker);
    const int64_t count = int64_t(is_scored(index) ? batch.scored.size() : batch.tokens.size());
    // One token is prepared by every worker in a row of its own, which costs less than a wait for one that does it for
    // all; with its first task in hand, so that no step after this one can begin meanwhile.
    const bool together = count > 1;
    const int64_t row = together ? 0 : worker;
    const float* x = nullptr;
    if (together) {
      pool_->share(count, [&](int64_t t) { prepare(step, index, batch, t, count, t); });
      x = is_in_place(step, index) ? at(step.in, 0) : state.input->row(0);
    }
    const int64_t size = work_.task_rows(state, count);
    pool_->share((state.rows + size - 1) / size, [&](int64_t task) {
      if (x == nullptr) x = prepare(step, index, batch, 0, count, row);
      const int64_t begin = task * size, end = std::min(state.rows, begin + size);
      for (size_t p = 0; p < state.parts.size(); ++p) {
        const LinearState::Part& part = state.parts[p];
        const int64_t rows = step.projections[p].weight->rows;
        const int64_t from = std::max(begin - part.first_row, int64_t{0}), to = std::min(end - part.first_row, rows);
        if (from < to) project(step.projections[p], state, part, x, row, count, batch.kernels, from, to, worker);
      }
    });
    if (state.copy < 0 || use_ != Shortlist::Use::kGrow) return;
    const auto [first, last] = work_.shortlist->rows_to_add();
    pool_->share((last - first + Shortlist::kRows - 1) / Shortlist::kRows, [&, first = first, last = last](int64_t i) {
      const int64_t begin = first + i * Shortlist::kRows, end = std::min(last, begin + Shortlist::kRows);
      for (int64_t n = begin; n < end; ++n)
        work_.shortlist->add_row(n, reinterpret_cast<float*>(work_.scratch(worker)));
    });
  }

  // Writes the scores of rows on the shortlist of any token to the places of all; the other places keep old values.
  void find_best(const LinearStep& step, size_t index, const Batch& batch, int worker) {
    Shortlist& shortlist = *work_.shortlist;
    LinearState& state = work_.linear[index];
    const float* const x = state.input->row(0);
    const int64_t count = int64_t(batch.scored.size());
    pool_->share(count, [&](int64_t t) { shortlist.measure(t, prepare(step, index, batch, t, count, t)); });
    share_head(state, count, [&](int64_t begin, int64_t end) {
      const Input forms = state.input->view(size_t(state.copy), x, count, batch.kernels);
      shortlist.bound(forms, batch.kernels, begin, end, work_.scratch(worker));
    });
    pool_->share(count, [&](int64_t t) { shortlist.choose_rows(t); });
    share_head(state, count, [&](int64_t begin, int64_t end) {
      shortlist.for_each_run(begin, end, worker, [&](int64_t from, int64_t to) {
        project(step.projections[0], state, state.parts[0], x, 0, count, batch.kernels, from, to, worker);
      });
    });
  }

  // Multiplies all rows where a shortlist has left most of them out.
  void score_all() {
    if (!listed_) return;
    const auto [index, count, kernels] = *std::exchange(listed_, {});
    work_.shortlist->rest();
    const Projection& head = std::get<LinearStep>(plan_.steps[index].op).projections[0];
    LinearState& state = work_.linear[index];
    InputForms& input = *state.input;
    pool_->run([&, count = count, kernels = kernels](int worker) {
      pool_->share(count, [&](int64_t t) {
        std::ranges::copy(work_.shortlist->input(t), input.row(t));
        input.prepare(target_, input.row(t), t, count, kernels);
      });
      share_head(state, count, [&](int64_t begin, int64_t end) {
        project(head, state, state.parts[0], input.row(0), 0, count, kernels, begin, end, worker);
      });
    });
  }
  // task(begin, end) for rows of the step's head, by all workers.
  template <typename Task>
  void share_head(const LinearState& state, int64_t tokens, const Task& task) {
    const int64_t size = round_up(work_.task_rows(state, tokens), Shortlist::kRows);
    pool_->share((state.rows + size - 1) / size,
                 [&](int64_t i) { task(i * size, std::min(state.rows, (i + 1) * size)); });
  }

  // Rows [from, to) of one projection for `count` tokens, whose input's floats are at `x` and forms from row `first`
  // on.
  void project(const Projection& p, const LinearState& state, const LinearState::Part& part, const float* x,
               int64_t first, int64_t count, Kernels choice, int64_t from, int64_t to, int worker) {
    const int64_t rows = to - from, out_stride = stride(p.out);
    float* const out = at(p.out, 0) + from;
    float* const temporary = work_.temporary(worker);
    float* const up = temporary + (p.add ? count * rows : 0);
    const auto multiply = [&](size_t layer, const Vector* bias, float* y, int64_t y_stride) {
      state.layers[layer]->multiply(state.input->view(layer, x, count, choice, first), choice, from, to, y, y_stride,
                                    work_.scratch(worker));
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

  const Plan& plan_;
  const EngineOptions options_;
  const IsaTarget& target_;
  Workspace work_;
  std::unordered_map<const Vector*, std::vector<float>> vectors_;
  std::unique_ptr<ThreadPool> pool_;
  Shortlist::Use use_ = Shortlist::Use::kNone;  // by the batch that runs
  // Where of the scores of the last batch that has some only those on a shortlist are there: how they came.
  struct Listed {
    size_t step;
    int64_t tokens;
    Kernels kernels;
  };
  std::optional<Listed> listed_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<cpu::CpuBackend>(plan, options);
}

// More workers than a token's bytes keep busy would only wait for each other.
int useful_cpu_threads(const Plan& plan) {
  constexpr size_t kBytesPerWorker = 1 << 20;
  return int(std::clamp<size_t>(plan.bytes_per_token() / kBytesPerWorker, 1, size_t(physical_cores())));
}

int64_t cpu_shortlist_tokens(const Plan& plan) { return shortlist_head(plan) ? int64_t(cpu::Shortlist::kTokens) : 0; }

MemoryUse account_cpu(const Plan& plan, const EngineOptions& options) { return cpu::Workspace(plan, options).use(); }

}  // namespace qgen
