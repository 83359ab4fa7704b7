#include "kernels/fused_steps.h"

#include <algorithm>

namespace qgen::QGEN_BACKEND {
namespace {

bool share(const std::vector<RowId>& one, const std::vector<RowId>& other) {
  return std::any_of(one.begin(), one.end(), [&](RowId row) { return contains(other, row); });
}

bool overlap(const View& one, const View& other) {
  return one.row == other.row && one.first < other.first + other.cols && other.first < one.first + one.cols;
}
View columns(const Heads& heads, int64_t count, int64_t dim) {
  return {heads.row, heads.first, (count - 1) * heads.stride + dim};
}
bool holds(const View& all, const View& part) {
  return part.row == all.row && part.first >= all.first && part.first + part.cols <= all.first + all.cols;
}

// Whether a LinearStep only stores one product of an input as it is.
bool stores_one_product(const LinearStep& step) {
  const Projection& p = step.projections.front();
  return step.projections.size() == 1 && !step.norm && p.gate == nullptr && p.bias == nullptr &&
         p.activation == Activation::kNone && p.scale == 1 && p.softcap == 0 && !p.add;
}

}  // namespace

FusedSteps::FusedSteps(const Plan& plan) : plan_(plan) {
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    independent_.push_back(count_independent(i));
    has_sum_.push_back(finds_sum(i));
    has_conv_.push_back(finds_conv(i));
    has_gate_.push_back(finds_gate(i));
    has_gate_for_next_.push_back(finds_gate_for_next(i));
    has_values_for_next_.push_back(finds_values_for_next(i));
  }
}

bool FusedSteps::is_read(RowId row, size_t first) const {
  for (size_t i = first; i < plan_.steps.size(); ++i) {
    if (contains(rows_read(plan_.steps[i]), row)) return true;
    if (contains(rows_written(plan_.steps[i]), row)) return false;
  }
  return false;
}

size_t FusedSteps::count_independent(size_t step) const {
  const Step& one = plan_.steps[step];
  if (!std::holds_alternative<LinearStep>(one.op)) return 0;
  const std::vector<RowId> read = rows_read(one), written = rows_written(one);
  size_t count = 0;
  for (size_t i = step + 1; i < plan_.steps.size() && std::holds_alternative<LinearStep>(plan_.steps[i].op); ++i) {
    const std::vector<RowId> written_then = rows_written(plan_.steps[i]);
    if (share(written, written_then) || share(written, rows_read(plan_.steps[i])) || share(read, written_then)) break;
    ++count;
  }
  return count;
}

bool FusedSteps::finds_sum(size_t step) const {
  const auto* const linear = std::get_if<LinearStep>(&plan_.steps[step].op);
  if (linear == nullptr || !stores_one_product(*linear) || step + 1 >= plan_.steps.size()) return false;
  const auto* const sum = std::get_if<CombineStep>(&plan_.steps[step + 1].op);
  if (sum == nullptr || sum->norm || sum->x_scale != 1 || sum->y_scale != 1 || sum->x != sum->out) return false;
  const View& product = linear->projections.front().out;
  return sum->gate && sum->gate.cols == 1 && sum->activation == Activation::kSigmoid && sum->y == product &&
         sum->gate.row != product.row && sum->gate.row != sum->out.row && sum->out.row != product.row &&
         sum->out.row != linear->in.row && !is_read(product.row, step + 2);
}

bool FusedSteps::is_for_next(size_t step, const View& out) const {
  if (step + 1 >= plan_.steps.size()) return false;
  const auto* const next = std::get_if<LinearStep>(&plan_.steps[step + 1].op);
  return next != nullptr && !next->norm && next->in == out && !contains(rows_read(plan_.steps[step]), out.row) &&
         !contains(rows_written(plan_.steps[step + 1]), out.row) && !is_read(out.row, step + 2);
}

bool FusedSteps::finds_gate_for_next(size_t step) const {
  const auto* const linear = std::get_if<LinearStep>(&plan_.steps[step].op);
  if (linear == nullptr || linear->projections.size() != 1) return false;
  const Projection& p = linear->projections.front();
  return p.gate != nullptr && is_for_next(step, p.out);
}

bool FusedSteps::finds_values_for_next(size_t step) const {
  const auto* const attend = std::get_if<AttendStep>(&plan_.steps[step].op);
  return attend != nullptr && is_for_next(step, attend->out);
}

bool FusedSteps::finds_conv(size_t step) const {
  const auto* const recur = std::get_if<RecurStep>(&plan_.steps[step].op);
  if (recur == nullptr || step == 0) return false;
  const auto* const conv = std::get_if<ConvStep>(&plan_.steps[step - 1].op);
  if (conv == nullptr) return false;
  const View& out = conv->out;
  // Each column is of one key head or of one value head, whose block moves its inputs on.
  const View q = columns(recur->q, recur->key_heads, recur->key_dim),
             k = columns(recur->k, recur->key_heads, recur->key_dim),
             v = columns(recur->v, recur->heads, recur->value_dim);
  const bool is_input = holds(out, q) && holds(out, k) && holds(out, v) && !overlap(q, k) && !overlap(q, v) &&
                        !overlap(k, v) && recur->q.stride >= recur->key_dim && recur->k.stride >= recur->key_dim &&
                        recur->v.stride >= recur->value_dim && recur->heads % recur->key_heads == 0;
  const bool is_simple = conv->activation == Activation::kSilu || conv->activation == Activation::kNone;
  if (!is_input || !is_simple || conv->in != out || overlap(out, recur->decay) || overlap(out, recur->rate) ||
      recur->out.row == out.row)
    return false;
  // The step behind may read a gate from other columns of the row.
  size_t behind = step + 1;
  if (behind < plan_.steps.size()) {
    const auto* const gate = std::get_if<CombineStep>(&plan_.steps[behind].op);
    if (gate != nullptr && !overlap(out, gate->x) && !overlap(out, gate->y) && !overlap(out, gate->gate) &&
        gate->out.row != out.row)
      ++behind;
  }
  return !is_read(out.row, behind);
}

bool FusedSteps::finds_gate(size_t step) const {
  const auto* const recur = std::get_if<RecurStep>(&plan_.steps[step].op);
  if (recur == nullptr || step + 1 >= plan_.steps.size()) return false;
  const auto* const gate = std::get_if<CombineStep>(&plan_.steps[step + 1].op);
  if (gate == nullptr) return false;
  const Norm& norm = gate->norm;
  const bool of_heads = norm.kind == Norm::Kind::kRms && norm.group == recur->value_dim && norm.bias == nullptr;
  const bool is_simple = gate->activation == Activation::kSilu || gate->activation == Activation::kSigmoid;
  return (!norm || of_heads) && is_simple && !gate->x && gate->y_scale == 1 && gate->y == recur->out &&
         gate->out == recur->out && gate->gate && gate->gate.cols == recur->out.cols &&
         gate->gate.row != recur->out.row;
}

}  // namespace qgen::QGEN_BACKEND
