#include "kernels/cuda_backend.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"
#include "engine/engine.h"
#include "engine/scores.h"
#include "kernels/call_inputs.h"
#include "kernels/kernel_log.h"
#include "kernels/kv_cache.h"
#include "kernels/linear_dispatch.h"
#include "kernels/weight_store.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr int64_t kBatchTokens = 2048;       // of a prompt that go through the plan together
constexpr int64_t kMostBatchTokens = 65535;  // a grid's second dimension
constexpr int64_t kScoredTokens = LinearDispatch::kMostGemvTokens;
constexpr size_t kMostRecordedTokens = 64;
constexpr int kMostSplits = 64;  // of a sequence's keys
// Blocks of attention that each processor gets.
constexpr int kBlocksPerProcessor = 2;
// Of L2, for weights that are fetched ahead; the rest is for what the kernels hand each other.
constexpr int64_t kPrefetchShare = 2;

// The rows of the plan on the device.
struct RowBuffer {
  float* data = nullptr;
  int64_t stride = 0;
  bool scored = false;
};

// A LinearStep as its kernels take it, but for where its tokens begin.
struct PreparedLinear {
  LinearInput input;
  std::vector<DeviceProjection> projections;
};

template <typename Use>
void for_each_attend(const Plan& plan, const Use& use) {
  for (const Step& step : plan.steps) {
    if (const auto* attend = std::get_if<AttendStep>(&step.op)) use(*attend);
  }
}

// The banks of an ExpertsStep on the device: the matrices of its gates, ups and downs.
struct PreparedExperts {
  Matrix *gate = nullptr, *up = nullptr, *down = nullptr;  // (experts) each; of a HeadLinearStep `up` alone, (heads)
};

// What the kernels of mixtures and recurrences cannot do.
void check_step(const Step& step) {
  const auto refuse = [](const std::string& problem) {
    fail(ErrorKind::kDevice, fmt::format("cuda: {}", problem), "--device cpu");
  };
  if (const auto* experts = std::get_if<ExpertsStep>(&step.op)) {
    const auto alike = [](const std::vector<const Weight*>& bank, Codes codes) {
      return std::all_of(bank.begin(), bank.end(), [&](const Weight* weight) { return weight->codes == codes; });
    };
    if (!alike(experts->gate, experts->up.front()->codes) || !alike(experts->up, experts->up.front()->codes) ||
        !alike(experts->down, experts->down.front()->codes))
      refuse("experts of one layer in different types are not supported");
  } else if (const auto* heads = std::get_if<HeadLinearStep>(&step.op)) {
    if (std::any_of(heads->weights.begin(), heads->weights.end(),
                    [&](const Weight* weight) { return weight->codes != heads->weights.front()->codes; }))
      refuse("heads of one layer in different types are not supported");
  } else if (const auto* conv = std::get_if<ConvStep>(&step.op); conv != nullptr && conv->taps > kMaxTaps) {
    refuse(fmt::format("convolutions over {} tokens are not supported (expected at most {})", conv->taps, kMaxTaps));
  } else if (const auto* recur = std::get_if<RecurStep>(&step.op); recur != nullptr && recur->key_dim > kMaxKeyDim) {
    refuse(fmt::format("keys of {} elements are not supported (expected at most {})", recur->key_dim, kMaxKeyDim));
  }
}

// Norms of several heads together come before heads are taken apart.
bool is_wide(const Norm& norm, int64_t dim) { return norm && norm.group > dim; }

void check_attention(const AttendStep& step) {
  const int64_t dim = std::max(step.key_dim, step.value_dim);
  if (dim > kMaxHeadDim)
    fail(ErrorKind::kDevice,
         fmt::format("cuda: heads are too large (expected at most {} elements, found {})", kMaxHeadDim, dim),
         "--device cpu");
  const auto check_wide = [&](const Norm& norm, const Heads& heads, int64_t head_dim) {
    if (is_wide(norm, head_dim) && (step.norm_after_rotation || heads.stride != head_dim))
      fail(ErrorKind::kDevice,
           "cuda: norms of several heads after their rotation, or of heads apart, are not supported", "--device cpu");
  };
  check_wide(step.q_norm, step.q, step.key_dim);
  check_wide(step.k_norm, step.k, step.key_dim);
  check_wide(step.v_norm, step.v, step.value_dim);
}

