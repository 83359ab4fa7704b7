// Small made-up plans that use every field of the vocabulary of steps: engines are compared on them step by step.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/plan.h"
#include "tests/random_weight.h"

namespace qgen::test {

// Builds a plan around the steps of a test: an embedding before them, a head behind them.
class PlanMaker {
 public:
  static constexpr int64_t kHidden = 64, kVocab = 50, kContext = 80;

  explicit PlanMaker(Codes codes = Codes::kI8) : plan_(std::make_unique<Plan>()), codes_(codes) {
    plan_->model.vocab = kVocab;
    plan_->model.hidden = kHidden;
    plan_->model.layers = 1;
    plan_->model.context = kContext;
    residual = row("residual", kHidden);
    LookupStep lookup;
    lookup.table = matrix(kVocab, kHidden, Codes::kBf16);
    lookup.out = residual;
    plan_->steps.push_back({-1, lookup});
  }

  View row(const std::string& name, int64_t cols, bool scored = false) {
    plan_->rows.push_back({name, cols, scored});
    return {RowId(plan_->rows.size()) - 1, 0, cols};
  }
  const Weight* matrix(int64_t rows, int64_t cols, Codes codes) {
    const bool scaled = code_bytes(codes) == 1;
    plan_->weights.push_back(random_weight(random_, codes, rows, cols, 1, scaled ? cols : 0, false));
    return &plan_->weights.back();
  }
  const Weight* matrix(int64_t rows, int64_t cols) { return matrix(rows, cols, codes_); }
  // Gives a matrix an activation order: one of those that `step` makes, prime to its columns.
  void order(const Weight* matrix, int64_t step) {
    auto* const weight = const_cast<Weight*>(matrix);
    weight->ordered = true;
    for (int64_t k = 0; k < weight->cols; ++k) weight->column_order.push_back(int32_t(k * step % weight->cols));
  }
  // Gives a matrix scale groups of `size` elements down its columns instead of what it has.
  void group_columns(const Weight* matrix, int64_t size) {
    Weight grouped = random_column_groups(random_, matrix->rows, matrix->cols, matrix->rows / size, ScaleType::kF16);
    grouped.name = matrix->name;
    *const_cast<Weight*>(matrix) = std::move(grouped);
  }
  // A table with the same value in all columns of a token's row.
  const Weight* table(const std::function<float(int64_t token)>& value, int64_t cols) {
    Weight* const out = const_cast<Weight*>(matrix(kVocab, cols, Codes::kF32));
    auto* const elements = reinterpret_cast<float*>(out->owned.data());
    for (int64_t i = 0; i < kVocab * cols; ++i) elements[i] = value(i / cols);
    return out;
  }
  const Vector* vector(int64_t size, float mean = 0) {
    Vector out;
    out.size = size;
    out.given = normal(random_, size_t(size), 0.3f);
    for (float& value : out.given) value += mean;
    plan_->vectors.push_back(std::move(out));
    return &plan_->vectors.back();
  }
  Norm rms(int64_t group) { return {Norm::Kind::kRms, vector(group, 1), nullptr, 1e-5, group}; }
  Projection project(int64_t rows, int64_t cols, const View& out) {
    Projection projection;
    projection.weight = matrix(rows, cols);
    projection.out = out;
    return projection;
  }
  // A product of the normalized residual.
  View products(const std::string& name, int64_t cols) {
    LinearStep step;
    step.in = residual;
    step.norm = rms(kHidden);
    const View out = row(name, cols);
    step.projections = {project(cols, kHidden, out)};
    add(step);
    return out;
  }
  StateId state(int64_t kv_heads, int64_t key_dim, int64_t value_dim, int64_t window = 0) {
    plan_->states.push_back({State::Kind::kKv, kv_heads, key_dim, value_dim, window, 0});
    return StateId(plan_->states.size()) - 1;
  }
  // One key of all heads, which begins with its value.
  StateId latent_state(int64_t key_dim, int64_t value_dim) {
    const StateId id = state(1, key_dim, value_dim);
    plan_->states.back().values_in_keys = true;
    return id;
  }
  StateId fixed_state(int64_t elements) {
    plan_->states.push_back({State::Kind::kFixed, 0, 0, 0, 0, elements});
    return StateId(plan_->states.size()) - 1;
  }
  int32_t rope(int64_t dim, Rope::Pairs pairs = Rope::Pairs::kHalfSplit) {
    Rope out;
    out.dim = dim;
    out.pairs = pairs;
    out.theta = 100;
    plan_->ropes.push_back(out);
    return int32_t(plan_->ropes.size()) - 1;
  }
  template <typename Op>
  void add(Op op) {
    plan_->steps.push_back({0, std::move(op)});
  }
  LookupStep& lookup() { return std::get<LookupStep>(plan_->steps[0].op); }

