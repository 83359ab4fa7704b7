#include "quantize/compare_models.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "model/step_numbers.h"
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

// The heads of a matrix whose rows are rotated in pairs of neighbours.
struct AdjacentPairs {
  int64_t first = 0;           // row 0 of the matrix is this element of its row
  int64_t stride = 0;          // from head to head
  int64_t begin = 0, dim = 0;  // elements of a head that are rotated
  bool operator==(const AdjacentPairs&) const = default;

  // Where a row is that lies at `n` where the halves of a head are rotated together.
  int64_t row_of(int64_t n) const {
    const int64_t i = (first + n) % stride - begin;
    if (i < 0 || i >= dim) return n;
    return n - i + adjacent_row(i, dim);
  }
};

// Layers without a rotation between others (SmolLM3) have their rows in the order of all.
std::map<const Weight*, AdjacentPairs> adjacent_pairs(const Plan& plan) {
  std::map<const Weight*, AdjacentPairs> out;
  const auto adjacent = [](const Rope& rope) { return rope.pairs == Rope::Pairs::kAdjacent; };
  const auto of_others = std::ranges::find_if(plan.ropes, adjacent);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto* attend = std::get_if<AttendStep>(&plan.steps[i].op);
    if (attend == nullptr || of_others == plan.ropes.end()) continue;
    const Rope& rope = attend->rope < 0 ? *of_others : plan.ropes[size_t(attend->rope)];
    if (!adjacent(rope)) continue;
    for (size_t before = 0; before < i; ++before) {
      const auto* linear = std::get_if<LinearStep>(&plan.steps[before].op);
      if (linear == nullptr || plan.steps[before].layer != plan.steps[i].layer) continue;
      for (const Projection& projection : linear->projections) {
        for (const auto& [heads, count] : {std::pair(attend->q, attend->heads), {attend->k, attend->kv_heads}}) {
          const int64_t first = projection.out.first - heads.first;
          if (projection.out.row != heads.row || first < 0 || first >= count * heads.stride) continue;
          out[projection.weight] = {first, heads.stride, attend->rotated_first, rope.dim};
        }
      }
    }
  }
  return out;
}

// For each row of `other` its place in `weight`; empty where it is the same.
std::vector<int64_t> row_places(const Weight& weight, const std::map<const Weight*, AdjacentPairs>& pairs,
                                const Weight& other, const std::map<const Weight*, AdjacentPairs>& other_pairs) {
  const auto found = pairs.find(&weight), other_found = other_pairs.find(&other);
  const bool adjacent = found != pairs.end(), other_adjacent = other_found != other_pairs.end();
  if (adjacent == other_adjacent) return {};
  std::vector<int64_t> out(static_cast<size_t>(other.rows));
  for (int64_t n = 0; n < other.rows; ++n) {
    if (adjacent) {
      out[size_t(n)] = found->second.row_of(n);
    } else {
      out[size_t(other_found->second.row_of(n))] = n;
    }
  }
  return out;
}

// A vector of a step, in the order of rows that both plans have.
struct StepVector {
  const Vector* vector;
  std::vector<float> values;
};

// How far a value may be from itself, relative, where one of the two has lost precision to the type of the other.
double rounding_between(const Vector& a, const Vector& b) {
  constexpr double kF32 = 1e-6, kF16 = 0x1p-11, kBf16 = 0x1p-8;
  const auto is = [&](Dtype type) {
    return std::ranges::any_of(std::initializer_list<const Vector*>{&a, &b}, [&](const Vector* vector) {
      return vector->given.empty() && vector->derived == nullptr && vector->type == type;
    });
  };
  const bool both_stored = a.derived == nullptr && b.derived == nullptr && a.given.empty() && b.given.empty();
  if (both_stored && a.type == b.type) return kF32;
  return is(Dtype::kBf16) ? kBf16 : is(Dtype::kF16) ? kF16 : kF32;
}

