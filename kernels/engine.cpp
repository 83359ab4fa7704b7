#include "kernels/engine.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/kernel_log.h"
#include "kernels/layer_runner.h"
#include "kernels/weight_store.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr int64_t kBatchTokens = 2048;       // of a prompt that go through the plan together
constexpr int64_t kMostBatchTokens = 65535;  // a grid's second dimension
constexpr int kMostSplits = 64;              // of a sequence's keys
// Blocks of attention that each processor gets.
constexpr int kBlocksPerProcessor = 2;
// Of L2, for weights that are fetched ahead; the rest is for what the kernels hand each other.
constexpr int64_t kPrefetchShare = 2;

CacheKind cache_kind(KvType type) {
  switch (type) {
    case KvType::kF16: return CacheKind::kF16;
    case KvType::kBf16: return CacheKind::kBf16;
    case KvType::kF32: return CacheKind::kF32;
    case KvType::kFp8: return CacheKind::kE4M3;
    case KvType::kInt8: return CacheKind::kI8;
  }
  return CacheKind::kF16;
}

class GpuEngine : public Engine {
 public:
  GpuEngine(const Plan& plan, const EngineOptions& options, bool measure_only)
      : plan_(plan),
        model_(plan.model),
        options_(options),
        batch_(std::min({options.batch > 0 ? options.batch : kBatchTokens, options.context, kMostBatchTokens})),
        rows_(round_up(batch_, kGemmTokens)),
        hidden_(round_up(model_.hidden, kPad)),
        mixed_(round_up(model_.heads * model_.head_dim, kPad)),
        inner_(round_up(model_.intermediate, kPad)),
        qkv_(round_up((model_.heads + 2 * model_.kv_heads) * model_.head_dim, kPad)),
        vocab_(round_up(model_.vocab, kPad)),
        weights_(plan),
        rotary_(model_.rope, model_.head_dim) {
    if (model_.head_dim > kMaxHeadDim) {
      fail(ErrorKind::kDevice,
           fmt::format("cuda: heads are too large (expected at most {} elements, found {})", kMaxHeadDim,
                       model_.head_dim),
           "--device cpu");
    }
    DeviceLayout work, cache;
    lay_out_work(work);
    lay_out_cache(cache);
    use_ = {weights_.bytes(), cache.bytes(), work.bytes()};
    if (measure_only) return;
    device_.emplace(options.device_index);
    weights_.load(*device_, options.scan);
    options_.scan = nullptr;  // it is the caller's
    work_memory_ = DeviceMemory(*device_, use_.work, "work space");
    cache_memory_ = DeviceMemory(*device_, use_.kv, "key-value cache");
    inputs_host_ = PinnedMemory(inputs_bytes(batch_), "inputs");
    logits_host_ = PinnedMemory(size_t(LayerRunner::kMostFew * vocab_) * sizeof(float), "scores");
    found_host_ = PinnedMemory(sizeof(FoundScores), "scores");
    DeviceLayout placed_work(work_memory_.data()), placed_cache(cache_memory_.data());
    lay_out_work(placed_work);
    lay_out_cache(placed_cache);
    runner_.start(*device_);
    const auto in_8_bits = [&](const Weight& weight) { return runner_.takes_8_bits(weights_.table(weight)); };
    eight_bits_ = std::any_of(plan.weights.begin(), plan.weights.end(), in_8_bits);
    const int blocks = kBlocksPerProcessor * device_->properties().processors;
    const int tiles = attend_tiles(int(model_.heads / model_.kv_heads));
    splits_ = std::clamp(blocks / int(model_.kv_heads * tiles), 1, kMostSplits);
    device_->wait();
  }

  ~GpuEngine() override {
    // Nothing may be under way when the memory goes.
    if (device_) device_->settle();
  }

