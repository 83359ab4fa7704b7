// What quantizers move between a layer's input and its weights, so that both are easier to round: multipliers of the
// input's columns (SmoothQuant, AWQ), and norms that quantized layers have in place of their own (msModelSlim). Both
// become norms of LinearSteps, which engines know already.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <variant>

#include "model/step.h"

namespace qgen {

class Smoothing {
 public:
  using MakeRow = std::function<View(const std::string& name, int64_t cols, bool scored)>;
  using KeepVector = std::function<const Vector*(Vector)>;

  // The input of `weight` is multiplied with `scale`, (cols), behind its norm.
  void scale_input(const Weight* weight, const Vector* scale) { input_scales_[weight] = scale; }
  // Quantized weights have `smoothed` where others have `norm`.
  void smooth_norm(const Norm& norm, const Norm& smoothed) { smoothed_norms_[norm.weight] = smoothed; }
  bool empty() const { return input_scales_.empty() && smoothed_norms_.empty(); }

  // Calls add(op) for the steps that compute `step`: itself, or several where its projections do not share one input.
  template <typename Add>
  void arrange(LinearStep step, const MakeRow& make_row, const KeepVector& keep, const Add& add) const {
    for (auto& op : arranged(std::move(step), make_row, keep))
      std::visit([&](auto& part) { add(std::move(part)); }, op);
  }

 private:
  using Op = std::variant<LinearStep, CombineStep>;
  // What a weight wants of its input. Weights that want the same share a step.
  struct Want {
    bool smoothed = false;
    const Vector* scale = nullptr;
    bool operator==(const Want&) const = default;
  };
  Want want_of(const Norm& norm, const Weight& weight) const;
  Norm norm_for(const Norm& norm, const Want& want, int64_t cols, const KeepVector& keep) const;
  std::vector<Op> arranged(LinearStep step, const MakeRow& make_row, const KeepVector& keep) const;

  std::unordered_map<const Weight*, const Vector*> input_scales_;
  std::unordered_map<const Vector*, Norm> smoothed_norms_;
};

}  // namespace qgen