  // Attention with q, k and v in rows of their own, and what comes of it added to the residual.
  struct Shape {
    int64_t heads = 4, kv_heads = 2, key_dim = 16, value_dim = 16, window = 0;
  };
  AttendStep attention(const Shape& s) {
    AttendStep step;
    step.state = state(s.kv_heads, s.key_dim, s.value_dim, s.window);
    step.heads = s.heads;
    step.kv_heads = s.kv_heads;
    step.key_dim = s.key_dim;
    step.value_dim = s.value_dim;
    step.window = s.window;
    step.q = {products("q", s.heads * s.key_dim).row, 0, s.key_dim};
    step.k = {products("k", s.kv_heads * s.key_dim).row, 0, s.key_dim};
    step.v = {products("v", s.kv_heads * s.value_dim).row, 0, s.value_dim};
    step.scale = 0.02;  // heads are long where nothing normalizes them
    step.out = row("mixed", s.heads * s.value_dim);
    return step;
  }
  void add_attention(const AttendStep& step) {
    add(step);
    LinearStep output;
    output.in = step.out;
    Projection projection = project(kHidden, step.out.cols, residual);
    projection.add = true;
    output.projections = {projection};
    add(output);
  }

  std::unique_ptr<Plan> finish() {
    LinearStep head;
    head.in = residual;
    head.norm = rms(kHidden);
    const View scores = row("scores", kVocab, true);
    head.projections = {project(kVocab, kHidden, scores)};
    plan_->scores = scores.row;
    plan_->steps.push_back({-1, head});
    return std::move(plan_);
  }

  View residual;