  std::string description() const override {
    std::string text =
        fmt::format("cuda {}, {} activations", device_->properties().name, activations_name(activations()));
    if (!runner_.library().empty()) text += ", " + runner_.library();
    return text;
  }
  Activations activations() const override {
    if (options_.activations == Activations::k8Bit && !eight_bits_) return Activations::k16Bit;
    return options_.activations;
  }
  int64_t position() const override { return position_; }
  void rewind(int64_t position) override { position_ = std::min(position_, position); }
  void set_trace(StepTrace trace) override { trace_ = std::move(trace); }
  void set_observer(PrefillObserver observer) override { observer_ = std::move(observer); }
  MemoryUse memory() const override { return use_; }

  Scores prefill(std::span<const TokenId> tokens, const LogitsSink& each) override {
    const int64_t total = int64_t(tokens.size());
    check_tokens(tokens, position_, options_.context, model_.vocab);
    device_->bind_thread();
    const std::optional<RotaryTable> before = observer_ ? std::optional(rotary_) : std::nullopt;
    rotary_.start(position_ + total);
    for (int64_t done = 0; done < total; done += batch_) {
      const int count = int(std::min(batch_, total - done));
      const bool ends = done + count == total;
      fill_inputs(tokens.subspan(size_t(done), size_t(count)));
      const bool all = bool(each);
      if (count <= LayerRunner::kMostFew && (all || ends) && !trace_) {
        // Recorded, so that a token, or one with a draft, costs one launch; from the second time on, since kernels that
        // come into memory cannot be recorded.
        Walk& known = walks_[{count, all}];
        if (!known.seen) {
          walk(count, all);
        } else {
          if (known.recording.empty()) known.recording = Recording(*device_, [this, count, all] { walk(count, all); });
          known.recording.run(*device_);
        }
        known.seen = true;
        last_row_ = all ? count - 1 : 0;
        if (all) tell(each, done, count);
      } else {
        send_inputs(count);
        run_layers(count);
        for (int first = 0; all && first < count; first += LayerRunner::kMostFew) {
          const int rows = std::min(LayerRunner::kMostFew, count - first);
          run_scores(first, rows);
          tell(each, done + first, rows);
        }
        if (!all && ends) run_scores(count - 1, 1);
        if (ends) summarize_scores();
      }
      device_->wait();
      position_ += count;
      if (observer_ && total > 1 && !observer_(double(done + count))) {
        rotary_ = *before;  // a dynamic base is that of the tokens that were run
        return {};
      }
    }
    brought_ = false;
    return Scores(*this);
  }

 protected:
  std::span<const float> all_scores() override {
    device_->bind_thread();
    if (!brought_) bring_scores(last_row_, 1);
    brought_ = true;
    return {reinterpret_cast<const float*>(logits_host_.data()), size_t(model_.vocab)};
  }
  bool scores_finite() override { return found().best.all_finite != 0; }
  TopScores top_scores(size_t count, double temperature) override {
    if (count <= 1) return {{{found().best.token, found().best.score}}};
    if (count > size_t(kMostBest)) return {};
    device_->bind_thread();
    ScoreArgs args = score_args();
    args.wanted = int(count);
    if (temperature > 0) args.inverse_temperature = float(std::min(1 / temperature, 1e30));
    find_best_scores(device_->stream(), args);
    copy_to_host(device_->stream(), found_host_.data(), found_, sizeof(FoundScores));
    device_->wait();
    if (found().count > uint32_t(kMostBest)) return {};
    TopScores out;
    for (uint32_t i = 0; i < found().count; ++i) out.best.push_back({found().token[i].token, found().token[i].score});
    std::sort(out.best.begin(), out.best.end(), better);
    if (temperature > 0) out.mass = double(found().mass);
    return out;
  }

