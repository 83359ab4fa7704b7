#include "kernels/workspace.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"
#include "engine/engine.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr int64_t kBatchTokens = 2048;       // of a prompt that go through the plan together
constexpr int64_t kMostBatchTokens = 65535;  // a grid's second dimension
constexpr int64_t kScoredTokens = LinearDispatch::kMostGemvTokens;
// Where there are so many sequences, the head is read once for the next tokens of all.
constexpr int64_t kMostScoredTokens = SplitGemmArgs::kMostTokens;

template <typename Use>
void for_each_attend(const Plan& plan, const Use& use) {
  for (const Step& step : plan.steps) {
    if (const auto* attend = std::get_if<AttendStep>(&step.op)) use(*attend);
  }
}

[[noreturn]] void refuse(const std::string& problem) {
  fail(ErrorKind::kDevice, fmt::format("cuda: {}", problem), "--device cpu");
}

// What the kernels of mixtures and recurrences cannot do.
void check_step(const Step& step) {
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

void check_attention(const AttendStep& step) {
  const int64_t dim = std::max(step.key_dim, step.value_dim);
  if (dim > kMaxHeadDim)
    refuse(fmt::format("heads are too large (expected at most {} elements, found {})", kMaxHeadDim, dim));
  const auto check_wide = [&](const Norm& norm, const Heads& heads, int64_t head_dim) {
    if (is_wide(norm, head_dim) && (step.norm_after_rotation || heads.stride != head_dim))
      refuse("norms of several heads after their rotation, or of heads apart, are not supported");
  };
  check_wide(step.q_norm, step.q, step.key_dim);
  check_wide(step.k_norm, step.k, step.key_dim);
  check_wide(step.v_norm, step.v, step.value_dim);
}

int64_t most_tokens(const EngineOptions& options) {
  return std::min(
      {options.batch > 0 ? options.batch : kBatchTokens, options.context * options.sequences, kMostBatchTokens});
}

}  // namespace

Workspace::Workspace(const Plan& plan, const EngineOptions& options)
    : plan_(plan),
      batch_tokens(most_tokens(options)),
      scored_tokens(std::min(std::max(kScoredTokens, std::min(options.sequences, kMostScoredTokens)), batch_tokens)),
      layout(plan, cache_limits(options, batch_tokens)),
      cache(plan, layout, options.kv),
      inputs(plan, options, layout, batch_tokens, scored_tokens),
      weights(plan),
      shortlist(options.shortlist ? Shortlist::head_of(plan) : ShortlistHead()),
      options_(options) {
  for_each_attend(plan, check_attention);
  for (const Step& step : plan.steps) check_step(step);
  DeviceLayout work, states;
  lay_out_work(work);
  lay_out_cache(states);
  // The spare slot is not for any token to come.
  const size_t spare = has_spare_slot(plan) ? fixed_state_bytes(plan) : 0;
  cache_bytes_ = states.bytes();
  work_bytes_ = work.bytes();
  use_ = {weights.bytes() + shortlist.bytes(), cache_bytes_ - spare, work_bytes_ + spare};
}

LinearInput Workspace::input_of(const View& in, const Norm& norm) const {
  const RowBuffer& row = rows[size_t(in.row)];
  LinearInput input;
  input.x = row.data + in.first;
  input.stride = row.stride;
  input.cols = int(in.cols);
  input.zeros_behind = ends_in_zeros(in);
  input.norm = weights.norm(norm);
  if (norm.weight != nullptr) input.norm_peak = weights.largest(*norm.weight);
  return input;
}

ExpertsLayer Workspace::experts_layer(const ExpertsStep& step, size_t index) const {
  const ExpertBanks& banks = experts[index];
  ExpertsLayer layer;
  layer.experts = int(step.experts());
  layer.on_tensor_cores = banks.on_tensor_cores;
  layer.in.x = at(step.in);
  layer.in.x_stride = stride(step.in);
  layer.padded_x = step.in.first % 4 == 0 && (ends_in_zeros(step.in) || step.in.cols % kPad == 0);
  ExpertsProduct& in = layer.in.product;
  in.gate = step.gate.empty() ? nullptr : banks.gate;
  in.up = banks.up;
  in.like = banks.up_like;
  in.gate_bias = weights.vector(step.gate_bias);
  in.up_bias = weights.vector(step.up_bias);
  in.route = at(step.route);
  in.route_stride = stride(step.route);
  in.chosen = int(step.chosen());
  in.weighted_input = step.weighted_input;
  in.activation = step.activation;
  in.limit = float(step.limit);
  in.up_offset = float(step.up_offset);
  layer.out.up = banks.down;
  layer.out.like = banks.down_like;
  layer.out.up_bias = weights.vector(step.down_bias);
  layer.out.route = in.route;
  layer.out.route_stride = in.route_stride;
  layer.out.chosen = in.chosen;
  layer.sum.route = step.weighted_input ? nullptr : in.route;
  layer.sum.route_stride = in.route_stride;
  layer.sum.chosen = in.chosen;
  layer.sum.out = at(step.out);
  layer.sum.out_stride = stride(step.out);
  layer.sum.add = step.add;
  layer.sum.cols = int(step.out.cols);
  return layer;
}

