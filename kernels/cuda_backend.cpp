#include "kernels/cuda_backend.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"
#include "engine/engine.h"
#include "engine/scores.h"
#include "kernels/batch_fusion.h"
#include "kernels/graph_cache.h"
#include "kernels/kernel_log.h"
#include "kernels/workspace.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr size_t kMostRecordedTokens = 64;
// Blocks of attention that each processor gets.
constexpr int kBlocksPerProcessor = 2;

// Two batches may be on their way, the one that is run and the one that is likely to be run next. What each has for
// itself: its inputs (CallInputs), its scores (scores_of()), and this, what it sends back and the event behind it.
struct Side {
  Side(Device& device, const Workspace& work)
      : report(work.report_bytes(), "scores"),
        found(size_t(work.scored_tokens) * sizeof(FoundScores), "scores"),
        done(device) {}

  PinnedMemory report;
  PinnedMemory found;  // FoundScores of each scored token
  // The choices that `found` was made for, (scored tokens); empty where the batch found none.
  std::vector<TokenChoice> choices;
  Shortlist::Use listed;  // what of the scores is there, of others kNotListed is; none: all are there
  Event done;
};

// A batch on one of these sides.
struct SideBatch : BatchSteps {
  int side = 0;
  bool begun_ahead = false;  // its token is what the batch before found, which only the GPU knows
  Shortlist::Use listed;

  // Whether several of the best scores are wanted of a token, and whether the one that follows is drawn from them.
  bool finds() const {
    return std::any_of(choices.begin(), choices.end(), [](const TokenChoice& c) { return c.count > 1; });
  }
  bool draws() const { return choices.size() == 1 && choices[0].temperature > 0; }
};

class CudaBackend : public Backend {
 public:
  CudaBackend(const Plan& plan, const EngineOptions& options)
      : plan_(plan),
        options_(options),
        device_(options.device_index),
        work_(plan, options),
        sides_{Side(device_, work_), Side(device_, work_)} {
    work_.weights.load(device_, options.scan);
    options_.scan = nullptr;  // it is the caller's
    work_.allocate(device_);
    scores_host_ = PinnedMemory(size_t(work_.scored_tokens * score_row().stride) * sizeof(float), "scores");
    work_.linear.start(device_);
    for (const Step& step : plan.steps) prepared_.push_back(prepare(step));
    if (const ShortlistHead& head = work_.shortlist.head())
      work_.shortlist.load(device_, prepared_[head.steps[0]].projections[0].weight);
    fusion_.emplace(plan, work_, prepared_, [&](const CombineStep& norm, const Step& step) {
      if (norm.y.first % 4 != 0 || (!work_.ends_in_zeros(norm.y) && norm.y.cols % kPad != 0)) return false;
      if (!std::holds_alternative<ExpertsStep>(step.op)) return !work_.is_scored(step);
      return work_.experts_dispatch.takes_norm(
          work_.experts_layer(std::get<ExpertsStep>(step.op), size_t(&step - plan.steps.data())));
    });
    eight_bits_ = std::any_of(plan.weights.begin(), plan.weights.end(), [&](const Weight& weight) {
      return work_.linear.takes_8_bits(work_.weights.matrix(weight));
    });
    device_.wait();
  }

  ~CudaBackend() override {
    // Nothing may be under way when the memory goes.
    device_.settle();
  }

  std::string description() const override {
    std::string text =
        fmt::format("cuda {}, {} activations", device_.properties().name, activations_name(activations()));
    if (!work_.linear.library().empty()) text += ", " + work_.linear.library();
    return text;
  }
  Activations activations() const override {
    if (options_.activations == Activations::k8Bit && !eight_bits_) return Activations::k16Bit;
    return options_.activations;
  }
  MemoryUse memory() const override { return work_.use(); }
  int64_t batch_tokens() const override { return work_.batch_tokens; }
  int64_t scored_tokens() const override { return work_.scored_tokens; }
  // A CUDA graph holds all of them.
  bool runs_in_parts() const override { return false; }
  bool begins_ahead() const override { return true; }

