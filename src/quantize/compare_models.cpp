#include "quantize/compare_models.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "quant/weight_scan.h"
#include "quantize/shard_writer.h"

namespace qgen::quantize {
namespace {

// The weights of a plan in the order in which its steps use them, each once: the same for all checkpoints of a model,
// whatever their files call them and whether they are fused or stacked there.
std::vector<Weight*> in_order(Plan& plan) {
  std::map<const Weight*, Weight*> left;
  for (Weight& weight : plan.weights) left[&weight] = &weight;
  std::vector<Weight*> out;
  for (const Step& step : plan.steps) {
    for_each_weight(step, [&](const Weight& weight, const WeightUse&) {
      if (const auto found = left.extract(&weight)) out.push_back(found.mapped());
    });
  }
  return out;
}

void check_shapes(const std::vector<Weight*>& weights, const std::vector<Weight*>& others, const Plan& plan,
                  const Plan& reference) {
  const std::string &name = plan.checkpoint.location().name, &other_name = reference.checkpoint.location().name;
  const std::string hint = "--against names the model that the other was made from";
  for (size_t i = 0; i < std::min(weights.size(), others.size()); ++i) {
    const Weight &weight = *weights[i], &other = *others[i];
    if (weight.rows == other.rows && weight.cols == other.cols) continue;
    fail(ErrorKind::kModel,
         fmt::format("{}: {} has another shape than in {} (expected [{}, {}], found [{}, {}])", name, weight.name,
                     other_name, other.rows, other.cols, weight.rows, weight.cols),
         hint);
  }
  if (weights.size() != others.size()) {
    fail(ErrorKind::kModel,
         fmt::format("{}: not the matrices of {} (expected {}, found {})", name, other_name, others.size(),
                     weights.size()),
         hint);
  }
}

void prepare(Weight& weight) {
  Weight* const one = &weight;
  repack_weights(std::span(&one, 1));
}

void let_go(Weight& weight) {
  if (weight.owned.empty()) {
    release_pages(weight.data);
  } else {
    weight.owned = {};
    weight.data = {};
  }
}

}  // namespace

std::vector<Comparison> compare_models(Plan& plan, Plan& reference,
                                       const std::function<void(size_t done, size_t all)>& told) {
  const std::vector<Weight*> weights = in_order(plan), others = in_order(reference);
  check_shapes(weights, others, plan, reference);
  std::vector<Comparison> out;
  for (size_t i = 0; i < others.size(); ++i) {
    Weight &weight = *weights[i], &other = *others[i];
    prepare(weight);
    prepare(other);
    const bool plain = !weight.quantized() && !other.quantized();
    const bool same = plain && weight.codes == other.codes && std::ranges::equal(weight.data, other.data);
    if (!same) {
      SourceMatrix matrix;
      matrix.name = other.name;
      matrix.rows = other.rows;
      matrix.cols = other.cols;
      // Read only: the object that owns it stays.
      matrix.weight = std::shared_ptr<Weight>(std::shared_ptr<void>(), &other);
      out.push_back({weight.name, weight.rows, weight.cols, compare(matrix, weight, false)});
    }
    let_go(weight);
    let_go(other);
    if (told) told(i + 1, others.size());
  }
  return out;
}

}  // namespace qgen::quantize
