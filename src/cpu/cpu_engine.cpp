// The CPU engine: walks the plan with all workers at once. Weights stay as they are in memory and are decoded
// inside the dot products; activations are f32 between steps, and of the asked precision inside the large products.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/rounding.h"
#include "cpu/arena.h"
#include "cpu/isa/targets.h"
#include "cpu/linear.h"
#include "cpu/thread_pool.h"
#include "engine/engine.h"

namespace qgen {
namespace cpu {
namespace {

constexpr int64_t kBatchTokens = 512;  // tokens that go through the plan together
constexpr int64_t kLogitsTokens = 16;  // rows of logits held at once when all are asked for
constexpr int64_t kMaxTaskRows = 1024;

constexpr int64_t kHeadPad = 16;  // values are padded to a multiple of this

// A step's own state: its layers and the input they share.
struct StepState {
  std::vector<LinearKernel> layers;
  StepInput* input = nullptr;
};

class CpuEngine : public Engine {
 public:
  CpuEngine(const Plan& plan, const EngineOptions& options, bool measure_only)
      : plan_(plan),
        model_(plan.model),
        options_(options),
        body_(find_body(options.body)),
        batch_(std::min(kBatchTokens, options.context)),
        group_(model_.heads / model_.kv_heads),
        padded_dim_(round_up(model_.head_dim, kHeadPad)),
        cache_shape_{round_up(options.context, kCacheUnit), model_.kv_heads, model_.head_dim, padded_dim_},
        workers_(options.threads > 0 ? options.threads : useful_cpu_threads(plan)),
        rotary_(model_.rope, model_.head_dim) {
    for (const Step& step : plan.steps) states_.push_back(make_state(step));
    lay_out_work(work_);
    lay_out_cache(cache_);
    if (measure_only) return;
    work_.allocate("work space");
    cache_.allocate("key-value cache");
    lay_out_work(work_);
    lay_out_cache(cache_);
    pool_ = std::make_unique<ThreadPool>(workers_);
  }

  std::string description() const override {
    return fmt::format("cpu {}, {} activations, {} thread{}", body_.name, activations_name(activations()), workers_,
                       workers_ == 1 ? "" : "s");
  }
  Activations activations() const override {
    if (options_.activations != Activations::k8Bit) return options_.activations;
    for (const StepState& state : states_) {
      for (const LinearKernel& layer : state.layers) {
        if (layer.kernels().many.form == Form::kBytes) return Activations::k8Bit;
      }
    }
    return Activations::k16Bit;
  }
  int64_t position() const override { return position_; }
  void rewind(int64_t position) override { position_ = std::min(position_, position); }
  void set_trace(StepTrace trace) override { trace_ = std::move(trace); }
  void set_observer(PrefillObserver observer) override { observer_ = std::move(observer); }
  MemoryUse memory() const override {
    size_t widened = 0;
    for (const StepState& state : states_) {
      for (const LinearKernel& layer : state.layers) widened += layer.widened_bytes();
    }
    return {plan_.weight_bytes() + widened, cache_.used(), work_.used()};
  }

  Scores prefill(std::span<const TokenId> tokens, const LogitsSink& each) override {
    const int64_t total = int64_t(tokens.size());
    check_tokens(tokens, position_, options_.context, model_.vocab);
    const std::optional<RotaryTable> before = observer_ ? std::optional(rotary_) : std::nullopt;
    rotary_.start(position_ + total);
    for (int64_t done = 0; done < total; done += batch_) {
      const int64_t count = std::min(batch_, total - done);
      if (!run_layers(tokens.subspan(done, count), done)) {
        rotary_ = *before;  // a dynamic base is that of the tokens that were run
        return {};
      }
      const bool last = done + count == total;
      if (each) {
        for (int64_t t = 0; t < count; t += kLogitsTokens) {
          const int64_t rows = std::min(kLogitsTokens, count - t);
          run_logits(t, rows);
          for (int64_t i = 0; i < rows; ++i) each(done + t + i, {logits_ + i * model_.vocab, size_t(model_.vocab)});
          if (last && t + rows == count) std::copy_n(logits_ + (rows - 1) * model_.vocab, model_.vocab, logits_);
        }
      } else if (last) {
        run_logits(count - 1, 1);
      }
      position_ += count;
    }
    return std::span<const float>(logits_, size_t(model_.vocab));
  }