class CudaBackend : public Backend {
 public:
  CudaBackend(const Plan& plan, const EngineOptions& options, bool measure_only)
      : plan_(plan),
        options_(options),
        batch_(std::min(
            {options.batch > 0 ? options.batch : kBatchTokens, options.context * options.sequences, kMostBatchTokens})),
        scored_(std::min(kScoredTokens, batch_)),
        layout_(plan, cache_limits(options, batch_)),
        cache_(plan, layout_, options.kv),
        inputs_(plan, options, layout_, batch_, scored_),
        weights_(plan) {
    for_each_attend(plan, check_attention);
    for (const Step& step : plan.steps) check_step(step);
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
    inputs_.allocate();
    scores_host_ = PinnedMemory(size_t(scored_ * score_row().stride) * sizeof(float), "scores");
    found_host_ = PinnedMemory(sizeof(FoundScores), "scores");
    report_host_ = PinnedMemory(report_bytes(), "scores");
    DeviceLayout placed_work(work_memory_.data()), placed_cache(cache_memory_.data());
    lay_out_work(placed_work);
    lay_out_cache(placed_cache);
    place_experts();
    linear_.start(*device_);
    for (const Step& step : plan.steps) prepared_.push_back(prepare(step));
    eight_bits_ = std::any_of(plan.weights.begin(), plan.weights.end(),
                              [&](const Weight& weight) { return linear_.takes_8_bits(weights_.matrix(weight)); });
    device_->wait();
  }

  ~CudaBackend() override {
    // Nothing may be under way when the memory goes.
    if (device_) device_->settle();
  }

  std::string description() const override {
    std::string text =
        fmt::format("cuda {}, {} activations", device_->properties().name, activations_name(activations()));
    if (!linear_.library().empty()) text += ", " + linear_.library();
    return text;
  }
  Activations activations() const override {
    if (options_.activations == Activations::k8Bit && !eight_bits_) return Activations::k16Bit;
    return options_.activations;
  }
  MemoryUse memory() const override { return use_; }
  int64_t batch_tokens() const override { return batch_; }
  int64_t scored_tokens() const override { return scored_; }
  // A CUDA graph holds all of them.
  bool runs_in_parts() const override { return false; }

  void run(const Batch& batch, size_t first, size_t last) override {
    device_->bind_thread();
    inputs_.fill(batch);
    if (!batch.scored.empty()) {
      brought_ = false;
      last_scored_ = batch.scored.size();
    }
    // Few tokens run as a CUDA graph, at the cost of one launch. It is captured the second time, since kernels that are
    // loaded while a stream is captured end the capture.
    const size_t count = batch.tokens.size();
    const bool few = batch.kernels == Kernels::kGenerate
                         ? count <= kMostRecordedTokens
                         : batch.kernels == Kernels::kByCount && count <= kMostGemvTokens;
    if (!few || last - first <= 1 || !scored_are_neighbours(batch)) {
      run_steps(batch, first, last);
    } else {
      const int32_t first_scored = batch.scored.empty() ? 0 : batch.scored.front();
      KnownRun& known =
          runs_[{first, last, count, batch.segments.size() == count, batch.kernels, first_scored, batch.scored.size()}];
      if (!known.seen) {
        run_steps(batch, first, last);
      } else {
        if (known.graph.empty()) known.graph = CudaGraph(*device_, [&] { run_steps(batch, first, last); });
        known.graph.run(*device_);
      }
      known.seen = true;
    }
    device_->wait();
  }

  void read(int64_t token, const View& view, std::span<float> out) override {
    const RowBuffer& row = rows_[size_t(view.row)];
    copy_to_host(device_->stream(), out.data(), row.data + token * row.stride + view.first,
                 size_t(view.cols) * sizeof(float));
    device_->wait();
  }

  void read_row(RowId row, std::span<float> out) override {
    const RowBuffer& from = rows_[size_t(row)];
    const int64_t cols = plan_.rows[size_t(row)].cols;
    const int64_t tokens = int64_t(out.size()) / cols, together = from.stride == cols ? tokens : 1;
    for (int64_t t = 0; t < tokens; t += together)
      copy_to_host(device_->stream(), out.data() + t * cols, from.data + t * from.stride,
                   size_t(together * cols) * sizeof(float));
    device_->wait();
  }
  void write_row(RowId row, std::span<const float> values) override {
    device_->bind_thread();
    const RowBuffer& to = rows_[size_t(row)];
    const int64_t cols = plan_.rows[size_t(row)].cols;
    const int64_t tokens = int64_t(values.size()) / cols, together = to.stride == cols ? tokens : 1;
    for (int64_t t = 0; t < tokens; t += together)
      copy_to_device(device_->stream(), to.data + t * to.stride, values.data() + t * cols,
                     size_t(together * cols) * sizeof(float));
    device_->wait();
  }

