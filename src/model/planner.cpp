#include "model/planner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/table.h"
#include "model/mistral_files.h"
#include "model/plan_builder.h"

namespace qgen {
namespace {

// Writes down what a checkpoint would be asked for.
class Recorder : public WeightSource {
 public:
  explicit Recorder(const std::function<bool(const std::string&)>& has) : has_(has) {}
  bool has_matrix(const std::string& module) override { return has_(module + ".weight"); }
  bool has_tensor(const std::string& tensor) override { return has_(tensor); }
  Weight matrix(const std::string& module, int64_t rows, int64_t cols) override {
    requests.push_back({module, rows, cols});
    return {};
  }
  bool has_stack(const std::string& module) override {
    return has_(module) || has_(module + ".weight") || has_(module + "_blocks");
  }
  bool has_stack_of(const std::string&, const std::vector<int64_t>&) override { return false; }
  std::vector<Weight> stack(const std::string& module, int64_t count, int64_t rows, int64_t cols) override {
    requests.push_back({module, rows, cols, count});
    return std::vector<Weight>(size_t(count));
  }
  Vector vector(const std::string& tensor, int64_t n, int64_t) override {
    requests.push_back({tensor, n, 0});
    Vector out;
    out.size = n;
    return out;
  }
  std::optional<Vector> bias(const std::string& module, int64_t rows, int64_t) override {
    const std::string tensor = module + ".bias";
    if (!has_tensor(tensor)) return {};
    return vector(tensor, rows, 1);
  }
  std::optional<Vector> input_scale(const std::string&, int64_t) override { return {}; }
  bool may_smooth_norms() const override { return true; }

  std::vector<TensorRequest> requests;