  void run(const Batch& batch, size_t first, size_t last) override {
    device_.bind_thread();
    if (has_begun(batch, first, last)) {
      side_ = 1 - side_;
      is_ahead_ = false;
    } else {
      drop_ahead();
      side_ = 0;
      try {
        begin({{batch, first, last}, side_, false, {}});
      } catch (...) {
        give_up();
        throw;
      }
    }
    if (!batch.scored.empty()) {
      brought_ = false;
      last_scored_ = batch.scored.size();
    }
    is_followed_ = batch.next != nullptr;
    if (is_followed_) {
      try {
        begin({{*batch.next, 0, plan_.main_steps()}, 1 - side_, true, {}});
        is_ahead_ = true;
        ahead_kernels_ = batch.next->kernels;
      } catch (const Error&) {
        // This batch was not asked for yet: its error is thrown when it is. wait() throws errors of the device itself.
        device_.wait();
        if (*report().overflow == 0) clear_overflow();
      }
    }
    sides_[side_].done.wait();
    if (!batch.scored.empty() && sides_[side_].listed) work_.shortlist.end(sides_[side_].listed, side_);
  }

  void read(int64_t token, const View& view, std::span<float> out) override {
    device_.bind_thread();
    const RowBuffer& row = work_.rows[size_t(view.row)];
    const float* data = row.data;
    if (view.row == plan_.scores) {
      score_all();
      data = scores_of(side_);
    }
    copy_to_host(device_.stream(), out.data(), data + token * row.stride + view.first,
                 size_t(view.cols) * sizeof(float));
    device_.wait();
  }

  void read_row(RowId row, std::span<float> out) override {
    device_.bind_thread();
    const RowBuffer& from = work_.rows[size_t(row)];
    const int64_t cols = plan_.rows[size_t(row)].cols;
    const int64_t tokens = int64_t(out.size()) / cols, together = from.stride == cols ? tokens : 1;
    for (int64_t t = 0; t < tokens; t += together)
      copy_to_host(device_.stream(), out.data() + t * cols, from.data + t * from.stride,
                   size_t(together * cols) * sizeof(float));
    device_.wait();
  }
  void write_row(RowId row, std::span<const float> values) override {
    device_.bind_thread();
    const RowBuffer& to = work_.rows[size_t(row)];
    const int64_t cols = plan_.rows[size_t(row)].cols;
    const int64_t tokens = int64_t(values.size()) / cols, together = to.stride == cols ? tokens : 1;
    for (int64_t t = 0; t < tokens; t += together)
      copy_to_device(device_.stream(), to.data + t * to.stride, values.data() + t * cols,
                     size_t(together * cols) * sizeof(float));
    device_.wait();
  }

  void copy_page(int32_t group, int32_t from, int32_t to) override {
    device_.bind_thread();
    drop_ahead();
    work_.cache.copy_page(device_.stream(), group, from, to);
  }

  void copy_slot(int32_t from, int32_t to) override {
    device_.bind_thread();
    drop_ahead();
    for_each_fixed_state([&](float* state, int64_t elements) {
      copy_on_device(device_.stream(), state + to * elements, state + from * elements,
                     size_t(elements) * sizeof(float));
    });
  }
  void clear_slot(int32_t slot) override {
    device_.bind_thread();
    drop_ahead();
    for_each_fixed_state([&](float* state, int64_t elements) {
      clear_on_device(device_.stream(), state + slot * elements, size_t(elements) * sizeof(float));
    });
  }