 private:
  // What a call sends: its position, the tokens and their rotations, here and there at the same places.
  size_t inputs_bytes(int64_t tokens) const { return size_t(16 + 16 * tokens + 4 * tokens * model_.head_dim); }
  struct Inputs {
    int32_t* position;
    int32_t* tokens;
    float *cos, *sin;
  };
  Inputs inputs_at(std::byte* memory, int64_t tokens) const {
    auto* const integers = reinterpret_cast<int32_t*>(memory);
    auto* const cos = reinterpret_cast<float*>(integers + 4 + round_up(tokens, 4));
    return {integers, integers + 4, cos, cos + tokens * (model_.head_dim / 2)};
  }
  void fill_inputs(std::span<const TokenId> tokens) {
    const int64_t count = int64_t(tokens.size()), half = model_.head_dim / 2;
    const Inputs inputs = inputs_at(inputs_host_.data(), count);
    *inputs.position = int32_t(position_);
    std::copy(tokens.begin(), tokens.end(), inputs.tokens);
    rotary_.compute(position_, count);
    for (int64_t t = 0; t < count; ++t) {
      std::copy_n(rotary_.cos(t).begin(), half, inputs.cos + t * half);
      std::copy_n(rotary_.sin(t).begin(), half, inputs.sin + t * half);
    }
  }
  void send_inputs(int64_t count) {
    const Inputs there = inputs_at(inputs_, count);
    call_ = {there.position, there.tokens, there.cos, there.sin};
    copy_to_device(device_->stream(), inputs_, inputs_host_.data(), inputs_bytes(count));
  }

  // A few tokens, with the scores of all or of the last.
  void walk(int count, bool all) {
    send_inputs(count);
    run_layers(count);
    run_scores(all ? 0 : count - 1, all ? count : 1);
    summarize_scores();
  }

  ScoreArgs score_args() const {
    ScoreArgs args;
    args.scores = logits_ + last_row_ * vocab_;
    args.count = int(model_.vocab);
    args.found = found_;
    args.scratch = score_scratch_;
    return args;
  }
  const FoundScores& found() const { return *reinterpret_cast<const FoundScores*>(found_host_.data()); }
  // The best of the last scores, on its way to the host.
  void summarize_scores() {
    find_best_score(device_->stream(), score_args());
    copy_to_host(device_->stream(), found_host_.data(), &found_->best, sizeof(BestScore));
  }
  // All scores of rows from `first` on, to the beginning of logits_host_.
  void bring_scores(int first, int rows) {
    copy_to_host(device_->stream(), logits_host_.data(), logits_ + first * vocab_,
                 size_t(rows * vocab_) * sizeof(float));
    device_->wait();
  }
  // Of the tokens from the call's `index` on.
  void tell(const LogitsSink& each, int64_t index, int rows) {
    bring_scores(0, rows);
    for (int i = 0; i < rows; ++i)
      each(index + i, {reinterpret_cast<const float*>(logits_host_.data()) + i * vocab_, size_t(model_.vocab)});
  }

  void lay_out_work(DeviceLayout& layout) {
    const int64_t few = std::min<int64_t>(kFewTokens, batch_);
    inputs_ = layout.take<std::byte>(int64_t(inputs_bytes(batch_)));
    residual_ = layout.take<float>(rows_ * hidden_);
    qkv_rows_ = layout.take<float>(rows_ * qkv_);
    mixed_rows_ = layout.take<float>(rows_ * mixed_);
    gate_ = layout.take<float>(rows_ * inner_);
    up_ = layout.take<float>(rows_ * inner_);
    logits_ = layout.take<float>(std::min<int64_t>(LayerRunner::kMostFew, batch_) * vocab_);
    partial_ = layout.take<float>(few * model_.heads * kMostSplits * (padded(int(model_.head_dim)) + 2));
    counter_ = layout.take<uint32_t>(few * model_.heads);
    found_ = layout.take<FoundScores>(1);
    score_scratch_ = layout.take<ScoreArgs::Scratch>(1);
    runner_.lay_out(layout, batch_, std::max({hidden_, mixed_, inner_}), hidden_, options_.activations);
  }