// Without those that are all zeros. `pairs`: of the plan, whose rows of q and k lie elsewhere, and their biases.
std::vector<StepVector> vectors_of(const Step& step, const std::map<const Weight*, AdjacentPairs>& pairs) {
  std::map<const Vector*, const Weight*> weights;
  if (const auto* linear = std::get_if<LinearStep>(&step.op)) {
    for (const Projection& projection : linear->projections) weights[projection.bias] = projection.weight;
  }
  std::vector<StepVector> out;
  for_each_vector(step, [&](const Vector& vector) {
    std::vector<float> values = vector.values();
    if (std::ranges::all_of(values, [](float value) { return value == 0; })) return;
    const auto weight = weights.find(&vector);
    const auto pair = weight == weights.end() ? pairs.end() : pairs.find(weight->second);
    if (pair != pairs.end()) {
      std::vector<float> moved(values.size());
      for (size_t n = 0; n < values.size(); ++n) moved[n] = values[size_t(pair->second.row_of(int64_t(n)))];
      values = std::move(moved);
    }
    // The weights of a head's norm go with its elements, wherever those lie.
    if (std::holds_alternative<AttendStep>(step.op)) std::ranges::sort(values);
    out.push_back({&vector, std::move(values)});
  });
  return out;
}

std::optional<VectorDifference> difference_of(const StepVector& a, const StepVector& b) {
  VectorDifference out{a.vector->name, a.vector->size, 0};
  const double rounding = rounding_between(*a.vector, *b.vector);
  bool same = a.values.size() == b.values.size();
  for (size_t i = 0; i < a.values.size() && i < b.values.size(); ++i) {
    const double x = a.values[i], y = b.values[i], error = std::fabs(x - y);
    const double size = std::max(std::fabs(x), std::fabs(y)) + std::fabs(a.vector->add) + std::fabs(b.vector->add);
    same = same && error <= rounding * size;
    out.largest_error = std::max(out.largest_error, error);
  }
  if (same) return {};
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
  const std::vector<Weight*> weights = in_order(plan), others = in_order(reference);
  check_shapes(weights, others, plan, reference);
  const auto pairs = adjacent_pairs(plan), other_pairs = adjacent_pairs(reference);
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
      out.push_back({weight.name, weight.rows, weight.cols,
                     compare(matrix, weight, false, row_places(weight, pairs, other, other_pairs))});
    }
    let_go(weight);
    let_go(other);
    if (told) told(i + 1, others.size());
  }
  return out;
}

std::vector<VectorDifference> compare_vectors(const Plan& plan, const Plan& reference) {
  std::vector<VectorDifference> out;
  if (plan.steps.size() != reference.steps.size()) return out;
  const auto pairs = adjacent_pairs(plan), other_pairs = adjacent_pairs(reference);
  std::set<std::string> seen;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto vectors = vectors_of(plan.steps[i], pairs), others = vectors_of(reference.steps[i], other_pairs);
    const auto add = [&](VectorDifference difference) {
      if (seen.insert(difference.name).second) out.push_back(std::move(difference));
    };
    for (size_t v = 0; v < std::max(vectors.size(), others.size()); ++v) {
      if (v >= others.size() || v >= vectors.size()) {
        const StepVector& lone = v < vectors.size() ? vectors[v] : others[v];
        const auto most = std::ranges::max_element(lone.values, {}, [](float x) { return std::fabs(x); });
        add({lone.vector->name, lone.vector->size, std::fabs(double(*most))});
      } else if (auto difference = difference_of(vectors[v], others[v])) {
        add(std::move(*difference));
      }
    }
  }
  return out;
}

std::string different_step(const Plan& plan, const Plan& reference) {
  constexpr double kRounding = 1e-6;  // of F32
  if (plan.steps.size() != reference.steps.size())
    return fmt::format("{} steps in place of {}", plan.steps.size(), reference.steps.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto a = step_numbers(plan, plan.steps[i]), b = step_numbers(reference, reference.steps[i]);
    const bool same = std::ranges::equal(
        a, b, [](double x, double y) { return std::fabs(x - y) <= kRounding * std::max(std::fabs(x), std::fabs(y)); });
    if (!same) return fmt::format("layer {}: {}", reference.steps[i].layer, step_name(reference.steps[i]));
  }
  return {};
}

std::string different_step(const std::function<std::unique_ptr<Plan>()>& make, const Plan& reference) {
  try {
    return different_step(*make(), reference);
  } catch (const Error& error) {
    return error.message();
  }
}

}  // namespace qgen::quantize