  bool take_overflow(std::span<StateId> of_tokens) override {
    uint32_t& flag = *report().overflow;
    if (flag == 0) return false;
    flag = 0;
    device_.bind_thread();
    std::vector<uint32_t> marks(of_tokens.size());
    if (!marks.empty())
      copy_to_host(device_.stream(), marks.data(), work_.overflow_of_tokens, marks.size() * sizeof(uint32_t));
    clear_overflow();
    device_.wait();
    is_ahead_ = false;  // its overflows cannot be told from these
    for (size_t i = 0; i < marks.size(); ++i) of_tokens[i] = StateId(marks[i]) - 1;
    return true;
  }

  std::span<const float> scores(int64_t index) override {
    device_.bind_thread();
    score_all();
    const RowBuffer& row = score_row();
    if (!brought_) {
      device_.bring(scores_host_.data(), scores_of(side_), last_scored_ * size_t(row.stride) * sizeof(float));
    }
    brought_ = true;
    const auto* const all = reinterpret_cast<const float*>(scores_host_.data());
    return {all + index * row.stride, size_t(plan_.model.vocab)};
  }
  bool scores_finite(int64_t index) override { return best(index).all_finite != 0; }
  TopScores top_scores(int64_t index, size_t count, double temperature) override {
    if (count <= 1) return {{{best(index).token, best(index).score}}};
    if (count > size_t(kMostBest)) return {};
    Side& side = sides_[side_];
    if (side.listed && (count > side.listed.counts[size_t(index)] || temperature > 0)) return {};
    FoundScores& found = reinterpret_cast<FoundScores*>(side.found.data())[index];
    TokenChoice* const known = size_t(index) < side.choices.size() ? &side.choices[size_t(index)] : nullptr;
    if (known == nullptr || known->count != count || known->mass_temperature != temperature) {
      if (is_followed_) return {};  // the batch behind has the memory for them
      device_.bind_thread();
      ScoreArgs args = score_args(side_, index, 1);
      args.wanted = int(count);
      args.inverse_temperature = draw_settings({.mass_temperature = temperature}).inverse_mass_temperature;
      find_best_scores(device_.stream(), args);
      copy_to_host(device_.stream(), &found, args.found, sizeof(FoundScores));
      device_.wait();
      if (known != nullptr) *known = {.count = count, .mass_temperature = temperature};
    }
    if (found.count > uint32_t(kMostBest)) return {};
    TopScores out;
    for (uint32_t i = 0; i < found.count; ++i) out.best.push_back({found.token[i].token, found.token[i].score});
    std::sort(out.best.begin(), out.best.end(), better);
    if (temperature > 0) out.mass = double(found.mass);
    return out;
  }

 private:
  static constexpr size_t kMostGemvTokens = LinearDispatch::kMostGemvTokens;

  // What batches with the same launches have in common.
  struct RunKey {
    size_t first, last;  // steps
    size_t tokens;
    bool one_each;  // a sequence to each token
    Kernels kernels;
    int32_t first_scored;
    size_t scored;
    int side;
    bool begun_ahead, finds, draws, uses_shortlist;

    auto operator<=>(const RunKey&) const = default;
  };

  // Whether the batch is the one that is on its way already.
  bool has_begun(const Batch& batch, size_t first, size_t last) {
    if (!is_ahead_ || first != 0 || last != plan_.main_steps() || batch.kernels != ahead_kernels_ ||
        batch.tokens.size() != 1 || batch.scored.size() != 1 || batch.tokens[0] != *report().next_token)
      return false;
    work_.inputs.fill(batch, side_);  // whose batch has ended
    return work_.inputs.differ_in_token_alone();
  }
  // What was begun ahead comes to nothing: its keys lie where those of the next token will.
  void drop_ahead() {
    if (!is_ahead_) return;
    is_ahead_ = false;
    Side& side = sides_[1 - side_];
    side.done.wait();
    if (*report_at(side.report.data()).overflow != 0) clear_overflow();
  }
  // A batch that has failed in the middle: some of its kernels may be under way, and may have found an overflow.
  void give_up() noexcept {
    device_.settle();
    try {
      clear_overflow();
    } catch (...) {
      // The error is that of the batch.
    }
  }
  void clear_overflow() {
    clear_on_device(device_.stream(), work_.overflow_of_tokens, size_t(work_.batch_tokens) * sizeof(uint32_t));
    clear_on_device(device_.stream(), report_at(work_.report).overflow, sizeof(uint32_t));
  }

