#include "model/plan.h"

#include <algorithm>
#include <map>
#include <set>

namespace qgen {
namespace {

// Keys that a query at `position` sees in an AttendStep.
double keys_seen(const AttendStep& step, int64_t position) {
  int64_t keys = position + 1;
  if (step.window > 0) keys = std::min(keys, step.window);
  if (step.chunk > 0) keys = std::min(keys, position % step.chunk + 1);
  return double(keys);
}

std::span<const Step> steps_of_model(const Plan& plan) { return std::span(plan.steps).first(plan.main_steps()); }

size_t bytes_read(std::span<const Step> steps) {
  double bytes = 0;
  for (const Step& step : steps) {
    for_each_weight(step, [&](const Weight& weight, WeightUse use) { bytes += use.share * double(weight.bytes()); });
    for_each_vector(step, [&](const Vector& vector) { bytes += double(vector.size) * sizeof(float); });
  }
  return size_t(bytes);
}

template <typename Use>
void for_each_attend(const Plan& plan, const Use& use) {
  for (const Step& step : steps_of_model(plan)) {
    if (const auto* attend = std::get_if<AttendStep>(&step.op)) use(*attend);
  }
}

bool is_scored(const Plan& plan, const Step& step) { return plan.rows[size_t(result_of(step).row)].scored; }

double matrix_operations(const Plan& plan, bool scored) {
  double total = 0;
  for (const Step& step : steps_of_model(plan)) {
    if (is_scored(plan, step) != scored) continue;
    for_each_weight(step, [&](const Weight& weight, WeightUse use) {
      if (use.multiplies) total += 2 * use.share * double(weight.rows) * double(weight.cols);
    });
  }
  return total;
}

}  // namespace

std::string Plan::method() const {
  std::map<std::string, size_t> quantized, plain;
  for (const Weight& weight : weights) {
    const int64_t bytes = weight.rows * weight.cols * code_bytes(weight.codes);
    (weight.quantized() ? quantized : plain)[method_name(weight)] += size_t(bytes);
  }
  const auto& counts = quantized.empty() ? plain : quantized;
  std::string best;
  size_t most = 0;
  for (const auto& [name, bytes] : counts) {
    if (bytes > most) {
      best = name;
      most = bytes;
    }
  }
  return best;
}

int64_t Plan::parameters() const {
  int64_t count = -repeated_parameters;
  for (const Weight& weight : weights) count += weight.rows * weight.cols;
  for (const Vector& vector : vectors) count += vector.size;
  return count;
}

size_t Plan::weight_bytes() const {
  size_t bytes = 0;
  for (const Weight& weight : weights) bytes += weight.bytes();
  for (const Vector& vector : vectors) bytes += size_t(vector.size) * sizeof(float);
  return bytes;
}

size_t Plan::bytes_per_token() const { return bytes_read(steps_of_model(*this)); }

size_t Plan::bytes_per_guess() const { return bytes_read(std::span(steps).subspan(main_steps())); }

int64_t Plan::nan_codes() const {
  int64_t count = 0;
  for (const Weight& weight : weights) count += weight.nan_codes;
  return count;
}

int64_t Plan::longest_with_draft(int64_t context) const {
  for (const Rope& rope : ropes) {
    // From the original context on, each token's call sets the base.
    if (rope.scaling == Rope::Scaling::kDynamic) context = std::min(context, rope.original_context - 1);
  }
  return context;
}

std::string_view kv_name(KvType type) {
  switch (type) {
    case KvType::kF16: return "f16";
    case KvType::kBf16: return "bf16";
    case KvType::kF32: return "f32";
    case KvType::kFp8: return "fp8";
    case KvType::kInt8: return "int8";
  }
  return "?";
}

int64_t kv_element_bytes(KvType type) {
  switch (type) {
    case KvType::kF32: return 4;
    case KvType::kFp8:
    case KvType::kInt8: return 1;
    default: return 2;
  }
}

int64_t kv_row_bytes(KvType type, int64_t dim) {
  const int64_t scale = kv_element_bytes(type) == 1 ? int64_t(sizeof(float)) : 0;
  return dim * kv_element_bytes(type) + scale;
}

int64_t state_bytes_per_token(const State& state, KvType type) {
  const int64_t values = state.values_in_keys ? 0 : kv_row_bytes(type, state.value_dim);
  return state.kv_heads * (kv_row_bytes(type, state.key_dim) + values);
}

size_t fixed_state_bytes(const Plan& plan) {
  size_t bytes = 0;
  for (const State& state : plan.states) bytes += size_t(state.elements) * sizeof(float);
  return bytes;
}

double kv_bytes_read(const Plan& plan, int64_t position, KvType type) {
  double bytes = double(fixed_state_bytes(plan));
  for_each_attend(plan, [&](const AttendStep& step) {
    bytes += double(state_bytes_per_token(plan.states[size_t(step.state)], type)) * keys_seen(step, position);
  });
  return bytes;
}

double operations(const Plan& plan, int64_t position) {
  double total = matrix_operations(plan, false);
  for_each_attend(plan, [&](const AttendStep& step) {
    total += 2 * double(step.heads) * double(step.key_dim + step.value_dim) * keys_seen(step, position);
  });
  for (const Step& step : steps_of_model(plan)) {
    if (const auto* conv = std::get_if<ConvStep>(&step.op)) total += 2 * double(conv->taps) * double(conv->in.cols);
    // S^T k, the update of S, and S^T q.
    if (const auto* recur = std::get_if<RecurStep>(&step.op))
      total += 6 * double(recur->heads) * double(recur->key_dim) * double(recur->value_dim);
  }
  return total;
}

double score_operations(const Plan& plan) { return matrix_operations(plan, true); }

}  // namespace qgen