  void lay_out_cache(DeviceLayout& layout) {
    const CacheKind kind = cache_kind(options_.kv);
    const int64_t rows = model_.kv_heads * options_.context;
    caches_.clear();
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      Cache cache;
      cache.kind = kind;
      cache.context = options_.context;
      cache.row_bytes = cache_row_bytes(kind, model_.head_dim);
      cache.keys = layout.take<uint8_t>(rows * cache.row_bytes);
      cache.values = layout.take<uint8_t>(rows * cache.row_bytes);
      cache.key_factor = layout.take<float>(has_factors(kind) ? rows : 0);
      cache.value_factor = layout.take<float>(has_factors(kind) ? rows : 0);
      caches_.push_back(cache);
    }
  }

  void run_layers(int tokens) {
    for (size_t i = 0; i + 1 < plan_.steps.size(); ++i) {
      name_launches(i);
      std::visit([&](const auto& step) { execute(step, i, tokens); }, plan_.steps[i]);
    }
  }

  // What follows belongs to this step, for those who time it.
  void name_launches(size_t step) {
    if (KernelLog* const log = KernelLog::current()) log->set_step(step_name(plan_.steps[step]));
  }

  // Shows the last token's row of what a step made.
  void show(size_t step, const float* rows, int64_t stride, int64_t cols, int tokens) {
    if (!trace_) return;
    std::vector<float> row(static_cast<size_t>(cols));
    copy_to_host(device_->stream(), row.data(), rows + (tokens - 1) * stride, size_t(cols) * sizeof(float));
    device_->wait();
    trace_(step, row);
  }

  LayerInput normed(const std::vector<float>& norm) const {
    LayerInput input;
    input.x = residual_;
    input.stride = hidden_;
    input.cols = int(model_.hidden);
    input.norm = weights_.vector(&norm);
    input.norm_eps = float(model_.norm_eps);
    input.norm_peak = weights_.largest(norm);
    return input;
  }

  void execute(const EmbedStep& step, size_t index, int tokens) {
    EmbedArgs args;
    args.table = weights_.table(*step.table);
    args.call = call_;
    args.y = residual_;
    args.y_stride = hidden_;
    args.tokens = tokens;
    embed(device_->stream(), args);
    show(index, residual_, hidden_, model_.hidden, tokens);
  }

  void execute(const QkvStep& step, size_t index, int tokens) {
    const Matrix layers[] = {weights_.matrix(step.q), weights_.matrix(step.k), weights_.matrix(step.v)};
    runner_.run(device_->stream(), layers, normed(*step.norm), qkv_rows_, qkv_, tokens);
    show(index, qkv_rows_, qkv_, model_.heads * model_.head_dim, tokens);
  }

  // Done together with attention.
  void execute(const RotateStoreStep& step, size_t, int) { rotate_ = &step; }

  void execute(const AttendStep& step, size_t index, int tokens) {
    Stream& stream = device_->stream();
    AttendArgs args;
    args.qkv = qkv_rows_;
    args.qkv_stride = qkv_;
    args.q_norm = weights_.vector(rotate_->q_norm);
    args.k_norm = weights_.vector(rotate_->k_norm);
    args.norm_eps = float(model_.norm_eps);
    args.call = call_;
    args.cache = caches_[size_t(step.layer)];
    args.heads = int(model_.heads);
    args.kv_heads = int(model_.kv_heads);
    args.head_dim = int(model_.head_dim);
    args.window = step.window;
    args.tokens = tokens;
    args.y = mixed_rows_;
    args.y_stride = mixed_;
    args.splits = splits_;
    args.partial = partial_;
    args.counter = counter_;
    if (tokens == 1) {
      // Weights of the next step, for processors that have no keys to look at.
      const Matrix next = weights_.matrix(std::get<OutStep>(plan_.steps[index + 1]).o);
      args.next = next.codes;
      args.next_bytes =
          std::min<int64_t>(next.rows * next.row_bytes,
                            int64_t(device_->properties().l2_bytes) / kPrefetchShare / kRowAlignment * kRowAlignment);
      attend(stream, args, true);
    } else {
      store_keys(stream, args);
      if (tokens > LayerRunner::kMostFew && options_.activations != Activations::kF32 && can_attend_in_tiles(args)) {
        attend_in_tiles(stream, args);
      } else {
        for (args.first_token = 0; args.first_token < tokens; args.first_token += kFewTokens) {
          args.tokens = std::min(kFewTokens, tokens - args.first_token);
          attend(stream, args, false);
        }
      }
    }
    show(index, mixed_rows_, mixed_, model_.heads * model_.head_dim, tokens);
  }

  void add_to_residual(const Linear& linear, float* x, const float* up, int64_t stride, size_t index, int tokens) {
    const Matrix layer = weights_.matrix(linear);
    LayerInput input;
    input.x = x;
    input.up = up;
    input.stride = stride;
    input.cols = layer.cols;
    runner_.run(device_->stream(), {&layer, 1}, input, residual_, hidden_, tokens, true);
    show(index, residual_, hidden_, model_.hidden, tokens);
  }

  void execute(const OutStep& step, size_t index, int tokens) {
    add_to_residual(step.o, mixed_rows_, nullptr, mixed_, index, tokens);
  }

  void execute(const GateUpStep& step, size_t, int tokens) {
    gated_ = runner_.run_gated(device_->stream(), weights_.matrix(step.gate), weights_.matrix(step.up),
                               normed(*step.norm), gate_, up_, inner_, tokens);
  }

  void execute(const DownStep& step, size_t index, int tokens) {
    add_to_residual(step.down, gate_, gated_ ? nullptr : up_, inner_, index, tokens);
  }

  void execute(const LogitsStep&, size_t, int) {}

  // Scores of `rows` tokens from `first` on, kMostFew at most.
  void run_scores(int first, int rows) {
    const size_t index = plan_.steps.size() - 1;
    name_launches(index);
    const auto& step = std::get<LogitsStep>(plan_.steps[index]);
    const Matrix head = weights_.matrix(step.head);
    LayerInput input = normed(*step.norm);
    input.x += first * hidden_;
    runner_.run(device_->stream(), {&head, 1}, input, logits_, vocab_, rows);
    last_row_ = rows - 1;
    show(index, logits_, vocab_, model_.vocab, rows);
  }

  const Plan& plan_;
  const Description& model_;
  EngineOptions options_;
  int64_t batch_;                                 // tokens at most that go through the plan together
  int64_t rows_;                                  // of activations, for so many
  int64_t hidden_, mixed_, inner_, qkv_, vocab_;  // strides of activations
  std::optional<Device> device_;
  WeightStore weights_;
  RotaryTable rotary_;
  MemoryUse use_;
  int splits_ = 1;
  int64_t position_ = 0;
  StepTrace trace_;
  PrefillObserver observer_;

  DeviceMemory work_memory_, cache_memory_;
  PinnedMemory inputs_host_, logits_host_, found_host_;
  std::vector<Cache> caches_;  // one a layer
  std::byte* inputs_ = nullptr;
  float* residual_ = nullptr;    // (rows_, hidden_)
  float* qkv_rows_ = nullptr;    // (rows_, qkv_)
  float* mixed_rows_ = nullptr;  // (rows_, mixed_)
  float* gate_ = nullptr;        // (rows_, inner_)
  float* up_ = nullptr;          // (rows_, inner_)
  float* logits_ = nullptr;      // (kMostFew, vocab_)
  float* partial_ = nullptr;     // (kFewTokens, heads, kMostSplits, padded head + 2)
  uint32_t* counter_ = nullptr;  // (kFewTokens, heads)
  FoundScores* found_ = nullptr;
  ScoreArgs::Scratch* score_scratch_ = nullptr;
  LayerRunner runner_;
  bool eight_bits_ = false;  // some layers take inputs of 8 bits

  // Of the walk under way.
  CallInputs call_;
  const RotateStoreStep* rotate_ = nullptr;
  bool gated_ = false;

  struct Walk {
    bool seen = false;
    Recording recording;
  };
  std::map<std::pair<int, bool>, Walk> walks_;  // by their tokens, and whether all of them have scores
  int last_row_ = 0;                            // of logits_: the last token's
  bool brought_ = false;                        // all scores of the last call are on the host
};

}  // namespace

std::unique_ptr<Engine> make_engine(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<GpuEngine>(plan, options, false);
}

MemoryUse account_engine(const Plan& plan, const EngineOptions& options) {
  return GpuEngine(plan, options, true).memory();
}

}  // namespace qgen::QGEN_BACKEND