  // Asks for its steps and does not wait for them.
  void begin(SideBatch batch) {
    const auto [first, last] = std::pair(batch.first, batch.last);
    work_.inputs.fill(batch, batch.side);
    Side& side = sides_[batch.side];
    batch.listed = work_.shortlist.begin(batch, first, last);
    if (!batch.scored.empty()) side.choices.clear();
    if (batch.finds()) side.choices.assign(batch.choices.begin(), batch.choices.end());
    // Few tokens run as a CUDA graph.
    const size_t count = batch.tokens.size();
    const bool few = batch.kernels == Kernels::kGenerate
                         ? count <= kMostRecordedTokens
                         : batch.kernels == Kernels::kByCount && count <= kMostGemvTokens;
    if (!few || last - first <= 1 || !scored_are_neighbours(batch)) {
      run_steps(batch);
    } else {
      const int32_t first_scored = batch.scored.empty() ? 0 : batch.scored.front();
      const RunKey key{first,
                       last,
                       count,
                       batch.segments.size() == count,
                       batch.kernels,
                       first_scored,
                       batch.scored.size(),
                       batch.side,
                       batch.begun_ahead,
                       batch.finds(),
                       batch.draws(),
                       bool(batch.listed)};
      graphs_.run(device_, key, [&] { run_steps(batch); });
    }
    side.done.record();
    if (!batch.scored.empty()) side.listed = std::move(batch.listed);
  }

  static bool scored_are_neighbours(const Batch& batch) {
    return batch.scored.empty() || size_t(batch.scored.back() - batch.scored.front()) + 1 == batch.scored.size();
  }

  // Multiplies all rows of the head where the shortlist has left most of them out.
  void score_all() {
    const Shortlist::Use listed = std::exchange(sides_[side_].listed, {});
    if (!listed) return;
    const std::vector<DeviceProjection> head = on_side(prepared_[listed.step].projections, side_);
    work_.linear.run(device_.stream(), head, work_.shortlist.input(listed.step, side_), int(listed.counts.size()));
    device_.wait();
    work_.shortlist.rest();
    brought_ = false;
  }
  // Projections to scores, which are those of side 0, for another.
  std::vector<DeviceProjection> on_side(std::vector<DeviceProjection> scores, int side) const {
    for (DeviceProjection& p : scores) p.y += scores_of(side) - scores_of(0);
    return scores;
  }

  // On side 0.
  const RowBuffer& score_row() const { return work_.rows[size_t(plan_.scores)]; }
  // What lies in work_.report_bytes().
  Report report_at(std::byte* report) const {
    auto* const best = reinterpret_cast<BestScore*>(report);
    auto* const overflow = reinterpret_cast<uint32_t*>(best + work_.scored_tokens);
    return {best, overflow, reinterpret_cast<int32_t*>(overflow + 1)};
  }
  Report report() const { return report_at(sides_[side_].report.data()); }  // of the last batch that was run
  const BestScore& best(int64_t index) const { return report().best[index]; }
  float* scores_of(int side) const { return side == 0 ? score_row().data : work_.next_scores; }
  ScoreArgs score_args(int side, int64_t first, int rows) const {
    ScoreArgs args;
    args.scores = scores_of(side) + first * score_row().stride;
    args.stride = score_row().stride;
    args.count = int(plan_.model.vocab);
    args.rows = rows;
    args.report = report_at(work_.report);
    args.report.best += first;
    args.found = work_.found + first;
    args.scratch = work_.score_scratch + first;
    return args;
  }

  template <typename Use>
  void for_each_fixed_state(const Use& use) const {
    for (size_t i = 0; i < work_.fixed.size(); ++i) {
      if (plan_.states[i].elements > 0) use(work_.fixed[i], plan_.states[i].elements);
    }
  }

