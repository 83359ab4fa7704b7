#include "model/plan_builder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/transpose.h"

namespace qgen {
namespace {

Vector given_vector(std::string name, std::vector<float> values) {
  Vector out;
  out.name = std::move(name);
  out.size = int64_t(values.size());
  out.given = std::move(values);
  return out;
}

}  // namespace

std::pair<Names, int64_t> draft_names(const Description& model) {
  Names names = model.names;
  const bool apart = !model.draft->prefix.empty() && !names.prefix().empty();
  if (apart) names.set_prefix(model.draft->prefix);
  return {names, apart ? 0 : int64_t(model.layers.size())};
}

void PlanBuilder::run(bool draft_head) {
  plan_.ropes = model_.ropes;
  bind_rope_factors();
  residual_ = row("residual", model_.hidden);
  const Weight* embed = matrix(model_.names.of(Role::kEmbed), model_.vocab, model_.hidden);
  LookupStep lookup;
  lookup.table = embed;
  lookup.scale = model_.embed_scale;
  if (model_.positions > 0)
    lookup.positions = matrix(model_.names.of(Role::kPositions), model_.positions, model_.hidden);
  lookup.out = residual_;
  plan_.steps.push_back({-1, lookup});
  kv_states_.assign(model_.layers.size() + 1, -1);
  if (model_.per_layer_width > 0) add_per_layer_inputs();
  for (layer_ = 0; layer_ < int64_t(model_.layers.size()); ++layer_) {
    add_layer(model_.layers[size_t(layer_)]);
    if (model_.layer_scales) add_layer_scale();
  }
  const Projection scores = add_head(embed, draft_head);
  if (draft_head) add_draft_head(embed, scores);
}

View PlanBuilder::row(const std::string& name, int64_t cols, bool scored) {
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    if (plan_.rows[i].name == name && plan_.rows[i].cols == cols) return {RowId(i), 0, cols};
  }
  plan_.rows.push_back({name, cols, scored});
  return {RowId(plan_.rows.size() - 1), 0, cols};
}

void PlanBuilder::add(LinearStep step) {
  if (smoothing_.empty()) return add<LinearStep>(std::move(step));
  smoothing_.arrange(
      std::move(step), [&](const std::string& name, int64_t cols, bool scored) { return row(name, cols, scored); },
      [&](Vector vector) { return keep(std::move(vector)); }, [&](auto op) { add<decltype(op)>(std::move(op)); });
}

// Parallel branches read the residual before any of them adds to it.
void PlanBuilder::add_layer(const std::vector<BlockSpec>& blocks) {
  for (auto block = blocks.begin(); block != blocks.end();) {
    const auto next = std::find_if(block + 1, blocks.end(), [](const BlockSpec& other) { return !other.parallel; });
    std::vector<View> begun;
    for (auto branch = block; branch != next; ++branch)
      begun.push_back(std::visit([&](const auto& mixer) { return begin(*branch, mixer); }, branch->mixer));
    for (size_t i = 0; block != next; ++block, ++i)
      std::visit([&](const auto& mixer) { end(*block, mixer, begun[i]); }, block->mixer);
  }
}

Norm PlanBuilder::norm_before(const BlockSpec& block) {
  if (block.before) return shared_norm_ = norm(block.before->spec, module(block.before->role), model_.hidden);
  return block.parallel ? shared_norm_ : Norm();
}

void PlanBuilder::add_inputs(const BlockSpec& block, std::vector<Projection> projections) {
  const Norm before = norm_before(block);
  if (block.parallel && !block.before && smoothing_.empty()) {
    auto& shared = std::get<LinearStep>(plan_.steps.back().op).projections;
    shared.insert(shared.end(), projections.begin(), projections.end());
    return;
  }
  LinearStep step;
  step.in = residual_;
  step.norm = before;
  step.projections = std::move(projections);
  add(std::move(step));
}

StateId PlanBuilder::fixed_state(int64_t elements) {
  State state;
  state.kind = State::Kind::kFixed;
  state.elements = elements;
  plan_.states.push_back(state);
  return StateId(plan_.states.size() - 1);
}

