#include "model/step.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace qgen {

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu: return x > 0 || std::isnan(x) ? x : 0;
    case Activation::kReluSquared: return x > 0 || std::isnan(x) ? x * x : 0;
    case Activation::kSigmoid: return 1 / (1 + std::exp(-x));
    case Activation::kQuickGelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::kSoftplus: return x > 30 ? x : std::log1p(std::exp(x));
    case Activation::kExpm1Ratio: return std::isnan(x) ? x : x < 0 ? (std::expm1(x) - x) / x : 0;
  }
  return x;
}

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::kNone: return "none";
    case Activation::kSilu: return "silu";
    case Activation::kGelu: return "gelu";
    case Activation::kGeluTanh: return "gelu-tanh";
    case Activation::kRelu: return "relu";
    case Activation::kReluSquared: return "relu2";
    case Activation::kSigmoid: return "sigmoid";
    case Activation::kQuickGelu: return "quick-gelu";
    case Activation::kSoftplus: return "softplus";
    case Activation::kExpm1Ratio: return "expm1-ratio";
  }
  return "?";
}

namespace {

struct RowList {
  std::vector<RowId> rows;
  void add(RowId row) {
    if (row >= 0 && std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  }
};

}  // namespace

std::vector<RowId> rows_read(const Step& step) {
  RowList list;
  std::visit(Overloaded{[](const LookupStep&) {},
                        [&](const LinearStep& s) {
                          list.add(s.in.row);
                          for (const Projection& p : s.projections) {
                            if (p.add) list.add(p.out.row);
                          }
                        },
                        [&](const HeadLinearStep& s) { list.add(s.in.row); },
                        [&](const CombineStep& s) {
                          for (const View& view : {s.x, s.y, s.gate}) list.add(view.row);
                        },
                        [&](const AttendStep& s) {
                          list.add(s.q.row);
                          if (s.stores) list.add(s.k.row);
                          if (s.stores) list.add(s.v.row);
                          list.add(s.gate.row);
                        },
                        [&](const RouteStep& s) { list.add(s.logits.row); },
                        [&](const ExpertsStep& s) {
                          list.add(s.in.row);
                          list.add(s.route.row);
                          if (s.add) list.add(s.out.row);
                        },
                        [&](const ConvStep& s) { list.add(s.in.row); },
                        [&](const RecurStep& s) {
                          for (const RowId row : {s.q.row, s.k.row, s.v.row, s.decay.row, s.rate.row}) list.add(row);
                        }},
             step.op);
  return list.rows;
}

std::vector<RowId> rows_written(const Step& step) {
  RowList list;
  std::visit(Overloaded{[&](const LinearStep& s) {
                          for (const Projection& p : s.projections) list.add(p.out.row);
                        },
                        [&](const auto& s) { list.add(s.out.row); }},
             step.op);
  return list.rows;
}

bool contains(const std::vector<RowId>& rows, RowId row) {
  return std::find(rows.begin(), rows.end(), row) != rows.end();
}

View result_of(const Step& step) {
  return std::visit(Overloaded{[](const LinearStep& s) { return s.projections.front().out; },
                               [](const HeadLinearStep& s) {
                                 // Heads that lie side by side, or the first of those that do not.
                                 const int64_t cols = s.rows() + s.kept;
                                 return View{s.out.row, s.out.first, s.out.stride == cols ? s.heads() * cols : cols};
                               },
                               [](const auto& s) { return s.out; }},
                    step.op);
}

std::string step_name(const Step& step) {
  const auto with = [](std::string name, Activation activation) {
    return activation == Activation::kNone ? name : name + "+" + std::string(activation_name(activation));
  };
  return std::visit(
      Overloaded{[](const LookupStep&) -> std::string { return "lookup"; },
                 [&](const LinearStep& s) {
                   const Projection& first = s.projections.front();
                   return with(s.norm ? "norm+linear" : "linear", first.activation) + (first.add ? "+add" : "");
                 },
                 [](const HeadLinearStep&) -> std::string { return "head-linear"; },
                 [](const CombineStep& s) -> std::string { return s.norm ? "norm+combine" : "combine"; },
                 [](const AttendStep& s) {
                   return std::string(s.q_norm || s.k_norm ? "norm+" : "") + (s.rope >= 0 ? "rotate+" : "") + "attend";
                 },
                 [](const RouteStep&) -> std::string { return "route"; },
                 [&](const ExpertsStep& s) { return with("experts", s.activation) + (s.add ? "+add" : ""); },
                 [&](const ConvStep& s) { return with("conv", s.activation); },
                 [](const RecurStep& s) -> std::string {
                   return s.kind == RecurStep::Kind::kGatedDelta ? "gated-delta" : "ssd";
                 }},
      step.op);
}

}  // namespace qgen