  void copy_page(int32_t group, int32_t from, int32_t to) override {
    device_->bind_thread();
    cache_.copy_page(device_->stream(), group, from, to);
  }

  void copy_slot(int32_t from, int32_t to) override {
    device_->bind_thread();
    for_each_fixed_state([&](float* state, int64_t elements) {
      copy_on_device(device_->stream(), state + to * elements, state + from * elements,
                     size_t(elements) * sizeof(float));
    });
  }
  void clear_slot(int32_t slot) override {
    device_->bind_thread();
    for_each_fixed_state([&](float* state, int64_t elements) {
      clear_on_device(device_->stream(), state + slot * elements, size_t(elements) * sizeof(float));
    });
  }

  StateId take_overflow() override {
    uint32_t* const flags = overflow_of(report_host_.data());
    const size_t states = plan_.states.size();
    const auto found = std::find_if(flags, flags + states, [](uint32_t flag) { return flag != 0; });
    if (found == flags + states) return -1;
    const StateId state = StateId(found - flags);
    std::fill_n(flags, states, 0);
    copy_to_device(device_->stream(), overflow_of(report_), flags, states * sizeof(uint32_t));
    device_->wait();
    return state;
  }

  std::span<const float> scores(int64_t index) override {
    device_->bind_thread();
    const RowBuffer& row = score_row();
    if (!brought_) {
      copy_to_host(device_->stream(), scores_host_.data(), row.data, last_scored_ * size_t(row.stride) * sizeof(float));
      device_->wait();
    }
    brought_ = true;
    const auto* const all = reinterpret_cast<const float*>(scores_host_.data());
    return {all + index * row.stride, size_t(plan_.model.vocab)};
  }
  bool scores_finite(int64_t index) override { return best(index).all_finite != 0; }
  TopScores top_scores(int64_t index, size_t count, double temperature) override {
    if (count <= 1) return {{{best(index).token, best(index).score}}};
    if (count > size_t(kMostBest)) return {};
    device_->bind_thread();
    ScoreArgs args = score_args(index, 1);
    args.wanted = int(count);
    if (temperature > 0) args.inverse_temperature = float(std::min(1 / temperature, 1e30));
    find_best_scores(device_->stream(), args);
    copy_to_host(device_->stream(), found_host_.data(), found_, sizeof(FoundScores));
    device_->wait();
    const auto& found = *reinterpret_cast<const FoundScores*>(found_host_.data());
    if (found.count > uint32_t(kMostBest)) return {};
    TopScores out;
    for (uint32_t i = 0; i < found.count; ++i) out.best.push_back({found.token[i].token, found.token[i].score});
    std::sort(out.best.begin(), out.best.end(), better);
    if (temperature > 0) out.mass = double(found.mass);
    return out;
  }

 private:
  static constexpr size_t kMostGemvTokens = LinearDispatch::kMostGemvTokens;

  static bool scored_are_neighbours(const Batch& batch) {
    return batch.scored.empty() || size_t(batch.scored.back() - batch.scored.front()) + 1 == batch.scored.size();
  }

  const RowBuffer& score_row() const { return rows_[size_t(plan_.scores)]; }
  // What every run sends back: the best scores of the scored tokens, then a flag of each state.
  size_t report_bytes() const { return size_t(scored_) * sizeof(BestScore) + plan_.states.size() * sizeof(uint32_t); }
  uint32_t* overflow_of(std::byte* report) const {
    return reinterpret_cast<uint32_t*>(report + size_t(scored_) * sizeof(BestScore));
  }
  const BestScore& best(int64_t index) const { return reinterpret_cast<const BestScore*>(report_host_.data())[index]; }
  ScoreArgs score_args(int64_t first, int rows) const {
    ScoreArgs args;
    args.scores = score_row().data + first * score_row().stride;
    args.stride = score_row().stride;
    args.count = int(plan_.model.vocab);
    args.rows = rows;
    args.best = reinterpret_cast<BestScore*>(report_) + first;
    args.found = found_;
    args.scratch = score_scratch_;
    return args;
  }

