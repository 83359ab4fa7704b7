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
#include "model/families/table.h"
#include "model/step_numbers.h"
#include "quant/weight_scan.h"
#include "quantize/gguf_layout.h"
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

// Whether its recurrences are stored key head by key head (Qwen3-Next's Hugging Face checkpoints).
bool is_by_key_head(const Plan& plan) {
  return std::ranges::any_of(describe(plan.checkpoint.config()).layers, [](const std::vector<BlockSpec>& layer) {
    const auto* delta = std::get_if<DeltaSpec>(&layer.front().mixer);
    return delta != nullptr && delta->by_key_head;
  });
}

void check_shapes(const std::vector<Weight*>& weights, const std::vector<Weight*>& others, const Plan& plan,
                  const Plan& reference) {
  const std::string &name = plan.checkpoint.location().name, &other_name = reference.checkpoint.location().name;
  const std::string hint = "--against names the model that the other was made from";
  if (is_by_key_head(plan) != is_by_key_head(reference)) {
    fail(ErrorKind::kModel,
         fmt::format("{}: projections of a delta net that {} stores by key head cannot be compared", name, other_name),
         "`qgen score --against` compares what the two compute");
  }
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

// Where elements are in a plan whose files have them in another order than Hugging Face's checkpoints: row n of a
// matrix is rows[n], and so on.
struct Orders {
  std::map<const Weight*, Places> weights;
  std::map<const Vector*, std::vector<int64_t>> vectors;
};

void move_rows(const Projection& projection, std::vector<int64_t> rows, Orders& out) {
  if (projection.bias != nullptr) out.vectors[projection.bias] = rows;
  out.weights[projection.weight].rows = std::move(rows);
}

// Rows of queries and keys whose heads are rotated in pairs of neighbours. Layers without a rotation between others
// (SmolLM3) have their rows in the order of all.
void add_adjacent_pairs(const Plan& plan, Orders& out) {
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
          std::vector<int64_t> rows = rows_from(0, projection.weight->rows);
          for (int64_t n = 0; n < int64_t(rows.size()); ++n) {
            const int64_t at = (first + n) % heads.stride - attend->rotated_first;
            if (at >= 0 && at < rope.dim) rows[size_t(n)] = n - at + adjacent_row(at, rope.dim);
          }
          move_rows(projection, std::move(rows), out);
        }
      }
    }
  }
}

// The value heads of a recurrence in a row, `size` elements each; with key_heads_repeat those of one key head lie
// apart.
struct ValueHeads {
  View row;
  int64_t size, heads, key_heads;

  // Where an element of the row is, element e of it where those of a key head lie side by side.
  int64_t place(int64_t e) const {
    const int64_t n = e - row.first, h = n / size;
    if (n < 0 || h >= heads) return e;
    return row.first + gguf_value_head(h, heads, key_heads) * size + n % size;
  }
  // Of the elements of a view of the same row, from its beginning.
  std::vector<int64_t> order_of(const View& view) const {
    std::vector<int64_t> out = rows_from(0, view.cols);
    for (int64_t& n : out) n = place(view.first + n) - view.first;
    return out;
  }
};

void add_value_heads(const Plan& plan, Orders& out) {
  for (const Step& step : plan.steps) {
    const auto* recur = std::get_if<RecurStep>(&step.op);
    if (recur == nullptr || !recur->key_heads_repeat || recur->heads == recur->key_heads) continue;
    const auto heads = [&](RowId row, int64_t first, int64_t size) {
      return ValueHeads{{row, first, recur->heads * size}, size, recur->heads, recur->key_heads};
    };
    const ValueHeads values = heads(recur->v.row, recur->v.first, recur->value_dim);
    const ValueHeads results = heads(recur->out.row, recur->out.first, recur->value_dim);
    std::vector<ValueHeads> parts = {values, heads(recur->decay.row, recur->decay.first, 1)};
    if (recur->rate) parts.push_back(heads(recur->rate.row, recur->rate.first, 1));
    for (const Vector* vector : {recur->a_log, recur->decay_bias}) {
      if (vector != nullptr) out.vectors[vector] = heads({}, 0, 1).order_of({{}, 0, recur->heads});
    }
    for (const Step& other : plan.steps) {
      const auto* gate = std::get_if<CombineStep>(&other.op);
      if (gate != nullptr && other.layer == step.layer && gate->y.row == recur->out.row)
        parts.push_back(heads(gate->gate.row, gate->gate.first, recur->value_dim));
    }
    for (const Step& other : plan.steps) {
      if (other.layer != step.layer) continue;
      if (const auto* conv = std::get_if<ConvStep>(&other.op); conv != nullptr && conv->in.row == values.row.row) {
        std::vector<int64_t>& order = out.vectors[conv->weight];
        for (const int64_t channel : values.order_of(conv->in)) {
          for (int64_t tap = 0; tap < conv->taps; ++tap) order.push_back(channel * conv->taps + tap);
        }
      }
      const auto* linear = std::get_if<LinearStep>(&other.op);
      if (linear == nullptr) continue;
      for (const Projection& projection : linear->projections) {
        for (const ValueHeads& part : parts) {
          const bool overlaps = projection.out.row == part.row.row &&
                                projection.out.first < part.row.first + part.row.cols &&
                                part.row.first < projection.out.first + projection.out.cols;
          if (overlaps) move_rows(projection, part.order_of(projection.out), out);
        }
        if (linear->in.row == results.row.row) out.weights[projection.weight].cols = results.order_of(linear->in);
      }
    }
  }
}