 private:
  StepState make_state(const Step& step) {
    StepState state;
    const bool logits = std::holds_alternative<LogitsStep>(step);
    // Few tokens' scores are wanted: 8 bits would cost precision there and gain nothing.
    const Activations activations =
        logits && options_.activations == Activations::k8Bit ? Activations::k16Bit : options_.activations;
    for (const Linear& linear : linears(step)) state.layers.emplace_back(linear, body_, activations);
    if (state.layers.empty()) return state;
    const int64_t tokens = logits ? std::min(kLogitsTokens, batch_) : batch_;
    for (const LinearKernel& layer : state.layers) {
      scratch_bytes_ = std::max(scratch_bytes_, scratch_bytes(layer.cols(), layer.matrix().tile_cols));
    }
    // Attention writes into the input of the step after it, and gate+up into that of down: those of other kinds
    // of steps must not be shared with them.
    const size_t kind = step.index();
    for (const auto& [input_kind, input] : inputs_) {
      if (input_kind == kind && input->serves(state.layers)) state.input = input.get();
    }
    if (state.input == nullptr) {
      inputs_.emplace_back(kind, std::make_unique<StepInput>(state.layers, tokens, workers_));
      state.input = inputs_.back().second.get();
    }
    return state;
  }

  void lay_out_work(Arena& arena) {
    for (auto& [kind, input] : inputs_) input->lay_out(arena);
    residual_ = arena.take<float>(batch_ * model_.hidden);
    q_ = arena.take<float>(batch_ * model_.heads * model_.head_dim);
    k_ = arena.take<float>(batch_ * model_.kv_heads * model_.head_dim);
    v_ = arena.take<float>(batch_ * model_.kv_heads * model_.head_dim);
    // Also holds what gate+up makes for the rows of one task.
    projection_ = arena.take<float>(batch_ * std::max(model_.hidden, model_.intermediate));
    logits_ = arena.take<float>(std::min(kLogitsTokens, batch_) * model_.vocab);
    cos_ = arena.take<float>(batch_ * model_.head_dim / 2);
    sin_ = arena.take<float>(batch_ * model_.head_dim / 2);
    scratch_bytes_ =
        std::max({scratch_bytes_, attend_scratch_bytes(padded_dim_), model_.hidden * int64_t(sizeof(double))});
    splits_ = (options_.context + kAttendChunk - 1) / kAttendChunk + 1;
    partial_ = arena.take<float>(splits_ * model_.heads * (padded_dim_ + 2));
    scratch_stride_ = round_up(scratch_bytes_, 4096);
    scratch_ = arena.take<std::byte>(workers_ * scratch_stride_);
  }

  void lay_out_cache(Arena& arena) {
    keys_.clear();
    values_.clear();
    const int64_t element = kv_element_bytes(options_.kv);
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      const int64_t rows = cache_shape_.held * model_.kv_heads;
      keys_.push_back(arena.take<std::byte>(rows * model_.head_dim * element));
      values_.push_back(arena.take<std::byte>(rows * padded_dim_ * element));
    }
  }