void PlanBuilder::add_output(const BlockSpec& block, Projection projection, const View& in) {
  LinearStep output;
  output.in = in;
  if (!block.after) {
    projection.out = residual_;
    projection.add = true;
    projection.scale = block.scale;
    output.projections = {projection};
    add(std::move(output));
    return;
  }
  const View branch = row("branch", model_.hidden);
  output.projections = {to(projection, branch)};
  add(std::move(output));
  add_branch(block, branch);
}

void PlanBuilder::add_branch(const BlockSpec& block, const View& branch) {
  CombineStep combine;
  combine.x = combine.out = residual_;
  combine.y = branch;
  combine.y_scale = block.scale;
  if (block.after) combine.norm = norm(block.after->spec, module(block.after->role), model_.hidden);
  add(combine);
}

void PlanBuilder::add_per_layer_inputs() {
  layer_ = -1;
  const int64_t cols = model_.per_layer_width * int64_t(model_.layers.size());
  const double half = std::sqrt(0.5);
  LookupStep lookup;
  lookup.table = matrix(model_.names.of(Role::kPerLayerEmbed), model_.vocab, cols);
  lookup.scale = std::sqrt(double(model_.per_layer_width));
  lookup.out = row("per_layer_table", cols);
  const View table = lookup.out;
  add(lookup);
  per_layer_ = row("per_layer", cols);
  LinearStep project;
  project.in = residual_;
  Projection projection;
  projection.weight = matrix(model_.names.of(Role::kPerLayerProjection), cols, model_.hidden);
  projection.scale = 1 / std::sqrt(double(model_.hidden));
  project.projections = {to(projection, per_layer_)};
  add(std::move(project));
  CombineStep sum;
  sum.x = table;
  sum.x_scale = sum.y_scale = half;
  sum.y = sum.out = per_layer_;
  sum.norm = norm(model_.per_layer_norm, model_.names.of(Role::kPerLayerNorm), model_.per_layer_width);
  add(sum);
}

void PlanBuilder::add_layer_scale() {
  const Vector scale = source_.vector(module(Role::kLayerScale), 1);
  CombineStep multiply;
  multiply.y = multiply.out = residual_;
  multiply.norm = times(scale.name, model_.hidden, [scale] { return scale.values().front(); });
  add(multiply);
}

Norm PlanBuilder::times(const std::string& name, int64_t cols, const std::function<float()>& number) {
  Vector spread;
  spread.name = name;
  spread.size = cols;
  spread.derived = std::make_shared<const std::function<std::vector<float>()>>(
      [number, size = size_t(cols)] { return std::vector<float>(size, number()); });
  return {Norm::Kind::kScale, keep(std::move(spread)), nullptr, 0, cols};
}

const Vector* PlanBuilder::keep_joined(std::vector<Vector> parts) {
  Vector all;
  all.name = parts.front().name;  // of all: errors name the one at fault
  for (const Vector& part : parts) all.size += part.size;
  all.derived = std::make_shared<const std::function<std::vector<float>()>>([parts = std::move(parts)] {
    std::vector<float> values;
    for (const Vector& part : parts) {
      const std::vector<float> own = part.values();
      values.insert(values.end(), own.begin(), own.end());
    }
    return values;
  });
  return keep(std::move(all));
}

View PlanBuilder::normalized(const View& in, const Norm& norm, const std::string& out) {
  CombineStep step;
  step.y = in;
  step.norm = norm;
  step.out = row(out, in.cols);
  const View result = step.out;
  add(step);
  return result;
}

