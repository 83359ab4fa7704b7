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

// The weights of a plan by name and, for parts of one matrix, by which of them it is.
std::map<std::pair<std::string, size_t>, Weight*> by_name(Plan& plan) {
  std::map<std::pair<std::string, size_t>, Weight*> out;
  std::map<std::string, size_t> counts;
  for (Weight& weight : plan.weights) out[{weight.name, counts[weight.name]++}] = &weight;
  return out;
}

// The counterpart of each weight of `plan`.
std::vector<Weight*> counterparts(Plan& plan, Plan& reference) {
  const auto names = by_name(reference);
  std::map<std::string, size_t> counts;
  std::vector<Weight*> out;
  bool all = true;
  for (const Weight& weight : plan.weights) {
    const auto found = names.find({weight.name, counts[weight.name]++});
    all = all && found != names.end();
    out.push_back(found == names.end() ? nullptr : found->second);
  }
  if (!all && plan.weights.size() == reference.weights.size()) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = &reference.weights[i];
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const Weight& weight = plan.weights[i];
    if (out[i] != nullptr && out[i]->rows == weight.rows && out[i]->cols == weight.cols) continue;
    fail(ErrorKind::kModel,
         fmt::format("{}: {} has no counterpart in {} (expected [{}, {}], found {})", plan.checkpoint.location().name,
                     weight.name, reference.checkpoint.location().name, weight.rows, weight.cols,
                     out[i] == nullptr ? "none" : fmt::format("[{}, {}]", out[i]->rows, out[i]->cols)),
         "--against names the model that the other was made from");
  }
  return out;
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
  const std::vector<Weight*> others = counterparts(plan, reference);
  std::vector<Comparison> out;
  for (size_t i = 0; i < others.size(); ++i) {
    Weight &weight = plan.weights[i], &other = *others[i];
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
