#include "cpu/workspace.h"

#include "base/rounding.h"
#include "engine/engine.h"
#include "engine/engine_table.h"

namespace qgen::cpu {
namespace {

constexpr int64_t kBatchTokens = 512;  // that go through the plan together
constexpr int64_t kScoredTokens = 16;  // whose scores are held at once
constexpr int64_t kMaxTaskRows = 1024;
constexpr int64_t kRowsTogether = 8;  // that one token's product may take side by side

}  // namespace

Workspace::Workspace(const Plan& plan, const EngineOptions& options)
    : plan_(plan),
      options_(options),
      target_(find_target(options.target)),
      workers(options.threads > 0 ? options.threads : useful_cpu_threads(plan)),
      batch_tokens(std::min(kBatchTokens, round_up(options.context * options.sequences, 1))),
      scored_tokens(std::min(kScoredTokens, batch_tokens)),
      layout(plan, cache_limits(options, batch_tokens)),
      attention(plan, layout, options, target_, workers, batch_tokens),
      recurrence(plan, target_, state_slots(options), batch_tokens) {
  if (options.shortlist) shortlist_head = qgen::shortlist_head(plan);
  if (shortlist_head) shortlist = std::make_unique<Shortlist>(*shortlist_head.projection, target_, workers);
  for (const Step& step : plan.steps) {
    linear.push_back(make_linear(step));
    experts.push_back(make_experts(step));
    heads.push_back(make_heads(step));
  }
  lay_out();
}

MemoryUse Workspace::use() const {
  size_t copied = shortlist != nullptr ? shortlist->bytes() : 0;
  for (const auto& [weight, kernel] : kernels_) copied += kernel.copied_bytes();
  return {plan_.weight_bytes() + copied, cache_.used(), work_.used()};
}

void Workspace::allocate() {
  for (auto& [key, kernel] : kernels_) kernel.load(*key.weight);
  if (shortlist != nullptr) shortlist->allocate();
  work_.allocate("work space");
  cache_.allocate("key-value cache");
  lay_out();
  attention.load();
  recurrence.load();
}

int64_t Workspace::task_rows(const LinearState& state, int64_t tokens) const {
  const int64_t unit = tokens == 1 ? kRowsTogether : target_.panel_rows;
  if (tokens == 1 && std::ranges::any_of(state.layers, &LinearKernel::has_column_groups))
    return round_up((state.rows + workers - 1) / workers, unit);
  const int64_t wanted = state.rows / (workers * 8);
  return std::clamp(wanted / unit * unit, unit, std::max(unit, kMaxTaskRows / unit * unit));
}

LinearState Workspace::make_linear(const Step& step) {
  LinearState state;
  const auto* layer = std::get_if<LinearStep>(&step.op);
  if (layer == nullptr) return state;
  // Few tokens' scores are wanted: 8 bits would cost precision there and gain nothing.
  const bool scored = is_scored(step);
  const Activations activations =
      scored && options_.activations == Activations::k8Bit ? Activations::k16Bit : options_.activations;
  const auto add = [&](const Weight& weight) {
    state.layers.push_back(kernel_of(weight, activations));
    return state.layers.size() - 1;
  };
  int64_t temporaries = 0;
  for (const Projection& p : layer->projections) {
    LinearState::Part part;
    if (p.gate != nullptr) part.gate_layer = int(add(*p.gate));
    part.layer = add(*p.weight);
    part.first_row = state.rows;
    state.rows += p.weight->rows;
    state.parts.push_back(part);
    temporaries = std::max(temporaries, int64_t{p.gate != nullptr} + int64_t{p.add});
  }
  const size_t index = size_t(&step - plan_.steps.data());
  if (shortlist_head.step_in(index, index + 1)) {
    state.copy = int(state.layers.size());
    state.layers.push_back(&shortlist->kernel());
  }
  const int64_t tokens = scored ? scored_tokens : batch_tokens;
  state.input = std::make_unique<InputForms>(state.layers, tokens, workers);
  for (const int64_t count : {int64_t{1}, tokens})
    temporary_floats_ = std::max(temporary_floats_, temporaries * count * task_rows(state, count));
  return state;
}

const LinearKernel* Workspace::kernel_of(const Weight& weight, Activations activations) {
  const auto [at, added] = kernels_.try_emplace({&weight, activations}, LinearKernel(weight, target_, activations));
  scratch_bytes_ = std::max(scratch_bytes_, scratch_bytes(weight.cols, at->second.matrix().grid_cols));
  return &at->second;
}

std::unique_ptr<ExpertsKernel> Workspace::make_experts(const Step& step) {
  const auto* mixture = std::get_if<ExpertsStep>(&step.op);
  if (mixture == nullptr) return nullptr;
  auto out = std::make_unique<ExpertsKernel>(*mixture, target_, batch_tokens, workers, [&](const Weight& weight) {
    return kernel_of(weight, options_.activations);
  });
  temporary_floats_ = std::max(temporary_floats_, out->temporary_floats());
  return out;
}

std::unique_ptr<HeadLinearKernel> Workspace::make_heads(const Step& step) {
  const auto* layer = std::get_if<HeadLinearStep>(&step.op);
  if (layer == nullptr) return nullptr;
  return std::make_unique<HeadLinearKernel>(
      *layer, target_, workers, [&](const Weight& weight) { return kernel_of(weight, options_.activations); });
}

// Twice: for the sizes, and for where everything lies.
void Workspace::lay_out() {
  attention.lay_out_cache(cache_);
  recurrence.lay_out_states(cache_);
  rows.clear();
  for (const Row& row : plan_.rows) {
    const int64_t stride = padded_cols(row.cols);
    rows.push_back({work_.take<float>((row.scored ? scored_tokens : batch_tokens) * stride), stride});
  }
  attention.lay_out_work(work_);
  recurrence.lay_out_work(work_);
  if (shortlist != nullptr) shortlist->lay_out_work(work_);
  scratch_bytes_ = std::max({scratch_bytes_, attention.scratch_bytes(), lookup_bytes()});
  scratch_stride_ = round_up(scratch_bytes_, 4096);
  temporary_stride_ = round_up(temporary_floats_, 1024);
  scratch_ = work_.take<std::byte>(workers * scratch_stride_);
  temporary_ = work_.take<float>(workers * temporary_stride_);
  // Forms of inputs hold nothing from one step to the next: all lie over each other.
  const size_t begin = work_.used();
  size_t end = begin;
  const auto lay_over = [&](auto& forms) {
    if (forms == nullptr) return;
    work_.go_to(begin);
    forms->lay_out(work_);
    end = std::max(end, work_.used());
  };
  for (LinearState& state : linear) lay_over(state.input);
  for (auto& mixture : experts) lay_over(mixture);
  for (auto& layer : heads) lay_over(layer);
  work_.go_to(end);
}

int64_t Workspace::lookup_bytes() const {
  int64_t most = 0;
  for (const Row& row : plan_.rows) most = std::max(most, row.cols * int64_t(sizeof(double)) * 2);
  return most;
}

}  // namespace qgen::cpu