  // `before`: tokens of the same call that are done. False if the observer stopped it.
  bool run_layers(std::span<const TokenId> tokens, int64_t before) {
    const int64_t half = model_.head_dim / 2;
    rotary_.compute(position_, int64_t(tokens.size()));
    for (int64_t t = 0; t < int64_t(tokens.size()); ++t) {
      const auto cos = rotary_.cos(t), sin = rotary_.sin(t);
      for (int64_t i = 0; i < half; ++i) {
        cos_[t * half + i] = float(cos[i]);
        sin_[t * half + i] = float(sin[i]);
      }
    }
    tokens_ = tokens;
    count_ = int64_t(tokens.size());
    stopped_ = false;
    const bool observed = observer_ && count_ > 1;
    pool_->run([&](int worker) {
      for (size_t i = 0; i + 1 < plan_.steps.size(); ++i) {
        const std::span<const float> made =
            std::visit([&](const auto& step) { return execute(step, i, worker); }, plan_.steps[i]);
        if (trace_) trace(i, made);
        if (observed && std::holds_alternative<DownStep>(plan_.steps[i])) {
          const double share = double(i + 1) / double(plan_.steps.size());
          pool_->share(1, [&](int64_t) { stopped_ = !observer_(double(before) + double(count_) * share); });
          if (stopped_) return;
        }
      }
    });
    return !stopped_;
  }

  auto norm_of(StepState& state, const std::vector<float>& norm, int64_t first) const {
    return [&, first](int64_t token, int64_t row) {
      body_.rms_norm(residual_ + (first + token) * model_.hidden, norm.data(), model_.hidden, float(model_.norm_eps),
                     state.input->row(row));
    };
  }

  void run_logits(int64_t first, int64_t count) {
    const size_t index = plan_.steps.size() - 1;
    const auto& step = std::get<LogitsStep>(plan_.steps[index]);
    StepState& state = states_[index];
    pool_->run([&](int worker) {
      share_products(state, state.layers[0].rows(), count, worker, norm_of(state, *step.norm, first),
                     [&](int64_t row, int64_t begin, int64_t end) {
                       state.layers[0].multiply(state.input->view(state.layers, 0, count, row), begin, end, logits_,
                                                model_.vocab, scratch(worker));
                     });
      if (trace_) trace(index, {logits_ + (count - 1) * model_.vocab, size_t(model_.vocab)});
    });
  }

  void trace(size_t step, std::span<const float> made) {
    pool_->share(1, [&](int64_t) { trace_(step, made); });
  }

  std::byte* scratch(int worker) const { return scratch_ + worker * scratch_stride_; }

  // Rows [0, rows) in tasks of whole panels, several a worker so that a slow one does not hold up the rest.
  template <typename Task>
  void share_rows(int64_t rows, int64_t tokens, const Task& task) {
    const int64_t unit = tokens == 1 ? 4 : body_.panel_rows;
    const int64_t wanted = rows / (workers_ * 8);
    const int64_t size = std::clamp(wanted / unit * unit, unit, std::max(unit, kMaxTaskRows / unit * unit));
    pool_->share((rows + size - 1) / size, [&](int64_t i) { task(i * size, std::min(rows, (i + 1) * size)); });
  }

  // Shares rows of a step's products with `count` tokens, whose values fill(token, row) writes into a row of the input:
  // task(first row of the input, begin, end). One token is prepared by every worker in a row of its own, which costs
  // less than a wait for one that does it for all; with its first task in hand, so that no step after this one can
  // begin meanwhile.
  template <typename Fill, typename Task>
  void share_products(StepState& state, int64_t rows, int64_t count, int worker, const Fill& fill, const Task& task) {
    const auto prepare = [&](int64_t token, int64_t row) {
      fill(token, row);
      state.input->prepare(body_, state.layers, row, count);
    };
    const bool together = count > 1;
    if (together) pool_->share(count, [&](int64_t t) { prepare(t, t); });
    bool ready = together;
    share_rows(rows, count, [&](int64_t begin, int64_t end) {
      if (!ready) prepare(0, worker);
      ready = true;
      task(together ? 0 : worker, begin, end);
    });
  }

  std::span<const float> last_row(const float* data, int64_t cols) const {
    return {data + (count_ - 1) * cols, size_t(cols)};
  }

  std::span<const float> execute(const EmbedStep& step, size_t, int worker) {
    pool_->share(count_, [&](int64_t t) {
      const std::span row(reinterpret_cast<double*>(scratch(worker)), size_t(model_.hidden));
      dequantize_row(*step.table, tokens_[t], row);
      std::copy(row.begin(), row.end(), residual_ + t * model_.hidden);
    });
    return last_row(residual_, model_.hidden);
  }