// A head of its own where the files have one; else the embedding, unless config.json forbids it.
Projection PlanBuilder::add_head(const Weight* embed, bool draft_head) {
  layer_ = -1;
  LinearStep head;
  head.in = residual_;
  head.norm = norm(model_.final_norm, model_.names.of(Role::kFinalNorm), model_.hidden);
  const std::string name = model_.names.of(Role::kHead);
  Projection scores;
  if (source_.has_matrix(name)) {
    scores = linear(Role::kHead, model_.vocab, model_.hidden, false);
  } else if (model_.tied_head == false) {
    fail(ErrorKind::kModel, fmt::format("{}: tensor {}.weight is missing", name_, name),
         "config.json says tie_word_embeddings: false, so the embedding does not stand in for it");
  } else {
    scores.weight = embed;
    scores.bias = bias(name, model_.vocab, model_.hidden, false);
  }
  scores.scale = model_.logit_scale;
  scores.softcap = model_.logit_softcap;
  // Once more, as a row of all tokens: the head's own norm stays what it is without drafts.
  if (draft_head) normalized(residual_, head.norm, "hidden");
  const View out = row("scores", model_.vocab, true);
  head.projections = {to(scores, out)};
  plan_.scores = out.row;
  add(std::move(head));
  return to(scores, out);
}

void PlanBuilder::add_draft_head(const Weight* embed, const Projection& scores) {
  const DraftSpec& draft = *model_.draft;
  layer_ = int64_t(model_.layers.size());
  int64_t number = 0;
  std::tie(names_, number) = draft_names(model_);
  first_named_ = layer_ - number;
  const View hidden = row("hidden", model_.hidden), joined = row("concatenated", 2 * model_.hidden);
  plan_.draft = {plan_.steps.size(), hidden.row};
  LookupStep lookup;
  lookup.table = embed;
  lookup.scale = model_.embed_scale;
  lookup.out = residual_;
  add(lookup);
  for (const auto& [from, role, first] : {std::tuple(residual_, Role::kDraftEmbedNorm, int64_t{0}),
                                          std::tuple(hidden, Role::kDraftHiddenNorm, model_.hidden)}) {
    CombineStep part;
    part.y = from;
    part.norm = norm(draft.norm, module(role), model_.hidden);
    part.out = {joined.row, first, model_.hidden};
    add(part);
  }
  LinearStep join;
  join.in = joined;
  join.projections = {to(linear(Role::kDraftJoin, model_.hidden, 2 * model_.hidden, false), residual_)};
  add(std::move(join));
  add_layer(draft.blocks);
  const std::string own = module(Role::kDraftNorm);
  // GGUF files may leave it to the model's own.
  const bool has_own = !names_.prefix().empty() || source_.has_tensor(own + ".weight");
  normalized(residual_, norm(draft.norm, has_own ? own : model_.names.of(Role::kFinalNorm), model_.hidden), "hidden");
  LinearStep head;
  head.in = hidden;
  head.projections = {scores};
  add(std::move(head));
}

bool PlanBuilder::is_fused(Role several, Role single, bool by_family) {
  if (source_.has_matrix(module(single))) return false;
  return by_family || source_.has_matrix(module(several));
}

bool PlanBuilder::is_transposed(Role role) const {
  const auto has = [&](const char* suffix) { return source_.has_tensor(module(role) + suffix); };
  return model_.transposed && role != Role::kHead && !has(".qweight") && !has(".SCB");
}

Projection PlanBuilder::linear(Role role, int64_t rows, int64_t cols, bool bias_required) {
  Projection out;
  if (is_transposed(role)) {
    out.weight = keep(transposed_rows(source_.matrix(module(role), cols, rows), 0, rows));
  } else {
    out.weight = matrix(module(role), rows, cols);
  }
  out.bias = bias(module(role), rows, cols, bias_required);
  if (auto scale = source_.input_scale(module(role), cols)) smoothing_.scale_input(out.weight, keep(std::move(*scale)));
  return out;
}