 private:
  std::unique_ptr<Plan> plan_;
  Codes codes_;
  std::mt19937 random_{17};
};

struct StepCase {
  std::string name;
  std::function<void(PlanMaker&)> make;
};

inline std::vector<StepCase> lookup_cases() {
  return {{"a lookup with a scale and positions", [](PlanMaker& m) {
             m.lookup().scale = 3.5;
             m.lookup().positions = m.matrix(PlanMaker::kContext, PlanMaker::kHidden, Codes::kF16);
           }}};
}

inline std::vector<StepCase> linear_cases() {
  constexpr int64_t kHidden = PlanMaker::kHidden, kInner = 80;
  std::vector<StepCase> out;
  const auto add_norm = [&](const std::string& name, const std::function<Norm(PlanMaker&)>& norm) {
    out.push_back({"a product of " + name, [norm](PlanMaker& m) {
                     LinearStep step;
                     step.in = m.residual;
                     step.norm = norm(m);
                     step.projections = {m.project(kInner, kHidden, m.row("inner", kInner))};
                     m.add(step);
                   }});
  };
  using Kind = Norm::Kind;
  add_norm("the row itself", [](PlanMaker&) { return Norm(); });
  add_norm("a layer norm", [](PlanMaker& m) {
    return Norm{Kind::kLayer, m.vector(kHidden, 1), m.vector(kHidden), 1e-5, kHidden};
  });
  add_norm("a layer norm without weights", [](PlanMaker&) {
    return Norm{Kind::kLayer, nullptr, nullptr, 1e-5, kHidden};
  });
  add_norm("an RMS norm without weights", [](PlanMaker&) { return Norm{Kind::kRms, nullptr, nullptr, 1e-5, kHidden}; });
  add_norm("an RMS norm with a bias", [](PlanMaker& m) {
    return Norm{Kind::kRms, m.vector(kHidden, 1), m.vector(kHidden), 1e-5, kHidden};
  });
  add_norm("multipliers of the columns", [](PlanMaker& m) {
    return Norm{Kind::kScale, m.vector(kHidden, 1), nullptr, 0, kHidden};
  });
  add_norm("multipliers of the columns with a bias", [](PlanMaker& m) {
    return Norm{Kind::kScale, m.vector(kHidden, 1), m.vector(kHidden), 0, kHidden};
  });
  add_norm("norms of groups with one weight", [](PlanMaker& m) {
    return Norm{Kind::kRms, m.vector(16, 1), nullptr, 1e-5, 16};
  });
  add_norm("norms of groups with a weight for each column", [](PlanMaker& m) {
    return Norm{Kind::kLayer, m.vector(kHidden, 1), m.vector(kHidden), 1e-5, 16};
  });
  out.push_back({"products of a part of a row, into parts of a row", [](PlanMaker& m) {
                   const View whole = m.products("whole", 100), result = m.row("result", 90);
                   LinearStep step;
                   step.in = {whole.row, 7, 40};
                   step.norm = m.rms(40);
                   step.projections = {m.project(50, 40, {result.row, 40, 50}), m.project(40, 40, {result.row, 0, 40})};
                   m.add(step);
                 }});
  out.push_back({"gated and added products with scale groups down the columns", [](PlanMaker& m) {
                   LinearStep inner, back;
                   inner.in = m.residual;
                   inner.norm = m.rms(kHidden);
                   inner.projections = {m.project(kInner, kHidden, m.row("inner", kInner)),
                                        m.project(kHidden, kHidden, m.row("beside", kHidden))};
                   Projection& gated = inner.projections[0];
                   gated.gate = m.matrix(kInner, kHidden, Codes::kI8);
                   gated.gate_bias = m.vector(kInner);
                   gated.bias = m.vector(kInner);
                   gated.activation = Activation::kSilu;
                   m.group_columns(gated.gate, 16);
                   m.group_columns(gated.weight, 20);
                   m.add(inner);
                   back.in = gated.out;
                   back.projections = {m.project(kHidden, kInner, m.residual)};
                   back.projections[0].add = true;
                   m.group_columns(back.projections[0].weight, 64);
                   m.add(back);
                 }});
  out.push_back({"four products, one of them added", [](PlanMaker& m) {
                   const View old = m.products("old", 30);
                   LinearStep step;
                   step.in = m.residual;
                   step.norm = m.rms(kHidden);
                   for (const int64_t rows : {20, 30, 50, 10})
                     step.projections.push_back(m.project(rows, kHidden, rows == 30 ? old : m.row("part", rows)));
                   step.projections[1].add = true;
                   step.projections[1].scale = -0.7;
                   step.projections[2].bias = m.vector(50);
                   m.add(step);
                 }});
  for (const Activation activation :
       {Activation::kNone, Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu,
        Activation::kReluSquared, Activation::kSigmoid, Activation::kQuickGelu}) {
    for (const bool gated : {false, true}) {
      const std::string name = std::string(activation_name(activation)) + (gated ? " of a gate" : "");
      out.push_back({name, [=](PlanMaker& m) {
                       LinearStep step;
                       step.in = m.residual;
                       step.norm = m.rms(kHidden);
                       Projection p = m.project(kInner, kHidden, m.row("inner", kInner));
                       p.bias = m.vector(kInner);
                       p.activation = activation;
                       if (gated) {
                         p.gate = m.matrix(kInner, kHidden);
                         if (activation != Activation::kSilu) p.gate_bias = m.vector(kInner);
                       }
                       step.projections = {p};
                       m.add(step);
                     }});
    }
  }
  for (const bool adds : {false, true}) {
    for (const bool gated : {false, true}) {
      out.push_back({std::string("scale and softcap") + (gated ? " behind a gate" : "") + (adds ? ", added" : ""),
                     [=](PlanMaker& m) {
                       LinearStep step;
                       step.in = m.products("input", kInner);
                       Projection p = m.project(kHidden, kInner, m.residual);
                       p.scale = 1.7;
                       p.softcap = 0.8;
                       p.add = adds;
                       if (gated) {
                         p.gate = m.matrix(kHidden, kInner, Codes::kF16);  // of another kind than what it gates
                         p.activation = Activation::kGeluTanh;
                       }
                       step.projections = {p};
                       m.add(step);
                     }});
    }
  }
  return out;
}

inline std::vector<StepCase> head_linear_cases() {
  std::vector<StepCase> out;
  for (const Codes codes : {Codes::kBf16, Codes::kI8, Codes::kE4M3, Codes::kF32}) {
    for (const int64_t kept : {0, 6}) {
      out.push_back(
          {"a matrix for each head, code type " + std::to_string(int(codes)) + (kept > 0 ? ", and the rest" : ""),
           [=](PlanMaker& m) {
             HeadLinearStep step;
             step.in = {m.products("heads", 3 * 40).row, 2, 40};
             step.kept = kept;
             step.out = {m.row("result", 3 * (52 + kept)).row, 0, 52 + kept};
             for (int h = 0; h < 3; ++h) step.weights.push_back(m.matrix(52, 32, codes));
             m.add(step);
           }});
    }
  }
  return out;
}

inline std::vector<StepCase> combine_cases() {
  constexpr int64_t kHidden = PlanMaker::kHidden;
  return {{"a scaled norm alone",
           [](PlanMaker& m) {
             CombineStep step;
             step.y = m.residual;
             step.y_scale = 0.4;
             step.norm = m.rms(kHidden);
             step.out = m.row("normalized", kHidden);
             m.add(step);
           }},
          {"a branch behind its norm, added",
           [](PlanMaker& m) {
             CombineStep step;
             step.x = step.out = m.residual;
             step.x_scale = 0.9;
             step.y = m.products("branch", kHidden);
             step.y_scale = -1.3;
             step.norm = {Norm::Kind::kLayer, m.vector(kHidden, 1), m.vector(kHidden), 1e-5, kHidden};
             m.add(step);
           }},
          {"a norm of groups times an activated gate, in place",
           [](PlanMaker& m) {
             CombineStep step;
             step.y = step.out = m.products("branch", kHidden);
             step.gate = m.products("gate", kHidden);
             step.activation = Activation::kSilu;
             step.norm = {Norm::Kind::kRms, m.vector(16, 1), nullptr, 1e-5, 16};
             m.add(step);
           }},
          {"heads times a softplus of each",
           [](PlanMaker& m) {
             CombineStep step;
             step.y = step.out = m.products("branch", kHidden);
             step.gate = m.products("gate", kHidden / 16);
             step.activation = Activation::kSoftplus;
             m.add(step);
           }},
          {"a part of a row plus another", [](PlanMaker& m) {
             CombineStep step;
             const View whole = m.products("whole", 90);
             step.x = {whole.row, 5, 32};
             step.y = {whole.row, 41, 32};
             step.out = {m.residual.row, 3, 32};
             m.add(step);
           }}};
}

inline std::vector<StepCase> attend_cases() {
  using Shape = PlanMaker::Shape;
  using Change = std::function<void(PlanMaker&, AttendStep&)>;
  std::vector<StepCase> out;
  const auto add = [&](const std::string& name, const Change& change, const Shape& shape = {}) {
    out.push_back({"attention: " + name, [=](PlanMaker& m) {
                     AttendStep step = m.attention(shape);
                     change(m, step);
                     m.add_attention(step);
                   }});
  };
  const auto rotated = [](PlanMaker& m, AttendStep& step) { step.rope = m.rope(step.key_dim); };
  add("without rotation", [](PlanMaker&, AttendStep&) {});
  add("rotated", rotated);
  add("neighbours rotated", [](PlanMaker& m, AttendStep& step) { step.rope = m.rope(16, Rope::Pairs::kAdjacent); });
  add("the first elements rotated", [](PlanMaker& m, AttendStep& step) { step.rope = m.rope(10); });
  add("longer keys than values",
      [=](PlanMaker& m, AttendStep& step) {
        rotated(m, step);
        step.scale = 0.004;
      },
      {.heads = 3, .kv_heads = 1, .key_dim = 40, .value_dim = 24});
  add("longer values than keys", rotated, {.heads = 8, .kv_heads = 1, .key_dim = 8, .value_dim = 72});
  add("long heads", rotated, {.heads = 2, .kv_heads = 2, .key_dim = 192, .value_dim = 128});
  add("norms of heads", [=](PlanMaker& m, AttendStep& step) {
    rotated(m, step);
    step.scale = 0.25;
    step.q_norm = m.rms(16);
    step.k_norm = m.rms(16);
    step.v_norm = {Norm::Kind::kRms, nullptr, nullptr, 1e-5, 16};
  });
  add("norms behind the rotation, of groups, each head with its weight", [=](PlanMaker& m, AttendStep& step) {
    rotated(m, step);
    step.norm_after_rotation = true;
    step.scale = 0.25;
    step.q_norm = {Norm::Kind::kLayer, m.vector(64, 1), m.vector(64), 1e-5, 16};
    step.k_norm = {Norm::Kind::kRms, m.vector(8, 1), nullptr, 1e-5, 8};
  });
  add("norms of all heads together", [=](PlanMaker& m, AttendStep& step) {
    rotated(m, step);
    step.scale = 0.25;
    step.q_norm = m.rms(64);
    step.k_norm = m.rms(32);
  });
  add("a softcap", [](PlanMaker&, AttendStep& step) {
    step.scale = 0.1;
    step.softcap = 3;
  });
  add("a window", rotated, {.window = 9});
  add("a window of a step alone, and chunks", [=](PlanMaker& m, AttendStep& step) {
    rotated(m, step);
    step.window = 13;
    step.chunk = 20;
  });
  add("a temperature", [](PlanMaker&, AttendStep& step) {
    step.temperature_beta = 0.4;
    step.temperature_interval = 7;
    step.temperature_offset = 1;
  });
  add("sinks", [](PlanMaker& m, AttendStep& step) { step.sinks = m.vector(4, 1); });
  add("an output gate between the heads of q", [](PlanMaker& m, AttendStep& step) {
    const View both = m.products("q and gate", 4 * 32);
    step.scale = 0.1;
    step.q = {both.row, 0, 32};
    step.gate = {both.row, 16, 32};
    step.q_norm = m.rms(16);
  });
  add("keys that are values", [=](PlanMaker& m, AttendStep& step) {
    rotated(m, step);
    step.scale = 0.1;
    step.k_norm = m.rms(16);
    step.v = step.k;
    step.v_norm = {Norm::Kind::kRms, nullptr, nullptr, 1e-5, 16};
  });
  for (const auto& sizes : {std::array{4, 26, 20}, {3, 56, 40}, {5, 576, 512}}) {
    const int heads = sizes[0], key_dim = sizes[1], value_dim = sizes[2];
    out.push_back({"attention: values in keys of " + std::to_string(key_dim), [=](PlanMaker& m) {
                     AttendStep step = m.attention({heads, 1, key_dim, value_dim});
                     step.state = m.latent_state(key_dim, value_dim);
                     step.v = {};
                     step.rope = m.rope(key_dim - value_dim, Rope::Pairs::kAdjacent);
                     step.rotated_first = value_dim;
                     step.scale = 0.2 / key_dim;
                     m.add_attention(step);
                   }});
  }
  out.push_back({"attention: over what another step has stored", [](PlanMaker& m) {
                   AttendStep step = m.attention({});
                   step.rope = m.rope(16);
                   m.add_attention(step);
                   AttendStep other = step;
                   other.stores = false;
                   other.k = other.v = {};
                   other.q = {m.products("q again", 64).row, 0, 16};
                   other.out = m.row("mixed again", 64);
                   other.window = 11;
                   m.add_attention(other);
                 }});
  return out;
}

// A router, a choice and experts, added to the residual or in a row of their own.
inline RouteStep add_route(PlanMaker& m, int64_t experts, int64_t chosen) {
  RouteStep step;
  step.logits = m.products("router", experts);
  step.chosen = chosen;
  step.out = m.row("route", 2 * chosen);
  return step;
}
inline ExpertsStep make_experts(PlanMaker& m, const RouteStep& route, int64_t width, Codes codes) {
  ExpertsStep step;
  step.in = m.residual;
  step.route = route.out;
  for (int64_t e = 0; e < route.logits.cols; ++e) {
    step.gate.push_back(m.matrix(width, PlanMaker::kHidden, codes));
    step.up.push_back(m.matrix(width, PlanMaker::kHidden, codes));
    step.down.push_back(m.matrix(PlanMaker::kHidden, width, codes));
  }
  step.out = m.residual;
  step.add = true;
  return step;
}

inline std::vector<StepCase> mixture_cases() {
  constexpr int64_t kHidden = PlanMaker::kHidden;
  std::vector<StepCase> out;
  using Score = RouteStep::Score;
  for (const Score score : {Score::kSoftmax, Score::kSigmoid, Score::kRootSoftplus}) {
    for (const bool grouped : {false, true}) {
      out.push_back({"a choice of experts, score " + std::to_string(int(score)) + (grouped ? " of groups" : ""),
                     [=](PlanMaker& m) {
                       RouteStep step = add_route(m, 12, 4);
                       step.score = score;
                       step.scale = 2.5;
                       step.normalized = grouped;
                       if (grouped) {
                         step.bias = m.vector(12);
                         step.groups = 4;
                         step.kept_groups = 2;
                         step.least_sum = 1e-20;
                         step.rank = score == Score::kSoftmax ? RouteStep::Rank::kBest : RouteStep::Rank::kTwoBest;
                       } else {
                         step.expert_scale = m.vector(12, 1);
                       }
                       m.add(step);
                     }});
    }
  }
  for (const Codes codes : {Codes::kBf16, Codes::kI8, Codes::kE4M3, Codes::kF32}) {
    out.push_back({"experts of code type " + std::to_string(int(codes)), [=](PlanMaker& m) {
                     RouteStep route = add_route(m, 7, 3);
                     route.normalized = true;
                     m.add(route);
                     m.add(make_experts(m, route, 40, codes));
                   }});
  }
  out.push_back({"experts in activation order", [=](PlanMaker& m) {
                   const RouteStep route = add_route(m, 5, 2);
                   m.add(route);
                   const ExpertsStep step = make_experts(m, route, 40, Codes::kI8);
                   for (size_t e = 1; e < 5; ++e) {  // the first has none
                     m.order(step.gate[e], int64_t(2 * e) + 5);
                     m.order(step.up[e], int64_t(2 * e) + 5);
                     if (e != 2) m.order(step.down[e], e == 1 ? 3 : 7);
                   }
                   m.add(step);
                 }});
  out.push_back({"experts with scale groups down the columns", [=](PlanMaker& m) {
                   const RouteStep route = add_route(m, 5, 2);
                   m.add(route);
                   const ExpertsStep step = make_experts(m, route, 40, Codes::kI8);
                   for (size_t e = 1; e < 5; ++e) {  // the first has none
                     m.group_columns(step.gate[e], 8);
                     m.group_columns(step.up[e], 20);
                     if (e != 2) m.group_columns(step.down[e], 16);
                   }
                   m.add(step);
                 }});
  out.push_back({"experts with biases, in a row of their own", [=](PlanMaker& m) {
                   const RouteStep route = add_route(m, 5, 2);
                   m.add(route);
                   ExpertsStep step = make_experts(m, route, 24, Codes::kI8);
                   step.gate_bias = m.vector(5 * 24);
                   step.up_bias = m.vector(5 * 24);
                   step.down_bias = m.vector(5 * kHidden);
                   step.activation = Activation::kGeluTanh;
                   step.out = m.row("result", kHidden);
                   step.add = false;
                   m.add(step);
                 }});
  out.push_back({"experts with a limit and an offset", [=](PlanMaker& m) {
                   const RouteStep route = add_route(m, 5, 2);
                   m.add(route);
                   ExpertsStep step = make_experts(m, route, 24, Codes::kBf16);
                   step.activation = Activation::kQuickGelu;
                   step.limit = 0.7;
                   step.up_offset = 1;
                   m.add(step);
                 }});
  out.push_back({"experts without gates", [=](PlanMaker& m) {
                   const RouteStep route = add_route(m, 5, 2);
                   m.add(route);
                   ExpertsStep step = make_experts(m, route, 24, Codes::kI8);
                   step.gate.clear();
                   step.up_bias = m.vector(5 * 24);
                   step.activation = Activation::kReluSquared;
                   m.add(step);
                 }});
  out.push_back({"one expert, whose input is weighted", [=](PlanMaker& m) {
                   RouteStep route = add_route(m, 3, 1);
                   route.score = Score::kSigmoid;
                   m.add(route);
                   ExpertsStep step = make_experts(m, route, 130, Codes::kBf16);
                   step.weighted_input = true;
                   m.add(step);
                 }});
  out.push_back({"a row times one number of each token", [=](PlanMaker& m) {
                   CombineStep step;
                   step.x = step.out = m.residual;
                   step.y = m.products("branch", kHidden);
                   step.gate = m.products("gate", 1);
                   step.activation = Activation::kSigmoid;
                   m.add(step);
                 }});
  return out;
}

inline std::vector<StepCase> recurrence_cases() {
  std::vector<StepCase> out;
  for (const int64_t taps : {1, 2, 4, 9}) {
    out.push_back({"a convolution over " + std::to_string(taps) + " tokens", [=](PlanMaker& m) {
                     ConvStep step;
                     const View whole = m.products("whole", 90);
                     step.in = {whole.row, 3, 75};
                     step.taps = taps;
                     step.state = m.fixed_state((taps - 1) * 75);
                     step.weight = m.vector(75 * taps);
                     if (taps != 4) step.bias = m.vector(75);
                     if (taps > 1) step.activation = Activation::kSilu;
                     step.out = taps == 9 ? m.row("result", 75) : step.in;
                     m.add(step);
                   }});
  }
  using Kind = RecurStep::Kind;
  struct Case {
    std::string name;
    Kind kind;
    int64_t heads, key_heads, key_dim, value_dim;
    bool repeat, unit, skip;
  };
  for (const Case& c :
       {Case{"a gated delta rule", Kind::kGatedDelta, 4, 2, 16, 24, false, true, false},
        Case{"a gated delta rule of repeated heads", Kind::kGatedDelta, 6, 3, 20, 40, true, true, false},
        Case{"an SSD recurrence", Kind::kSsd, 4, 1, 12, 37, false, false, true}}) {
    out.push_back({c.name, [=](PlanMaker& m) {
                     RecurStep step;
                     step.kind = c.kind;
                     step.heads = c.heads;
                     step.key_heads = c.key_heads;
                     step.key_dim = c.key_dim;
                     step.value_dim = c.value_dim;
                     step.state = m.fixed_state(c.heads * c.key_dim * c.value_dim);
                     step.q = {m.products("q", c.key_heads * c.key_dim).row, 0, c.key_dim};
                     step.k = {m.products("k", c.key_heads * c.key_dim).row, 0, c.key_dim};
                     step.v = {m.products("v", c.heads * c.value_dim).row, 0, c.value_dim};
                     step.decay = m.products("decay", c.heads);
                     if (c.kind == Kind::kGatedDelta) step.rate = m.products("rate", c.heads);
                     step.a_log = m.vector(c.heads);
                     step.decay_bias = m.vector(c.heads);
                     if (c.skip) step.skip = m.vector(c.heads);
                     step.key_heads_repeat = c.repeat;
                     step.unit_keys = c.unit;
                     step.eps = 1e-6;
                     step.scale = 0.05;
                     step.out = m.row("result", c.heads * c.value_dim);
                     m.add(step);
                   }});
  }
  return out;
}

inline std::vector<StepCase> step_cases() {
  std::vector<StepCase> out;
  for (auto* cases :
       {lookup_cases, linear_cases, head_linear_cases, combine_cases, attend_cases, mixture_cases, recurrence_cases}) {
    for (StepCase& one : cases()) out.push_back(std::move(one));
  }
  return out;
}

}  // namespace qgen::test