void Workspace::allocate(Device& device) {
  work_memory_ = DeviceMemory(device, work_bytes_, "work space");
  cache_memory_ = DeviceMemory(device, cache_bytes_, "key-value cache");
  inputs.allocate();
  DeviceLayout work(work_memory_.data()), states(cache_memory_.data());
  lay_out_work(work);
  lay_out_cache(states);
  place_experts(device);
}

void Workspace::lay_out_cache(DeviceLayout& memory) {
  cache.lay_out(memory);
  fixed.clear();
  const int64_t slots = state_slots(options_) + (has_spare_slot(plan_) ? 1 : 0);
  for (const State& state : plan_.states) fixed.push_back(memory.take<float>(slots * state.elements));
}

void Workspace::lay_out_work(DeviceLayout& memory) {
  inputs.lay_out(memory);
  rows.clear();
  for (const Row& row : plan_.rows) {
    const int64_t stride = round_up(row.cols, kPad),
                  tokens = round_up(row.scored ? scored_tokens : batch_tokens, kLibraryGemmTokens);
    rows.push_back({memory.take<float>(tokens * stride), stride, row.scored});
  }
  next_scores = memory.take<float>(rows[size_t(plan_.scores)].stride);
  lay_out_attention(memory);
  report = memory.take<std::byte>(int64_t(report_bytes()));
  overflow_of_tokens = memory.take<uint32_t>(batch_tokens);
  found = memory.take<FoundScores>(scored_tokens);
  score_scratch = memory.take<ScoreArgs::Scratch>(scored_tokens);
  lay_out_experts(memory);
  lay_out_linear(memory);
}

void Workspace::lay_out_attention(DeviceLayout& memory) {
  const int64_t few = std::min<int64_t>(kGemvTokens, batch_tokens), tokens = round_up(batch_tokens, kLibraryGemmTokens);
  int64_t parts = 0, counters = 0, q = 0, k = 0, v = 0;
  for_each_attend(plan_, [&](const AttendStep& step) {
    parts = std::max(parts, few * step.heads * kMostSplits * (padded(int(step.value_dim)) + 2));
    counters = std::max(counters, few * step.heads);
    if (is_wide(step.q_norm, step.key_dim)) q = std::max(q, tokens * step.heads * step.key_dim);
    if (is_wide(step.k_norm, step.key_dim)) k = std::max(k, tokens * step.kv_heads * step.key_dim);
    if (is_wide(step.v_norm, step.value_dim)) v = std::max(v, tokens * step.kv_heads * step.value_dim);
  });
  partial = memory.take<float>(parts);
  counter = memory.take<uint32_t>(counters);
  wide_q = memory.take<float>(q);
  wide_k = memory.take<float>(k);
  wide_v = memory.take<float>(v);
}

// Mixtures, recurrences and layers of separate heads.
void Workspace::lay_out_experts(DeviceLayout& memory) {
  int64_t of_keys = 0, of_rates = 0, of_products = 0, of_solved = 0, key_heads = 0;
  const int64_t chunks = recur_chunks(batch_tokens);
  std::vector<ExpertsSizes> mixtures;
  std::vector<HeadsSizes> heads;
  experts.clear();
  for (const Step& step : plan_.steps) {
    ExpertBanks& banks = experts.emplace_back();
    if (const auto* mixture = std::get_if<ExpertsStep>(&step.op)) {
      mixtures.push_back(
          {mixture->experts(), mixture->chosen(), mixture->in.cols, mixture->width(), mixture->out.cols});
      for (Matrix** bank : {&banks.gate, &banks.up, &banks.down}) *bank = memory.take<Matrix>(mixture->experts());
    } else if (const auto* separate = std::get_if<HeadLinearStep>(&step.op)) {
      heads.push_back({separate->heads(), separate->cols()});
      banks.up = memory.take<Matrix>(separate->heads());
    } else if (const auto* recur = std::get_if<RecurStep>(&step.op)) {
      key_heads = std::max(key_heads, recur->key_heads);
      if (!has_chunks(*recur)) continue;
      of_keys = std::max(of_keys, batch_tokens * recur->key_heads * recur->key_dim);
      of_rates = std::max(of_rates, batch_tokens * recur->heads * 2);
      of_products = std::max(of_products, chunks * recur->key_heads * kRecurTileFloats);
      if (recur->kind == RecurStep::Kind::kGatedDelta)
        of_solved = std::max(of_solved, chunks * recur->heads * kRecurTileFloats);
    }
  }
  experts_dispatch.lay_out(memory, mixtures, heads, batch_tokens, options_.activations);
  keys = memory.take<float>(of_keys);
  queries = memory.take<float>(of_keys);
  rates = memory.take<float>(of_rates);
  key_products = memory.take<float>(of_products);
  solved = memory.take<float>(of_solved);
  recur_counter = memory.take<uint32_t>(key_heads * options_.sequences);
}