  float* at(const View& view) const { return work_.at(view); }
  int64_t stride(const View& view) const { return work_.stride(view); }

  PreparedLinear prepare(const Step& step) const {
    PreparedLinear out;
    const auto* linear = std::get_if<LinearStep>(&step.op);
    if (linear == nullptr) return out;
    out.input = work_.input_of(linear->in, linear->norm);
    for (const Projection& p : linear->projections) {
      DeviceProjection& projection = out.projections.emplace_back();
      projection.weight = work_.weights.matrix(*p.weight, p.bias);
      if (p.gate != nullptr) projection.gate = work_.weights.matrix(*p.gate, p.gate_bias);
      projection.epilogue = {p.activation, float(p.scale), float(p.softcap), p.add};
      projection.y = at(p.out);
      projection.y_stride = stride(p.out);
    }
    return out;
  }

  // Whether its first kernel brings its inputs.
  bool inputs_go_in_passing(const SideBatch& batch) const {
    return std::holds_alternative<LookupStep>(plan_.steps[batch.first].op) &&
           work_.inputs.can_go_in_passing(batch.tokens.size());
  }

  // Launches the steps. Few inputs come with the first one, and a report of scores goes with the last one: a copy takes
  // several us, and the kernel behind it cannot start early.
  void run_steps(const SideBatch& batch) {
    work_.linear.forget_left();
    if (!inputs_go_in_passing(batch)) work_.inputs.send(device_.stream(), batch.side);
    for (size_t i = batch.first; i < batch.last; ++i) {
      // Timed launches carry the name of their step.
      if (KernelLog* const log = KernelLog::current()) log->set_step(step_name(plan_.steps[i]));
      std::visit([&](const auto& step) { execute(step, i, batch); }, plan_.steps[i].op);
    }
    send_back(batch);
  }

  // What the host reads once the batch has ended.
  void send_back(const SideBatch& batch) {
    const Side& side = sides_[batch.side];
    const bool scores = batch.last == plan_.main_steps() || batch.last == plan_.steps.size();
    if (!scores || batch.scored.empty())
      return copy_to_host(device_.stream(), side.report.data(), work_.report, work_.report_bytes());
    ScoreArgs args = score_args(batch.side, 0, int(batch.scored.size()));
    args.host_report = report_at(side.report.data());
    args.host_found = reinterpret_cast<FoundScores*>(side.found.data());
    find_best_score(device_.stream(), args);
    if (!batch.finds()) return;
    args.draw = work_.inputs.draw();
    find_best_scores(device_.stream(), args);
    if (batch.draws()) return draw_token(device_.stream(), args);
    copy_to_host(device_.stream(), side.found.data(), work_.found, batch.choices.size() * sizeof(FoundScores));
  }

  void execute(const LookupStep& step, size_t index, const SideBatch& batch) {
    LookupArgs args;
    args.table = work_.weights.matrix(*step.table);
    args.index = work_.inputs.tokens();
    if (index == batch.first && inputs_go_in_passing(batch)) {
      args.inputs = work_.inputs.in_passing(batch.side);
      args.index = work_.inputs.host_tokens(batch.side);
    }
    if (batch.begun_ahead) args.index = report_at(work_.report).next_token;
    args.scale = float(step.scale);
    args.y = at(step.out);
    args.y_stride = stride(step.out);
    args.tokens = int(batch.tokens.size());
    look_up(device_.stream(), args);
    if (step.positions == nullptr) return;
    args.inputs = {};
    args.table = work_.weights.matrix(*step.positions);
    args.index = work_.inputs.positions();
    args.scale = 1;
    args.add = true;
    look_up(device_.stream(), args);
  }