 private:
  const std::function<bool(const std::string&)>& has_;
};

// The context with the factor of those rotary scalings that extend it.
int64_t extended_context(const Description& model) {
  constexpr double kMost = double(int64_t{1} << 31);
  double context = double(model.context);
  for (const Rope& rope : model.ropes) {
    const bool extends = rope.scaling == Rope::Scaling::kLinear || rope.scaling == Rope::Scaling::kDynamic ||
                         (rope.scaling == Rope::Scaling::kYarn && rope.original_context == model.context);
    if (extends) context = std::max(context, double(model.context) * std::max(1.0, rope.factor));
  }
  return int64_t(std::min(kMost, context));
}

void set_info(Plan& plan, const Description& model) {
  ContextLimit limit = model.context_limit;
  if (model.positions > 0) limit = {model.positions, "the model's table of positions"};
  int64_t context = extended_context(model);
  if (limit.tokens > 0) context = std::min(context, limit.tokens);
  plan.model = {model.family,    int64_t(model.layers.size()), model.hidden, model.vocab, context, limit,
                model.end_tokens};
}

// A usage Error where the family has no layer for drafts that can be run, or the files have none at all.
void check_draft_head(const Description& model, WeightSource& source, const std::string& name) {
  constexpr const char* kWithout = "--draft off runs it without";
  if (!model.draft || model.names.of(Role::kDraftJoin).empty()) {
    fail(ErrorKind::kUsage,
         model.no_draft.empty()
             ? fmt::format("{}: no layer that drafts tokens is known of a {} model", name, model.family)
             : fmt::format("{}: no layer that drafts tokens ({})", name, model.no_draft),
         kWithout);
  }
  const auto [names, layer] = draft_names(model);
  const std::string join = names.of(Role::kDraftJoin, layer);
  if (!source.has_matrix(join))
    fail(ErrorKind::kUsage, fmt::format("{}: no layer that drafts tokens (no tensor {}.weight)", name, join), kWithout);
}

// Layers that draft tokens are left alone where they are not asked for; else all but the first, and what that one has
// of its own and shares with the model in the published files (DeepSeek-V3's README_WEIGHTS): table and head.
void leave_drafts(Description& model, bool draft_head) {
  const auto leave = [&](std::string part, std::string_view reason) { model.unused_parts.push_back({part, reason}); };
  constexpr const char* kUnused = "a layer that drafts tokens, which is not used";
  const auto [first, last] = model.drafting_layers;
  if (!draft_head) {
    const char* const reason = model.draft ? "a layer that drafts tokens (--draft mtp uses it)" : kUnused;
    if (first < last) leave(model.names.layer_prefix(first), reason);
    if (model.draft && !model.draft->prefix.empty()) leave(std::string(model.draft->prefix), reason);
  } else if (!model.names.prefix().empty() && !model.draft->prefix.empty()) {
    for (int64_t i = 1; i < last - first; ++i) leave(fmt::format("{}layers.{}.", model.draft->prefix, i), kUnused);
  } else {
    for (const char* shared : {"shared_head.head.", "embed_tokens.", "nextn.shared_head_head.", "nextn.embed_tokens."})
      leave(model.names.layer_prefix(first) + shared, "a copy of the model's own");
  }
  for (int64_t i = first + 1; i < last; ++i) leave(model.names.layer_prefix(i), kUnused);
}

// Names of files from before llama.cpp stacked experts, and before it put the values of key heads side by side.
const std::vector<OtherNames> kOldGgufNames = {
    {{Role::kExpertDown, "blk.#.ffn_down.*"},
     {Role::kExpertGate, "blk.#.ffn_gate.*"},
     {Role::kExpertUp, "blk.#.ffn_up.*"}},
    {{Role::kDeltaQkvz, "blk.#.ssm_in"}},
};

std::set<std::string> names_of_tensors(const Checkpoint& checkpoint) {
  std::set<std::string> out;
  for (const TensorView& tensor : checkpoint.tensors()) out.insert(tensor.name);
  return out;
}

void choose_names(Description& model, const std::vector<OtherNames>& sets, const std::set<std::string>& tensors) {
  const auto is_there = [&](Role role, const Names& names) {
    for (int64_t layer = 0; layer < int64_t(model.layers.size()); ++layer) {
      const std::string module = names.of(role, layer) + ".";
      for (auto name = tensors.lower_bound(module); name != tensors.end() && name->starts_with(module); ++name) {
        if (name->find('.', module.size()) == name->npos) return true;
      }
    }
    return false;
  };
  for (const OtherNames& others : sets) {
    Names names = model.names;
    for (const auto& [role, name] : others) names.set(role, name);
    if (!is_there(others.front().first, names)) continue;
    model.names = names;
    return;
  }
}

// mlx-lm saves some models otherwise than transformers does: experts are stacked under a name of its own, and norms of
// models with delta nets have their 1 added, which their convolutions' shape tells: (channels, taps, 1).
void find_mlx_layout(Description& model, const Checkpoint& checkpoint) {
  struct Stacks {
    std::string_view gate, up, down;
  };
  constexpr Stacks kStacks[] = {
      {"@layers.#.mlp.switch_mlp.gate_proj", "@layers.#.mlp.switch_mlp.up_proj", "@layers.#.mlp.switch_mlp.down_proj"},
      {"@layers.#.block_sparse_moe.switch_mlp.gate_proj", "@layers.#.block_sparse_moe.switch_mlp.up_proj",
       "@layers.#.block_sparse_moe.switch_mlp.down_proj"}};
  const auto any_layer_has = [&](Role role, const Names& names, const auto& is_so) {
    for (int64_t layer = 0; layer < int64_t(model.layers.size()); ++layer) {
      const TensorView* tensor = checkpoint.find(names.of(role, layer) + ".weight");
      if (tensor != nullptr && is_so(*tensor)) return true;
    }
    return false;
  };
  for (const Stacks& stacks : kStacks) {
    Names names = model.names;
    names.set({{Role::kExpertGates, stacks.gate}, {Role::kExpertUps, stacks.up}, {Role::kExpertDowns, stacks.down}});
    if (any_layer_has(Role::kExpertDowns, names, [](const TensorView&) { return true; })) model.names = names;
  }
  model.folded_norms |= any_layer_has(Role::kDeltaConv, model.names, [](const TensorView& tensor) {
    return tensor.shape.size() == 3 && tensor.shape[1] > 1 && tensor.shape[2] == 1;
  });
}

}  // namespace

void find_place(Description& model, const std::function<bool(const std::string&)>& has) {
  for (const Description::NamePlace& place : model.places) {
    Names names = model.names;
    names.set_prefix(place.prefix);
    names.set(Role::kHead, place.head);
    if (!has(names.of(Role::kEmbed) + ".weight")) continue;
    model.names = names;
    return;
  }
}

void find_other_names(Description& model, const std::set<std::string>& tensors) {
  choose_names(model, model.other_names, tensors);
}

std::unique_ptr<Plan> make_plan(Checkpoint checkpoint, bool trust_tensors, bool draft_head) {
  auto plan = std::make_unique<Plan>();
  plan->checkpoint = std::move(checkpoint);
  Description model = describe(plan->checkpoint.config());
  Binder binder(plan->checkpoint, trust_tensors);
  CheckpointSource source(binder);
  if (!plan->checkpoint.location().gguf_files.empty()) {
    model.names = Names::gguf();
    for (const auto& [role, name] : model.gguf_names) model.names.set(role, name);
    choose_names(model, kOldGgufNames, names_of_tensors(plan->checkpoint));
    if (!model.names.of(Role::kDeltaQkvz).empty()) {
      for (auto& layer : model.layers) {
        if (auto* delta = std::get_if<DeltaSpec>(&layer.front().mixer)) delta->by_key_head = true;
      }
    }
    model.folded_norms = true;
  }
  if (is_mistral_native(plan->checkpoint)) {
    model.names = Names::mistral();
    for (Rope& rope : model.ropes) rope.pairs = Rope::Pairs::kAdjacent;
  } else if (model.names.prefix() != "") {
    find_place(model, [&](const std::string& tensor) { return source.has_tensor(tensor); });
    if (!model.other_names.empty()) find_other_names(model, names_of_tensors(plan->checkpoint));
    find_mlx_layout(model, plan->checkpoint);
  }
  set_info(*plan, model);
  if (draft_head) check_draft_head(model, source, plan->checkpoint.location().name);
  PlanBuilder(model, *plan, source, plan->checkpoint.location().name).run(draft_head);
  plan->bindings = binder.bindings();
  std::vector<std::string> own = model.names.own_prefixes();
  leave_drafts(model, draft_head);
  if (draft_head && !model.draft->prefix.empty()) own.emplace_back(model.draft->prefix);
  plan->ignored = binder.finish(own, model.unused_parts, model.family);
  return plan;
}

std::vector<TensorRequest> plan_requests(const Description& model, const std::string& name,
                                         const std::function<bool(const std::string&)>& has, bool draft_head) {
  Plan plan;
  set_info(plan, model);
  Recorder recorder(has);
  PlanBuilder(model, plan, recorder, name).run(draft_head && model.draft);
  return std::move(recorder.requests);
}

}  // namespace qgen