  std::span<const float> execute(const QkvStep& step, size_t index, int worker) {
    StepState& state = states_[index];
    const int64_t q_rows = state.layers[0].rows(), kv_rows = state.layers[1].rows();
    // One stretch of rows: q, then k, then v.
    const auto multiply = [&](int64_t row, int64_t begin, int64_t end) {
      int64_t first = 0;
      float* const outputs[] = {q_, k_, v_};
      for (size_t i = 0; i < 3; ++i) {
        const int64_t rows = state.layers[i].rows();
        const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, rows);
        if (from < to)
          state.layers[i].multiply(state.input->view(state.layers, i, count_, row), from, to, outputs[i], rows,
                                   scratch(worker));
        first += rows;
      }
    };
    share_products(state, q_rows + 2 * kv_rows, count_, worker, norm_of(state, *step.norm, 0), multiply);
    return last_row(q_, q_rows);
  }

  std::span<const float> execute(const RotateStoreStep& step, size_t, int) {
    const int64_t d = model_.head_dim, half = d / 2;
    const int64_t kv_rows = model_.kv_heads * d, q_rows = model_.heads * d;
    const float attention_scale = 1 / std::sqrt(float(d));
    const auto head = [&](float* values, const std::vector<float>* norm, int64_t t) {
      if (norm != nullptr) body_.rms_norm(values, norm->data(), d, float(model_.norm_eps), values);
      body_.rotate(values, cos_ + t * half, sin_ + t * half, d);
    };
    pool_->share(count_ * model_.kv_heads, [&](int64_t task) {
      const int64_t t = task / model_.kv_heads, h = task % model_.kv_heads;
      const int64_t at = position_ + t;
      float* key = k_ + t * kv_rows + h * d;
      head(key, step.k_norm, t);
      const int64_t element = kv_element_bytes(options_.kv);
      const auto store = body_.store_kv[size_t(options_.kv)];
      const int64_t chunk = at / kAttendChunk * kAttendChunk, block = (at - chunk) / kKeyBlock * kKeyBlock;
      const int64_t row = cache_shape_.first_row(chunk, h);
      store(key, d, keys_[step.layer] + ((row + block) * d + at % kKeyBlock) * element, kKeyBlock);
      store(v_ + t * kv_rows + h * d, d, values_[step.layer] + (row + at - chunk) * padded_dim_ * element, 1);
      for (int64_t g = h * group_; g < (h + 1) * group_; ++g) {
        float* query = q_ + t * q_rows + g * d;
        head(query, step.q_norm, t);
        body_.scale(query, attention_scale, d, query);
      }
    });
    return last_row(q_, q_rows);
  }

  std::span<const float> execute(const AttendStep& step, size_t index, int worker) {
    StepState& consumer = states_[index + 1];
    if (count_ == 1) {
      attend_one(step, *consumer.input, worker);
    } else {
      attend_many(step, *consumer.input, worker);
    }
    return {consumer.input->row(count_ - 1), size_t(model_.heads * model_.head_dim)};
  }

  int64_t first_key(const AttendStep& step, int64_t at) const {
    return step.window > 0 ? std::max<int64_t>(0, at - step.window + 1) : 0;
  }

  AttendArguments attend_arguments(const AttendStep& step, int64_t kv_head, int worker) const {
    AttendArguments a;  // without its rows
    a.cache = cache_shape_;
    a.kv_head = kv_head;
    a.keys = keys_[step.layer];
    a.values = values_[step.layer];
    a.scratch = scratch(worker);
    return a;
  }