  void lay_out_cache(DeviceLayout& layout) {
    cache_.lay_out(layout);
    fixed_.clear();
    for (const State& state : plan_.states)
      fixed_.push_back(layout.take<float>(state_slots(options_) * state.elements));
  }

  template <typename Use>
  void for_each_fixed_state(const Use& use) const {
    for (size_t i = 0; i < fixed_.size(); ++i) {
      if (plan_.states[i].elements > 0) use(fixed_[i], plan_.states[i].elements);
    }
  }

  // The matrices of all banks, once the weights are where they stay.
  void place_experts() {
    std::vector<Matrix> matrices;  // until the copies are done
    size_t count = 0;
    for (const Step& step : plan_.steps) {
      if (const auto* experts = std::get_if<ExpertsStep>(&step.op)) count += 3 * experts->up.size();
      if (const auto* heads = std::get_if<HeadLinearStep>(&step.op)) count += heads->weights.size();
    }
    matrices.reserve(count);
    const auto place = [&](const std::vector<const Weight*>& bank, Matrix* to) {
      if (bank.empty()) return;
      const Matrix* const first = matrices.data() + matrices.size();
      for (const Weight* weight : bank) matrices.push_back(weights_.matrix(*weight));
      copy_to_device(device_->stream(), to, first, bank.size() * sizeof(Matrix));
    };
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (const auto* heads = std::get_if<HeadLinearStep>(&plan_.steps[i].op)) place(heads->weights, experts_[i].up);
      const auto* experts = std::get_if<ExpertsStep>(&plan_.steps[i].op);
      if (experts == nullptr) continue;
      place(experts->gate, experts_[i].gate);
      place(experts->up, experts_[i].up);
      place(experts->down, experts_[i].down);
    }
    device_->wait();
  }

  void lay_out_work(DeviceLayout& layout) {
    inputs_.lay_out(layout);
    rows_.clear();
    for (const Row& row : plan_.rows) {
      const int64_t stride = round_up(row.cols, kPad),
                    tokens = round_up(row.scored ? scored_ : batch_, kLibraryGemmTokens);
      rows_.push_back({layout.take<float>(tokens * stride), stride, row.scored});
    }
    const int64_t few = std::min<int64_t>(kGemvTokens, batch_), tokens = round_up(batch_, kLibraryGemmTokens);
    int64_t partial = 0, counters = 0, wide_q = 0, wide_k = 0, wide_v = 0;
    for_each_attend(plan_, [&](const AttendStep& step) {
      partial = std::max(partial, few * step.heads * kMostSplits * (padded(int(step.value_dim)) + 2));
      counters = std::max(counters, few * step.heads);
      if (is_wide(step.q_norm, step.key_dim)) wide_q = std::max(wide_q, tokens * step.heads * step.key_dim);
      if (is_wide(step.k_norm, step.key_dim)) wide_k = std::max(wide_k, tokens * step.kv_heads * step.key_dim);
      if (is_wide(step.v_norm, step.value_dim)) wide_v = std::max(wide_v, tokens * step.kv_heads * step.value_dim);
    });
    partial_ = layout.take<float>(partial);
    counter_ = layout.take<uint32_t>(counters);
    wide_q_ = layout.take<float>(wide_q);
    wide_k_ = layout.take<float>(wide_k);
    wide_v_ = layout.take<float>(wide_v);
    report_ = layout.take<std::byte>(int64_t(report_bytes()));
    found_ = layout.take<FoundScores>(1);
    score_scratch_ = layout.take<ScoreArgs::Scratch>(scored_);

    int64_t inner = 0, keys = 0;
    experts_.clear();
    for (const Step& step : plan_.steps) {
      PreparedExperts& prepared = experts_.emplace_back();
      if (const auto* experts = std::get_if<ExpertsStep>(&step.op)) {
        inner = std::max(inner, batch_ * experts->chosen() * round_up(experts->width(), kPad));
        for (Matrix** bank : {&prepared.gate, &prepared.up, &prepared.down})
          *bank = layout.take<Matrix>(experts->experts());
      } else if (const auto* heads = std::get_if<HeadLinearStep>(&step.op)) {
        prepared.up = layout.take<Matrix>(heads->heads());
      } else if (const auto* recur = std::get_if<RecurStep>(&step.op)) {
        keys = std::max(keys, batch_ * recur->key_heads * recur->key_dim);
      }
    }
    experts_inner_ = layout.take<float>(inner);
    keys_ = layout.take<float>(keys);
    queries_ = layout.take<float>(keys);

    LinearSizes sizes;
    sizes.tokens = batch_;
    int64_t gathered = 0;
    for (const Step& step : plan_.steps) {
      const auto* linear = std::get_if<LinearStep>(&step.op);
      if (linear == nullptr) continue;
      const bool scored = is_scored(step);
      const int64_t rows = round_up(scored ? scored_ : batch_, kLibraryGemmTokens),
                    cols = round_up(linear->in.cols, kPad);
      sizes.widest = std::max(sizes.widest, linear->in.cols);
      if (scored) gathered = std::max(gathered, rows * cols);
      if (linear->norm || linear->in.cols < plan_.rows[size_t(linear->in.row)].cols)
        sizes.normalized = std::max(sizes.normalized, rows * cols);
      for (const Projection& p : linear->projections) {
        const int64_t floats = rows * round_up(p.weight->rows, kPad);
        if (p.gate != nullptr) sizes.gates = std::max(sizes.gates, floats);
        if (p.add) sizes.added = std::max(sizes.added, floats);
      }
    }
    gathered_ = layout.take<float>(gathered);
    linear_.lay_out(layout, sizes, options_.activations);
  }

  bool is_scored(const Step& step) const { return plan_.rows[size_t(result_of(step).row)].scored; }
  float* at(const View& view) const { return rows_[size_t(view.row)].data + view.first; }
  int64_t stride(const View& view) const { return rows_[size_t(view.row)].stride; }

  PreparedLinear prepare(const Step& step) const {
    PreparedLinear out;
    const auto* linear = std::get_if<LinearStep>(&step.op);
    if (linear == nullptr) return out;
    out.input.x = at(linear->in);
    out.input.stride = stride(linear->in);
    out.input.cols = int(linear->in.cols);
    out.input.zeros_behind = linear->in.first + linear->in.cols == plan_.rows[size_t(linear->in.row)].cols;
    out.input.norm = weights_.norm(linear->norm);
    if (linear->norm.weight != nullptr) out.input.norm_peak = weights_.largest(*linear->norm.weight);
    for (const Projection& p : linear->projections) {
      DeviceProjection& projection = out.projections.emplace_back();
      projection.weight = weights_.matrix(*p.weight, p.bias);
      if (p.gate != nullptr) projection.gate = weights_.matrix(*p.gate, p.gate_bias);
      projection.epilogue = {p.activation, float(p.scale), float(p.softcap), p.add};
      projection.y = at(p.out);
      projection.y_stride = stride(p.out);
    }
    return out;
  }

  // Launches the inputs' copy, steps [first, last) and the copy of the report.
  void run_steps(const Batch& batch, size_t first, size_t last) {
    inputs_.send(device_->stream());
    for (size_t i = first; i < last; ++i) {
      // Timed launches carry the name of their step.
      if (KernelLog* const log = KernelLog::current()) log->set_step(step_name(plan_.steps[i]));
      std::visit([&](const auto& step) { execute(step, i, batch); }, plan_.steps[i].op);
    }
    if ((last == plan_.main_steps() || last == plan_.steps.size()) && !batch.scored.empty())
      find_best_score(device_->stream(), score_args(0, int(batch.scored.size())));
    copy_to_host(device_->stream(), report_host_.data(), report_, report_bytes());
  }

  void execute(const LookupStep& step, size_t, const Batch& batch) {
    LookupArgs args;
    args.table = weights_.matrix(*step.table);
    args.index = inputs_.tokens();
    args.scale = float(step.scale);
    args.y = at(step.out);
    args.y_stride = stride(step.out);
    args.tokens = int(batch.tokens.size());
    look_up(device_->stream(), args);
    if (step.positions == nullptr) return;
    args.table = weights_.matrix(*step.positions);
    args.index = inputs_.positions();
    args.scale = 1;
    args.add = true;
    look_up(device_->stream(), args);
  }

  void execute(const LinearStep&, size_t index, const Batch& batch) {
    const PreparedLinear& prepared = prepared_[index];
    LinearInput input = prepared.input;
    int tokens = int(batch.tokens.size());
    if (is_scored(plan_.steps[index])) {
      tokens = int(batch.scored.size());
      if (tokens == 0) return;
      if (scored_are_neighbours(batch)) {
        input.x += batch.scored.front() * input.stride;
      } else {
        CombineArgs gather;
        gather.y = input.x;
        gather.y_stride = input.stride;
        gather.from = inputs_.scored();
        gather.out = gathered_;
        gather.out_stride = round_up(input.cols, kPad);
        gather.cols = input.cols;
        gather.zeros = int(gather.out_stride) - input.cols;
        gather.tokens = tokens;
        combine(device_->stream(), gather);
        input.x = gathered_;
        input.stride = gather.out_stride;
        input.zeros_behind = true;
      }
    }
    linear_.run(device_->stream(), prepared.projections, input, tokens, batch.kernels);
  }

  void execute(const HeadLinearStep& step, size_t index, const Batch& batch) {
    const RowBuffer &in = rows_[size_t(step.in.row)], &out = rows_[size_t(step.out.row)];
    HeadLinearArgs args;
    args.weight = experts_[index].up;
    args.kind = step.weights.front()->codes;
    args.x = in.data + step.in.first;
    args.x_stride = in.stride;
    args.x_head_stride = step.in.stride;
    args.y = out.data + step.out.first;
    args.y_stride = out.stride;
    args.y_head_stride = step.out.stride;
    args.rows = int(step.rows());
    args.cols = int(step.cols());
    args.kept = int(step.kept);
    args.heads = int(step.heads());
    args.tokens = int(batch.tokens.size());
    multiply_heads(device_->stream(), args);
  }

  void execute(const CombineStep& step, size_t, const Batch& batch) {
    CombineArgs args;
    if (step.x) {
      args.x = at(step.x);
      args.x_stride = stride(step.x);
    }
    args.x_scale = float(step.x_scale);
    args.y = at(step.y);
    args.y_stride = stride(step.y);
    args.y_scale = float(step.y_scale);
    args.norm = weights_.norm(step.norm);
    if (step.gate) {
      args.gate = at(step.gate);
      args.gate_stride = stride(step.gate);
      args.one_gate = step.gate.cols == 1;
    }
    args.activation = step.activation;
    args.out = at(step.out);
    args.out_stride = stride(step.out);
    args.cols = int(step.out.cols);
    args.tokens = int(batch.tokens.size());
    combine(device_->stream(), args);
  }

  void execute(const RouteStep& step, size_t, const Batch& batch) {
    RouteArgs args;
    args.logits = at(step.logits);
    args.stride = stride(step.logits);
    args.experts = int(step.logits.cols);
    args.chosen = int(step.chosen);
    args.groups = int(step.groups);
    args.kept_groups = int(step.kept_groups);
    args.score = step.score;
    args.two_best = step.rank == RouteStep::Rank::kTwoBest;
    args.normalized = step.normalized;
    args.least_sum = float(step.least_sum);
    args.scale = float(step.scale);
    args.bias = weights_.vector(step.bias);
    args.expert_scale = weights_.vector(step.expert_scale);
    args.out = at(step.out);
    args.out_stride = stride(step.out);
    args.tokens = int(batch.tokens.size());
    choose_experts(device_->stream(), args);
  }

  void execute(const ExpertsStep& step, size_t index, const Batch& batch) {
    ExpertsArgs args;
    args.x = at(step.in);
    args.x_stride = stride(step.in);
    args.route = at(step.route);
    args.route_stride = stride(step.route);
    args.gate = step.gate.empty() ? nullptr : experts_[index].gate;
    args.up = experts_[index].up;
    args.down = experts_[index].down;
    args.in_kind = step.up.front()->codes;
    args.out_kind = step.down.front()->codes;
    args.gate_bias = weights_.vector(step.gate_bias);
    args.up_bias = weights_.vector(step.up_bias);
    args.down_bias = weights_.vector(step.down_bias);
    args.activation = step.activation;
    args.limit = float(step.limit);
    args.up_offset = float(step.up_offset);
    args.weighted_input = step.weighted_input;
    args.inner = experts_inner_;
    args.inner_stride = round_up(step.width(), kPad);
    args.out = at(step.out);
    args.out_stride = stride(step.out);
    args.add = step.add;
    args.chosen = int(step.chosen());
    args.width = int(step.width());
    args.cols = int(step.out.cols);
    args.tokens = int(batch.tokens.size());
    run_experts(device_->stream(), args);
  }

  void execute(const ConvStep& step, size_t, const Batch&) {
    ConvArgs args;
    args.x = at(step.in);
    args.x_stride = stride(step.in);
    args.weight = weights_.vector(step.weight);
    args.bias = weights_.vector(step.bias);
    args.activation = step.activation;
    args.state = fixed_[size_t(step.state)];
    args.y = at(step.out);
    args.y_stride = stride(step.out);
    args.segments = inputs_.segments();
    args.taps = int(step.taps);
    args.cols = int(step.in.cols);
    convolve(device_->stream(), args);
  }

  void execute(const RecurStep& step, size_t, const Batch& batch) {
    const auto heads = [&](const Heads& from) {
      return HeadRows{at(View{from.row, from.first, 0}), rows_[size_t(from.row)].stride, from.stride};
    };
    RecurArgs args;
    args.delta = step.kind == RecurStep::Kind::kGatedDelta;
    args.q = heads(step.q);
    args.k = heads(step.k);
    args.v = heads(step.v);
    args.decay = at(step.decay);
    args.decay_stride = stride(step.decay);
    if (step.rate) {
      args.rate = at(step.rate);
      args.rate_stride = stride(step.rate);
    }
    args.a_log = weights_.vector(step.a_log);
    args.decay_bias = weights_.vector(step.decay_bias);
    args.skip = weights_.vector(step.skip);
    args.key_heads_repeat = step.key_heads_repeat;
    args.unit_keys = step.unit_keys;
    args.eps = float(step.eps);
    args.scale = float(step.scale);
    args.keys = keys_;
    args.queries = queries_;
    args.state = fixed_[size_t(step.state)];
    args.y = at(step.out);
    args.y_stride = stride(step.out);
    args.segments = inputs_.segments();
    args.heads = int(step.heads);
    args.key_heads = int(step.key_heads);
    args.key_dim = int(step.key_dim);
    args.value_dim = int(step.value_dim);
    args.tokens = int(batch.tokens.size());
    recur(device_->stream(), args);
  }

  // Heads as the kernels of attention take them; those with a norm of several together are normalized first, into
  // `wide`, and `norm` then says none.
  HeadRows heads_of(const Heads& heads, const Norm& norm, int64_t count, int64_t dim, float* wide, DeviceNorm& left,
                    int tokens) {
    HeadRows out;
    if (!heads) return out;
    const View view{heads.row, heads.first, count * dim};
    out = {at(view), stride(view), heads.stride};
    left = weights_.norm(norm);
    if (!is_wide(norm, dim)) return out;
    CombineArgs args;
    args.y = out.x;
    args.y_stride = out.stride;
    args.norm = left;
    args.out = wide;
    args.out_stride = args.cols = int(view.cols);
    args.tokens = tokens;
    combine(device_->stream(), args);
    left = {};
    return {wide, view.cols, dim};
  }

  AttendArgs attend_args(const AttendStep& step, int tokens) {
    AttendArgs args;
    args.q = heads_of(step.q, step.q_norm, step.heads, step.key_dim, wide_q_, args.q_norm, tokens);
    if (step.stores) {
      args.k = heads_of(step.k, step.k_norm, step.kv_heads, step.key_dim, wide_k_, args.k_norm, tokens);
      args.v = heads_of(step.v, step.v_norm, step.kv_heads, step.value_dim, wide_v_, args.v_norm, tokens);
    }
    DeviceNorm none;
    args.gate = heads_of(step.gate, {}, step.heads, step.value_dim, nullptr, none, tokens);
    args.norm_after_rotation = step.norm_after_rotation;
    args.rotation = inputs_.rotation(step.rope);
    args.rotated_first = int(step.rotated_first);
    args.position = inputs_.positions();
    args.sequence = inputs_.sequences();
    args.cache = cache_.of(step.state);
    args.cache.tables = inputs_.tables(layout_.group_of(step.state));
    args.cache.overflow = overflow_of(report_) + step.state;
    args.heads = int(step.heads);
    args.kv_heads = int(step.kv_heads);
    args.key_dim = int(step.key_dim);
    args.value_dim = int(step.value_dim);
    args.scale = float(step.scale);
    args.softcap = float(step.softcap);
    args.window = int(step.window);
    args.chunk = int(step.chunk);
    args.temperature_beta = float(step.temperature_beta);
    args.temperature_interval = int(step.temperature_interval);
    args.temperature_offset = int(step.temperature_offset);
    args.sinks = weights_.vector(step.sinks);
    args.y = at(step.out);
    args.y_stride = stride(step.out);
    // By the shape of the step alone: a token comes out the same in every batch.
    const int blocks = kBlocksPerProcessor * device_->properties().processors;
    args.splits = std::clamp(
        blocks / (args.kv_heads * attend_tiles(args.heads / args.kv_heads, std::max(args.key_dim, args.value_dim))), 1,
        kMostSplits);
    args.partial = partial_;
    args.counter = counter_;
    return args;
  }

  void execute(const AttendStep& step, size_t index, const Batch& batch) {
    Stream& stream = device_->stream();
    const int tokens = int(batch.tokens.size());
    AttendArgs args = attend_args(step, tokens);
    const Weight* const next = plan_.links[index].next_weight;
    if (tokens == 1 && next != nullptr) {
      // Weights of a later step, for processors that have no keys to look at.
      const Matrix matrix = weights_.matrix(*next);
      args.next = matrix.codes;
      args.next_bytes =
          std::min<int64_t>(matrix.rows * matrix.row_bytes,
                            int64_t(device_->properties().l2_bytes) / kPrefetchShare / kRowAlignment * kRowAlignment);
    }
    const bool tiles = can_attend_in_tiles(args) && options_.activations != Activations::kF32;
    const auto in_tiles = [&](const Segment& segment) {
      if (!tiles || batch.kernels == Kernels::kGenerate) return false;
      return batch.kernels == Kernels::kPrompt || size_t(segment.count) > kMostGemvTokens;
    };
    const auto one_by_one = [&](int first, int end, bool store) {
      for (; first < end; first += kGemvTokens) {
        args.first_token = first;
        args.tokens = std::min(kGemvTokens, end - first);
        attend(stream, args, store);
      }
    };
    // A token that is alone in its sequence is stored by the kernel that looks at its keys.
    const bool alone = batch.segments.size() == batch.tokens.size() && !in_tiles(batch.segments[0]);
    if (alone) return one_by_one(0, tokens, step.stores);
    args.tokens = tokens;
    if (step.stores) store_keys(stream, args);
    int waiting = 0;  // the first token that goes one by one and has not gone
    for (const Segment& segment : batch.segments) {
      if (!in_tiles(segment)) continue;
      one_by_one(waiting, segment.first, false);
      args.first_token = segment.first;
      args.tokens = segment.count;
      attend_in_tiles(stream, args);
      waiting = segment.first + segment.count;
    }
    one_by_one(waiting, tokens, false);
  }

  const Plan& plan_;
  EngineOptions options_;
  const int64_t batch_, scored_;  // tokens at most
  const CacheLayout layout_;
  KvCache cache_;
  CallInputs inputs_;
  std::optional<Device> device_;
  WeightStore weights_;
  MemoryUse use_;

  DeviceMemory work_memory_, cache_memory_;
  PinnedMemory scores_host_, found_host_, report_host_;
  std::vector<RowBuffer> rows_;                 // of the plan's
  std::vector<PreparedLinear> prepared_;        // one a step
  std::vector<PreparedExperts> experts_;        // likewise
  float* experts_inner_ = nullptr;              // see ExpertsArgs
  float *keys_ = nullptr, *queries_ = nullptr;  // see RecurArgs
  std::vector<float*> fixed_;                   // (slots, elements) of each state of fixed size
  float* gathered_ = nullptr;                   // inputs of scored tokens that are no neighbours
  float *wide_q_ = nullptr, *wide_k_ = nullptr, *wide_v_ = nullptr;
  float* partial_ = nullptr;  // see AttendArgs
  uint32_t* counter_ = nullptr;
  std::byte* report_ = nullptr;
  FoundScores* found_ = nullptr;
  ScoreArgs::Scratch* score_scratch_ = nullptr;
  LinearDispatch linear_;
  bool eight_bits_ = false;  // some layers take inputs of 8 bits

  struct KnownRun {
    bool seen = false;
    CudaGraph graph;
  };
  // By the steps, the tokens, whether each has a sequence of its own, and which have scores.
  std::map<std::tuple<size_t, size_t, size_t, bool, Kernels, int32_t, size_t>, KnownRun> runs_;
  size_t last_scored_ = 0;  // tokens of the last batch that have scores
  bool brought_ = false;    // which are on the host
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<CudaBackend>(plan, options, false);
}

MemoryUse account_backend(const Plan& plan, const EngineOptions& options) {
  return CudaBackend(plan, options, true).memory();
}

}  // namespace qgen::QGEN_BACKEND
