#include "quantize/expert_matrices.h"

#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "model/families/table.h"
#include "model/planner.h"
#include "model/weight_source.h"
#include "quant/binder.h"

namespace qgen::quantize {
namespace {

std::string parent_of(const std::string& module) { return module.substr(0, module.rfind('.') + 1); }

class Unstacking {
 public:
  Unstacking(Source& source, Dtype quantized)
      : source_(source),
        quantized_(quantized),
        binder_(source.checkpoint, true),  // what is refused for its method has been refused by now
        weights_(binder_) {}

  std::set<std::string> run() {
    Description model = describe(source_.checkpoint.config());
    const auto has = [&](const std::string& tensor) { return source_.checkpoint.find(tensor) != nullptr; };
    if (model.names.prefix() != "") find_place(model, has);
    hidden_ = model.hidden;
    const MixtureSpec* last = nullptr;
    for (size_t i = 0; i < model.layers.size(); ++i) {
      for (const BlockSpec& block : model.layers[i]) {
        const MixtureSpec* const mixture = mixture_of(block);
        if (mixture == nullptr) continue;
        add_layer(*mixture, model.names, int64_t(i));
        last = mixture;
      }
    }
    if (last != nullptr) add_draft_layers(*last, model);
    return binder_.consumed();
  }

 private:
  // Layers for drafts, run or not: their experts are stacked as those of the model, and stay stacked if they are
  // others.
  void add_draft_layers(const MixtureSpec& mixture, const Description& model) {
    const auto [first, end] = model.drafting_layers;
    for (int64_t i = first; i < end; ++i) {
      if (fits(mixture, model.names, i)) add_layer(mixture, model.names, i);
    }
    Names apart = model.names;
    apart.set_prefix("mtp.");
    if (apart.prefix() == model.names.prefix()) return;
    for (int64_t i = 0; weights_.has_stack(apart.of(Role::kExpertDowns, i)); ++i) {
      if (fits(mixture, apart, i)) add_layer(mixture, apart, i);
    }
  }

  // Whether the stacks of a layer have the shapes that the mixture says.
  bool fits(const MixtureSpec& mixture, const Names& names, int64_t number) const {
    const auto has_shape = [&](Role role, int64_t rows, int64_t cols) {
      const std::string name = names.of(role, number);
      return binder_.has_stack_of(name, {mixture.experts, rows, cols}) ||
             (mixture.transposed && binder_.has_stack_of(name, {mixture.experts, cols, rows}));
    };
    const int64_t inputs = mixture.inputs(hidden_);
    return has_shape(Role::kExpertDowns, inputs, mixture.width) &&
           (has_shape(Role::kExpertGateUps, 2 * mixture.width, inputs) ||
            has_shape(Role::kExpertUps, mixture.width, inputs));
  }

  void add_layer(const MixtureSpec& mixture, const Names& names, int64_t number) {
    const std::string stack = names.of(Role::kExpertDowns, number);
    const std::string single = names.of(Role::kExpertDown, number, 0);
    const bool stays = (mixture.biased || mixture.only_stacked) && source_.stacks != Stacks::kApart;
    if (stays || !weights_.has_stack(stack) || single.empty() || !single.starts_with(parent_of(stack))) return;
    ExpertWeights experts = unstacked_experts(weights_, mixture, names, number, hidden_);
    note_tensors();
    add(experts.gate, names, Role::kExpertGate, number);
    add(experts.up, names, Role::kExpertUp, number);
    add(experts.down, names, Role::kExpertDown, number);
  }

  // Of the modules that were bound since the last call.
  void note_tensors() {
    tensors_.clear();
    for (; noted_ < binder_.bindings().size(); ++noted_) {
      const Binder::Binding& binding = binder_.bindings()[noted_];
      for (const std::string& name : binding.tensors) tensors_[binding.module].push_back(source_.checkpoint.find(name));
    }
  }

  void add(std::vector<Weight>& experts, const Names& names, Role role, int64_t number) {
    for (size_t e = 0; e < experts.size(); ++e) {
      SourceMatrix& matrix = source_.matrices.emplace_back();
      matrix.name = names.of(role, number, int64_t(e));
      matrix.tensors = tensors_.at(experts[e].name);
      matrix.type = quantized_;
      set_weight(matrix, std::move(experts[e]));
    }
  }

  Source& source_;
  const Dtype quantized_;
  Binder binder_;
  CheckpointSource weights_;
  int64_t hidden_ = 0;
  size_t noted_ = 0;                                               // bindings
  std::map<std::string, std::vector<const TensorView*>> tensors_;  // by module
};

}  // namespace

const MixtureSpec* mixture_of(const BlockSpec& block) {
  const auto* both = std::get_if<DoubleFeedForwardSpec>(&block.mixer);
  return both != nullptr ? &both->mixture : std::get_if<MixtureSpec>(&block.mixer);
}

void set_weight(SourceMatrix& matrix, Weight weight) {
  matrix.rows = weight.rows;
  matrix.cols = weight.cols;
  if (is_plain(weight)) matrix.type = float_type(weight.codes);
  if (is_plain(weight) && weight.repack == nullptr && weight.row_bytes == weight.cols * code_bytes(weight.codes)) {
    matrix.plain = weight.data;
  } else {
    matrix.weight = std::make_shared<Weight>(std::move(weight));
  }
}

std::set<std::string> add_stacked_experts(Source& source, Dtype quantized) {
  return Unstacking(source, quantized).run();
}

}  // namespace qgen::quantize