  void execute(const LinearStep& step, size_t index, const SideBatch& batch) {
    const PreparedLinear& prepared = prepared_[index];
    LinearInput input = prepared.input;
    if (const CombineStep* const norm = fusion_->norm_of(index, batch)) input = work_.input_of(norm->y, norm->norm);
    std::span<const DeviceProjection> projections = prepared.projections;
    std::vector<DeviceProjection> changed;
    if (batch.side != 0 && step.projections.front().out.row == plan_.scores) {
      changed = on_side(prepared.projections, batch.side);
      projections = changed;
    }
    if (const CombineStep* const sum = fusion_->sum_of(index, batch)) {
      changed = prepared.projections;
      changed[0].y = at(sum->out);
      changed[0].y_stride = stride(sum->out);
      changed[0].epilogue.add = true;
      input.token_gate = at(sum->gate);
      input.token_gate_stride = stride(sum->gate);
      projections = changed;
    }
    int tokens = int(batch.tokens.size());
    if (work_.is_scored(plan_.steps[index])) {
      tokens = int(batch.scored.size());
      if (tokens == 0) return;
      if (scored_are_neighbours(batch)) {
        input.x += batch.scored.front() * input.stride;
      } else {
        CombineArgs gather;
        gather.y = input.x;
        gather.y_stride = input.stride;
        gather.from = work_.inputs.scored();
        gather.out = work_.gathered;
        gather.out_stride = round_up(input.cols, kPad);
        gather.cols = input.cols;
        gather.zeros = int(gather.out_stride) - input.cols;
        gather.tokens = tokens;
        combine(device_.stream(), gather);
        input.x = work_.gathered;
        input.stride = gather.out_stride;
        input.zeros_behind = true;
      }
    }
    if (batch.listed && index == batch.listed.step) {
      input = work_.linear.input_of_gemv(device_.stream(), input, tokens);
      return work_.shortlist.find(device_.stream(), index, projections[0], input, tokens,
                                  batch.finds() ? work_.inputs.draw() : nullptr, batch.side);
    }
    const Beside beside = {index > 0 && fusion_->runs_beside_next(index - 1, batch),
                           fusion_->runs_beside_next(index, batch)};
    work_.linear.run(device_.stream(), projections, input, tokens, batch.kernels, beside,
                     fusion_->leaves_gate(index, batch));
  }

  void execute(const HeadLinearStep& step, size_t index, const Batch& batch) {
    const RowBuffer &in = work_.rows[size_t(step.in.row)], &out = work_.rows[size_t(step.out.row)];
    HeadLinearArgs args;
    args.weight = work_.experts[index].up;
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
    const ExpertBanks& banks = work_.experts[index];
    work_.experts_dispatch.run_heads(device_.stream(), args, banks.up_like, banks.on_tensor_cores, batch.kernels);
  }

  void execute(const CombineStep& step, size_t index, const SideBatch& batch) {
    if (fusion_->is_left_out(index, batch)) return;
    CombineArgs args;
    if (step.x) {
      args.x = at(step.x);
      args.x_stride = stride(step.x);
    }
    args.x_scale = float(step.x_scale);
    args.y = at(step.y);
    args.y_stride = stride(step.y);
    args.y_scale = float(step.y_scale);
    args.norm = work_.weights.norm(step.norm);
    if (step.gate) {
      args.gate = at(step.gate);
      args.gate_stride = stride(step.gate);
      args.gate_span = int(step.out.cols / step.gate.cols);
    }
    args.activation = step.activation;
    args.out = at(step.out);
    args.out_stride = stride(step.out);
    args.cols = int(step.out.cols);
    args.tokens = int(batch.tokens.size());
    combine(device_.stream(), args);
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
    args.bias = work_.weights.vector(step.bias);
    args.expert_scale = work_.weights.vector(step.expert_scale);
    args.out = at(step.out);
    args.out_stride = stride(step.out);
    args.tokens = int(batch.tokens.size());
    choose_experts(device_.stream(), args);
  }