void Workspace::lay_out_linear(DeviceLayout& memory) {
  LinearSizes sizes;
  sizes.tokens = batch_tokens;
  sizes.many_sequences = options_.sequences > kGemvTokens;
  int64_t of_gathered = 0;
  for (const Step& step : plan_.steps) {
    const auto* layer = std::get_if<LinearStep>(&step.op);
    if (layer == nullptr) continue;
    const bool scored = is_scored(step);
    const int64_t tokens = round_up(scored ? scored_tokens : batch_tokens, kLibraryGemmTokens),
                  cols = round_up(layer->in.cols, kPad);
    sizes.widest = std::max(sizes.widest, layer->in.cols);
    if (scored) of_gathered = std::max(of_gathered, tokens * cols);
    // A norm may be of another step, which is left out (PassedNorms).
    const bool passed = std::any_of(plan_.steps.begin(), plan_.steps.end(), [&](const Step& other) {
      const auto* combine = std::get_if<CombineStep>(&other.op);
      return combine != nullptr && combine->norm && combine->out.row == layer->in.row;
    });
    if (layer->norm || passed || layer->in.cols < plan_.rows[size_t(layer->in.row)].cols)
      sizes.normalized = std::max(sizes.normalized, tokens * cols);
    for (const Projection& p : layer->projections) {
      const int64_t floats = tokens * round_up(p.weight->rows, kPad);
      if (p.gate != nullptr) sizes.gates = std::max(sizes.gates, floats);
      if (p.add) sizes.added = std::max(sizes.added, floats);
    }
  }
  gathered = memory.take<float>(of_gathered);
  linear.lay_out(memory, sizes, options_.activations);
}

// The matrices of all banks, once the weights are where they stay.
void Workspace::place_experts(Device& device) {
  std::vector<Matrix> matrices;  // until the copies are done
  size_t count = 0;
  for (const Step& step : plan_.steps) {
    if (const auto* mixture = std::get_if<ExpertsStep>(&step.op)) count += 3 * mixture->up.size();
    if (const auto* heads = std::get_if<HeadLinearStep>(&step.op)) count += heads->weights.size();
  }
  matrices.reserve(count);
  const auto place = [&](const std::vector<const Weight*>& bank, Matrix* to) {
    if (bank.empty()) return;
    const Matrix* const first = matrices.data() + matrices.size();
    for (const Weight* weight : bank) matrices.push_back(weights.matrix(*weight));
    copy_to_device(device.stream(), to, first, bank.size() * sizeof(Matrix));
  };
  // Kernels take all but pointers and row_origin from one of them.
  const auto take_tensor_cores = [](std::span<const Matrix> bank) {
    const auto shape = [](const Matrix& w) {
      return std::tuple(w.rows, w.cols, w.row_bytes, w.group_rows, w.group_cols, w.grid_cols, w.super_shift);
    };
    return std::all_of(bank.begin(), bank.end(), [&](const Matrix& w) {
      return has_expert_kernels(w) && alike(w, bank.front()) && shape(w) == shape(bank.front());
    });
  };
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    ExpertBanks& banks = experts[i];
    const size_t first = matrices.size();
    if (const auto* heads = std::get_if<HeadLinearStep>(&plan_.steps[i].op)) {
      place(heads->weights, banks.up);
      banks.up_like = matrices.back();
      banks.on_tensor_cores = take_tensor_cores(std::span(matrices).subspan(first));
    }
    const auto* mixture = std::get_if<ExpertsStep>(&plan_.steps[i].op);
    if (mixture == nullptr) continue;
    place(mixture->gate, banks.gate);
    place(mixture->up, banks.up);
    place(mixture->down, banks.down);
    const std::span<const Matrix> all = std::span(matrices).subspan(first), downs = all.last(mixture->down.size());
    const std::span<const Matrix> ins = all.first(all.size() - downs.size());
    banks.up_like = ins.back();
    banks.down_like = downs.back();
    banks.on_tensor_cores = take_tensor_cores(ins) && take_tensor_cores(downs);
  }
  device.wait();
}

}  // namespace qgen::QGEN_BACKEND