  // One token: the keys are split as well as the heads; each part leaves its sums in partial_, which are put
  // together head by head. The split depends on the position only, so the result not on the threads.
  void attend_one(const AttendStep& step, StepInput& out, int worker) {
    const int64_t d = model_.head_dim;
    const int64_t first = first_key(step, position_), last = position_ + 1;
    const int64_t begin = first / kAttendChunk * kAttendChunk;
    const int64_t splits = (last - begin + kAttendChunk - 1) / kAttendChunk;
    const int64_t tiles = (group_ + kMaxAttendRows - 1) / kMaxAttendRows;
    const int64_t row = padded_dim_ + 2;
    pool_->share(model_.kv_heads * tiles * splits, [&](int64_t task) {
      const int64_t tile = task % tiles, h = task / tiles % model_.kv_heads;
      const int64_t split = task / tiles / model_.kv_heads;  // in the order of memory
      AttendArguments a = attend_arguments(step, h, worker);
      a.rows = int(std::min<int64_t>(kMaxAttendRows, group_ - tile * kMaxAttendRows));
      for (int r = 0; r < a.rows; ++r) {
        const int64_t g = h * group_ + tile * kMaxAttendRows + r;
        a.q[r] = q_ + g * d;
        a.first[r] = std::max(first, begin + split * kAttendChunk);
        a.last[r] = std::min(last, begin + (split + 1) * kAttendChunk);
      }
      body_.attend[size_t(options_.kv)](a);
      for (int r = 0; r < a.rows; ++r) {
        const int64_t g = h * group_ + tile * kMaxAttendRows + r;
        if (splits == 1) {
          for (int64_t i = 0; i < d; ++i) out.row(0)[g * d + i] = a.out[r][i] / a.sum[r];
          continue;
        }
        float* part = partial_ + (g * splits_ + split) * row;
        std::copy_n(a.out[r], padded_dim_, part);
        part[padded_dim_] = a.highest[r];
        part[padded_dim_ + 1] = a.sum[r];
      }
    });
    if (splits == 1) return;
    pool_->share(model_.heads, [&](int64_t g) {
      const float* parts = partial_ + g * splits_ * row;
      float highest = -INFINITY, sum = 0;
      for (int64_t s = 0; s < splits; ++s) highest = std::max(highest, parts[s * row + padded_dim_]);
      float* mixed = out.row(0) + g * d;
      std::fill_n(mixed, d, 0.0f);
      for (int64_t s = 0; s < splits; ++s) {
        const float* part = parts + s * row;
        const float factor = std::exp(part[padded_dim_] - highest);
        sum += factor * part[padded_dim_ + 1];
        for (int64_t i = 0; i < d; ++i) mixed[i] += factor * part[i];
      }
      for (int64_t i = 0; i < d; ++i) mixed[i] /= sum;
    });
  }

  // Many tokens: (token, head) rows that share one kv head, as many to a task as leave every worker some. Tiles of
  // rows begin at the same ones however they are shared out.
  void attend_many(const AttendStep& step, StepInput& out, int worker) {
    const int64_t d = model_.head_dim, q_rows = model_.heads * d;
    const int64_t rows = count_ * group_;
    const auto words = body_.attend_words[size_t(options_.kv)];
    const bool in_words = words != nullptr && count_ >= kManyTokens && options_.activations != Activations::kF32;
    const auto attend = in_words ? words : body_.attend[size_t(options_.kv)];
    const int64_t share = rows * model_.kv_heads / (workers_ * 4) / kMaxTileTokens * kMaxTileTokens;
    const int64_t size = std::clamp<int64_t>(share, 2 * kMaxTileTokens, kMaxAttendRows);
    const int64_t tiles = (rows + size - 1) / size;
    pool_->share(model_.kv_heads * tiles, [&](int64_t task) {
      const int64_t h = task / tiles;  // a worker's stretch is of few heads, and of long tiles as of short ones
      const int64_t tile = tiles - 1 - task % tiles;
      AttendArguments a = attend_arguments(step, h, worker);
      a.rows = int(std::min(size, rows - tile * size));
      for (int r = 0; r < a.rows; ++r) {
        const int64_t index = tile * size + r;
        const int64_t t = index / group_, g = h * group_ + index % group_;
        a.q[r] = q_ + t * q_rows + g * d;
        a.first[r] = first_key(step, position_ + t);
        a.last[r] = position_ + t + 1;
      }
      attend(a);
      for (int r = 0; r < a.rows; ++r) {
        const int64_t index = tile * size + r;
        body_.scale(a.out[r], 1 / a.sum[r], d, out.row(index / group_) + (h * group_ + index % group_) * d);
      }
    });
  }