  void execute(const ExpertsStep& step, size_t index, const SideBatch& batch) {
    ExpertsLayer layer = work_.experts_layer(step, index);
    if (const CombineStep* const norm = fusion_->norm_of(index, batch)) {
      const LinearInput input = work_.input_of(norm->y, norm->norm);
      layer.in.x = input.x;
      layer.in.x_stride = input.stride;
      layer.in.norm = input.norm.weight;
      layer.in.norm_eps = input.norm.eps;
    }
    work_.experts_dispatch.run(device_.stream(), layer, int(batch.tokens.size()), batch.kernels);
  }

  void execute(const ConvStep& step, size_t index, const SideBatch& batch) {
    if (fusion_->conv_of(index + 1, batch) == nullptr) convolve(device_.stream(), conv_args(step, batch));
  }
  ConvArgs conv_args(const ConvStep& step, const Batch& batch) const {
    ConvArgs args;
    args.x = at(step.in);
    args.x_stride = stride(step.in);
    args.weight = work_.weights.vector(step.weight);
    args.bias = work_.weights.vector(step.bias);
    args.activation = step.activation;
    args.state = work_.fixed[size_t(step.state)];
    args.y = at(step.out);
    args.y_stride = stride(step.out);
    args.segments = work_.inputs.segments();
    args.taps = int(step.taps);
    args.cols = int(step.in.cols);
    args.tokens = int(batch.tokens.size());
    return args;
  }