Orders orders_of(const Plan& plan) {
  Orders out;
  add_adjacent_pairs(plan, out);
  add_value_heads(plan, out);
  return out;
}

// For each element of `other` its place in the one whose order comes first; empty where they are the same.
std::vector<int64_t> places_between(const std::vector<int64_t>& order, const std::vector<int64_t>& other) {
  if (order == other) return {};
  std::vector<int64_t> out(std::max(order.size(), other.size()));
  for (size_t n = 0; n < out.size(); ++n)
    out[other.empty() ? n : size_t(other[n])] = order.empty() ? int64_t(n) : order[n];
  return out;
}

Places places_between(const Weight& weight, const Orders& orders, const Weight& other, const Orders& other_orders) {
  const auto found = orders.weights.find(&weight);
  const auto other_found = other_orders.weights.find(&other);
  const Places here = found == orders.weights.end() ? Places{} : found->second;
  const Places there = other_found == other_orders.weights.end() ? Places{} : other_found->second;
  return {places_between(here.rows, there.rows), places_between(here.cols, there.cols)};
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

// Without those that are all zeros.
std::vector<StepVector> vectors_of(const Step& step, const Orders& orders) {
  std::vector<StepVector> out;
  for_each_vector(step, [&](const Vector& vector) {
    std::vector<float> values = vector.values();
    if (std::ranges::all_of(values, [](float value) { return value == 0; })) return;
    if (const auto order = orders.vectors.find(&vector); order != orders.vectors.end()) {
      std::vector<float> moved(values.size());
      for (size_t n = 0; n < values.size(); ++n) moved[n] = values[size_t(order->second[n])];
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
    PageBytes().swap(weight.owned);
    weight.data = {};
  }
}

}  // namespace

std::vector<Comparison> compare_models(Plan& plan, Plan& reference,
                                       const std::function<void(size_t done, size_t all)>& told) {
  const std::vector<Weight*> weights = in_order(plan), others = in_order(reference);
  check_shapes(weights, others, plan, reference);
  const Orders orders = orders_of(plan), other_orders = orders_of(reference);
  std::vector<Comparison> out;
  for (size_t i = 0; i < others.size(); ++i) {
    Weight &weight = *weights[i], &other = *others[i];
    prepare(weight);
    prepare(other);
    const Places places = places_between(weight, orders, other, other_orders);
    const bool plain = !weight.quantized() && !other.quantized() && places.rows.empty() && places.cols.empty();
    const bool same = plain && weight.codes == other.codes && std::ranges::equal(weight.data, other.data);
    if (!same) {
      SourceMatrix matrix;
      matrix.name = other.name;
      matrix.rows = other.rows;
      matrix.cols = other.cols;
      // Read only: the object that owns it stays.
      matrix.weight = std::shared_ptr<Weight>(std::shared_ptr<void>(), &other);
      out.push_back({weight.name, weight.rows, weight.cols, compare(matrix, weight, false, places)});
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
  const Orders orders = orders_of(plan), other_orders = orders_of(reference);
  std::set<std::string> seen;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto vectors = vectors_of(plan.steps[i], orders), others = vectors_of(reference.steps[i], other_orders);
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