  // residual += W input, the input's rows being written already.
  void add_product(StepState& state, int worker) {
    const int64_t hidden = model_.hidden;
    const auto copy = [&](int64_t token, int64_t row) {
      if (row != token) std::copy_n(state.input->row(token), state.layers[0].cols(), state.input->row(row));
    };
    share_products(state, hidden, count_, worker, copy, [&](int64_t row, int64_t begin, int64_t end) {
      state.layers[0].multiply(state.input->view(state.layers, 0, count_, row), begin, end, projection_, hidden,
                               scratch(worker));
      for (int64_t t = 0; t < count_; ++t) {
        body_.add(residual_ + t * hidden + begin, projection_ + t * hidden + begin, end - begin);
      }
    });
  }

  std::span<const float> execute(const OutStep&, size_t index, int worker) {
    add_product(states_[index], worker);
    return last_row(residual_, model_.hidden);
  }

  std::span<const float> execute(const GateUpStep& step, size_t index, int worker) {
    StepState& state = states_[index];
    StepInput& out = *states_[index + 1].input;
    const auto multiply = [&](int64_t row, int64_t begin, int64_t end) {
      state.layers[0].multiply(state.input->view(state.layers, 0, count_, row), begin, end, out.row(0), out.stride(),
                               scratch(worker));
      state.layers[1].multiply(state.input->view(state.layers, 1, count_, row), begin, end, projection_,
                               model_.intermediate, scratch(worker));
      for (int64_t t = 0; t < count_; ++t) {
        body_.silu_multiply(out.row(t) + begin, projection_ + t * model_.intermediate + begin, end - begin);
      }
    };
    share_products(state, model_.intermediate, count_, worker, norm_of(state, *step.norm, 0), multiply);
    return {out.row(count_ - 1), size_t(model_.intermediate)};
  }

  std::span<const float> execute(const DownStep&, size_t index, int worker) {
    add_product(states_[index], worker);
    return last_row(residual_, model_.hidden);
  }

  std::span<const float> execute(const LogitsStep&, size_t, int) { return {}; }  // run_logits() does this step

  const Plan& plan_;
  const Description& model_;
  const EngineOptions options_;
  const Body& body_;
  const int64_t batch_;
  const int64_t group_;  // query heads that share a kv head
  const int64_t padded_dim_;
  const CacheShape cache_shape_;
  const int workers_;
  RotaryTable rotary_;
  StepTrace trace_;
  PrefillObserver observer_;
  std::atomic<bool> stopped_{false};  // by the observer
  int64_t position_ = 0;

  std::vector<std::pair<size_t, std::unique_ptr<StepInput>>> inputs_;  // with the kind of step they are for
  std::vector<StepState> states_;                                      // one a step
  Arena work_, cache_;
  std::vector<std::byte*> keys_, values_;  // per layer
  // (tokens, ...) row major; see lay_out_work()
  float *residual_, *q_, *k_, *v_, *projection_, *logits_, *cos_, *sin_, *partial_;
  std::byte* scratch_;
  int64_t scratch_bytes_ = 0, scratch_stride_ = 0, splits_ = 0;
  std::unique_ptr<ThreadPool> pool_;
  // The tokens being run.
  std::span<const TokenId> tokens_;
  int64_t count_ = 0;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Engine> make_cpu_engine(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<cpu::CpuEngine>(plan, options, false);
}

// More workers than a token's bytes keep busy would only wait for each other.
int useful_cpu_threads(const Plan& plan) {
  constexpr size_t kBytesPerWorker = 1 << 20;
  return int(std::clamp<size_t>(plan.bytes_per_token() / kBytesPerWorker, 1, size_t(physical_cores())));
}

MemoryUse account_cpu_engine(const Plan& plan, const EngineOptions& options) {
  return cpu::CpuEngine(plan, options, true).memory();
}

}  // namespace qgen