  void execute(const RecurStep& step, size_t index, const SideBatch& batch) {
    const auto heads = [&](const Heads& from) {
      return HeadRows{at(View{from.row, from.first, 0}), work_.rows[size_t(from.row)].stride, from.stride};
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
    args.a_log = work_.weights.vector(step.a_log);
    args.decay_bias = work_.weights.vector(step.decay_bias);
    args.skip = work_.weights.vector(step.skip);
    args.key_heads_repeat = step.key_heads_repeat;
    args.unit_keys = step.unit_keys;
    args.eps = float(step.eps);
    args.scale = float(step.scale);
    args.keys = work_.keys;
    args.queries = work_.queries;
    args.rates = work_.rates;
    args.products = work_.key_products;
    args.solved = work_.solved;
    args.state = work_.fixed[size_t(step.state)];
    args.y = at(step.out);
    args.y_stride = stride(step.out);
    if (const ConvStep* const conv = fusion_->conv_of(index, batch)) args.conv = conv_args(*conv, batch);
    args.counter = work_.recur_counter;
    if (const CombineStep* const gate = fusion_->gate_of(index, batch)) {
      args.norm = work_.weights.norm(gate->norm);
      args.gate = {at(gate->gate), stride(gate->gate), step.value_dim};
      args.gate_silu = gate->activation == Activation::kSilu;
    }
    args.segments = work_.inputs.segments();
    args.heads = int(step.heads);
    args.key_heads = int(step.key_heads);
    args.key_dim = int(step.key_dim);
    args.value_dim = int(step.value_dim);
    args.tokens = int(batch.tokens.size());
    args.in_chunks = work_.has_chunks(step) && batch.kernels == Kernels::kByCount && batch.segments.size() == 1 &&
                     size_t(args.tokens) > kMostGemvTokens;
    recur(device_.stream(), args);
  }

  // Heads as the kernels of attention take them; those with a norm of several together are normalized first, into
  // `wide`, and `norm` then says none.
  HeadRows heads_of(const Heads& heads, const Norm& norm, int64_t count, int64_t dim, float* wide, DeviceNorm& left,
                    int tokens) {
    HeadRows out;
    if (!heads) return out;
    const View view{heads.row, heads.first, count * dim};
    out = {at(view), stride(view), heads.stride};
    left = work_.weights.norm(norm);
    if (!is_wide(norm, dim)) return out;
    CombineArgs args;
    args.y = out.x;
    args.y_stride = out.stride;
    args.norm = left;
    args.out = wide;
    args.out_stride = args.cols = int(view.cols);
    args.tokens = tokens;
    combine(device_.stream(), args);
    left = {};
    return {wide, view.cols, dim};
  }

  AttendArgs attend_args(const AttendStep& step, int tokens) {
    AttendArgs args;
    args.q = heads_of(step.q, step.q_norm, step.heads, step.key_dim, work_.wide_q, args.q_norm, tokens);
    if (step.stores) {
      args.k = heads_of(step.k, step.k_norm, step.kv_heads, step.key_dim, work_.wide_k, args.k_norm, tokens);
      args.v = heads_of(step.v, step.v_norm, step.kv_heads, step.value_dim, work_.wide_v, args.v_norm, tokens);
    }
    DeviceNorm none;
    args.gate = heads_of(step.gate, {}, step.heads, step.value_dim, nullptr, none, tokens);
    args.norm_after_rotation = step.norm_after_rotation;
    args.rotation = work_.inputs.rotation(step.rope);
    args.rotated_first = int(step.rotated_first);
    args.position = work_.inputs.positions();
    args.sequence = work_.inputs.sequences();
    args.cache = work_.cache.of(step.state);
    args.cache.tables = work_.inputs.tables(work_.layout.group_of(step.state));
    args.cache.overflow = report_at(work_.report).overflow;
    args.cache.overflow_of_tokens = work_.overflow_of_tokens;
    args.cache.overflow_mark = uint32_t(step.state) + 1;
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
    args.sinks = work_.weights.vector(step.sinks);
    args.y = at(step.out);
    args.y_stride = stride(step.out);
    // By the shape of the step alone: a token comes out the same in every batch.
    const int blocks = kBlocksPerProcessor * device_.properties().processors;
    const int tiles = query_tiles(args.cache.kind, args.heads / args.kv_heads, std::max(args.key_dim, args.value_dim));
    args.splits = std::clamp(blocks / (args.kv_heads * tiles), 1, Workspace::kMostSplits);
    args.partial = work_.partial;
    args.counter = work_.counter;
    return args;
  }

  void execute(const AttendStep& step, size_t index, const SideBatch& batch) {
    Stream& stream = device_.stream();
    const int tokens = int(batch.tokens.size());
    AttendArgs args = attend_args(step, tokens);
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
    if (std::all_of(batch.segments.begin(), batch.segments.end(), in_tiles)) {
      // BF16 holds any number. Values in F16 need no factor, and but for rounding what they are mixed to is no larger;
      // means below 2^-14 lose bits, as the values do. Gates may make them as small as they like.
      const Rounded to = fusion_->rounds_for_next(index, batch);
      if (to == Rounded::kBf16 || (to == Rounded::kF16 && args.cache.kind == CacheKind::kF16 && !step.gate)) {
        args.rounds_to = to;
        args.rounded = work_.linear.leave_rounded(prepared_[index + 1].input, to);
      }
    }
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
  Device device_;
  Workspace work_;
  Side sides_[2];
  int side_ = 0;              // of the last batch that was run
  bool is_ahead_ = false;     // the other side's batch is on its way, and may be the next one
  bool is_followed_ = false;  // a batch was begun behind the last one that was run: the report on the device is its
  Kernels ahead_kernels_ = Kernels::kByCount;
  PinnedMemory scores_host_;
  std::vector<PreparedLinear> prepared_;  // one a step
  std::optional<BatchFusion> fusion_;
  bool eight_bits_ = false;  // some layers take inputs of 8 bits

  GraphCache<RunKey> graphs_;
  size_t last_scored_ = 0;  // tokens of the last batch that have scores
  bool brought_ = false;    // which are on the host
};

}  // namespace

std::unique_ptr<Backend> make_backend(const Plan& plan, const EngineOptions& options) {
  return std::make_unique<CudaBackend>(plan, options);
}

MemoryUse account_backend(const Plan& plan, const EngineOptions& options) { return Workspace(plan, options).use(); }

}  // namespace qgen::QGEN_BACKEND
