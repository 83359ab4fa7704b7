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
  struct Visitor {
    RowList list;
    void operator()(const LookupStep&) {}
    void operator()(const LinearStep& s) {
      list.add(s.in.row);
      for (const Projection& p : s.projections) {
        if (p.add) list.add(p.out.row);
      }
    }
    void operator()(const CombineStep& s) {
      list.add(s.x.row);
      list.add(s.y.row);
      list.add(s.gate.row);
    }
    void operator()(const AttendStep& s) {
      list.add(s.q.row);
      if (s.stores) list.add(s.k.row);
      if (s.stores) list.add(s.v.row);
      list.add(s.gate.row);
    }
  } visitor;
  std::visit(visitor, step.op);
  return visitor.list.rows;
}

std::vector<RowId> rows_written(const Step& step) {
  struct Visitor {
    RowList list;
    void operator()(const LookupStep& s) { list.add(s.out.row); }
    void operator()(const LinearStep& s) {
      for (const Projection& p : s.projections) list.add(p.out.row);
    }
    void operator()(const CombineStep& s) { list.add(s.out.row); }
    void operator()(const AttendStep& s) { list.add(s.out.row); }
  } visitor;
  std::visit(visitor, step.op);
  return visitor.list.rows;
}

View result_of(const Step& step) {
  struct Visitor {
    View operator()(const LookupStep& s) const { return s.out; }
    View operator()(const LinearStep& s) const { return s.projections.front().out; }
    View operator()(const CombineStep& s) const { return s.out; }
    View operator()(const AttendStep& s) const { return s.out; }
  };
  return std::visit(Visitor{}, step.op);
}

std::string step_name(const Step& step) {
  struct Visitor {
    std::string operator()(const LookupStep&) const { return "lookup"; }
    std::string operator()(const LinearStep& s) const {
      std::string out = s.norm ? "norm+linear" : "linear";
      const Projection& first = s.projections.front();
      if (first.activation != Activation::kNone) out += "+" + std::string(activation_name(first.activation));
      if (first.add) out += "+add";
      return out;
    }
    std::string operator()(const CombineStep& s) const { return s.norm ? "norm+combine" : "combine"; }
    std::string operator()(const AttendStep& s) const {
      return s.q_norm || s.k_norm ? (s.rope >= 0 ? "norm+rotate+attend" : "norm+attend")
                                  : (s.rope >= 0 ? "rotate+attend" : "attend");
    }
  };
  return std::visit(Visitor{}, step.op);
}

}  // namespace qgen