std::vector<Projection> PlanBuilder::fused(Role role, const std::vector<int64_t>& rows, int64_t cols,
                                           bool bias_required) {
  int64_t total = 0;
  for (const int64_t n : rows) total += n;
  const bool transposed = is_transposed(role);
  const Weight whole = source_.matrix(module(role), transposed ? cols : total, transposed ? total : cols);
  const Vector* biases = bias(module(role), total, cols, bias_required);
  auto scale = source_.input_scale(module(role), cols);
  const Vector* const input_scale = scale ? keep(std::move(*scale)) : nullptr;
  std::vector<Projection> out;
  int64_t first = 0;
  for (const int64_t n : rows) {
    Projection& part = out.emplace_back();
    part.weight = keep(transposed ? transposed_rows(whole, first, n) : slice_rows(whole, first, n));
    if (input_scale != nullptr) smoothing_.scale_input(part.weight, input_scale);
    if (biases != nullptr) part.bias = part_of(*biases, first, n);
    first += n;
  }
  return out;
}

const Vector* PlanBuilder::bias(const std::string& module, int64_t rows, int64_t cols, bool required) {
  if (auto found = source_.bias(module, rows, cols)) return keep(std::move(*found));
  return required ? keep(source_.vector(module + ".bias", rows)) : nullptr;
}

Norm PlanBuilder::norm(const NormSpec& spec, const std::string& module, int64_t n) {
  const bool smoothed = source_.may_smooth_norms() && source_.has_tensor(module + ".module.weight");
  // Without float layers behind it a smoothed norm has lost its own weight.
  if (smoothed && !source_.has_tensor(module + ".weight")) return stored_norm(spec, module + ".module", n);
  const Norm out = stored_norm(spec, module, n);
  if (smoothed) smoothing_.smooth_norm(out, stored_norm(spec, module + ".module", n));
  return out;
}

Norm PlanBuilder::stored_norm(const NormSpec& spec, const std::string& module, int64_t n) {
  Norm out{spec.kind, nullptr, nullptr, spec.eps, n};
  if (spec.weighted) {
    Vector weight = source_.vector(module + ".weight", n);
    if (spec.plus_one && !model_.folded_norms) weight.add = 1;
    out.weight = keep(std::move(weight));
  }
  const std::string bias = module + ".bias";
  if (spec.biased || (source_.may_smooth_norms() && source_.has_tensor(bias))) out.bias = keep(source_.vector(bias, n));
  return out;
}

Norm PlanBuilder::head_norm(const NormSpec& spec, Role role, int64_t heads, int64_t dim) {
  const bool apart = spec.per_head && module(role, 0) != module(role, 1);  // a tensor for each head
  Norm out = apart ? joined_norm(spec, role, heads, dim)
                   : norm(spec, module(role), spec.whole_row || spec.per_head ? heads * dim : dim);
  if (spec.per_head) out.group = dim;
  return out;
}

Norm PlanBuilder::joined_norm(const NormSpec& spec, Role role, int64_t heads, int64_t dim) {
  std::vector<Vector> parts;
  for (int64_t h = 0; h < heads; ++h) parts.push_back(source_.vector(module(role, h) + ".weight", dim));
  return {spec.kind, keep_joined(std::move(parts)), nullptr, spec.eps, heads * dim};
}

void PlanBuilder::bind_rope_factors() {
  for (const Description::RopeFactors& given : model_.rope_factors) {
    Rope& rope = plan_.ropes[given.rope];
    rope.factors = keep(given_vector("short_factor", given.factors));
    rope.long_factors = keep(given_vector("long_factor", given.long_factors));
  }
  const std::string name = model_.names.of(Role::kRopeFactors) + ".weight";
  const std::string long_name = model_.names.of(Role::kRopeLongFactors) + ".weight";
  for (Rope& rope : plan_.ropes) {
    if (rope.scaling != Rope::Scaling::kFactors || rope.factors != nullptr) continue;
    if (name == ".weight") fail(ErrorKind::kModel, fmt::format("{}: rope_type 'factors' is not supported", name_));
    const bool has_long = source_.has_tensor(long_name);
    const std::string short_name = model_.names.of(Role::kRopeShortFactors) + ".weight";
    rope.factors = keep(source_.vector(has_long ? short_name : name, rope.dim / 2));
    if (has_long) rope.long_factors = keep(source_.vector(long_name, rope.dim / 2));
  }
}

}  // namespace qgen
