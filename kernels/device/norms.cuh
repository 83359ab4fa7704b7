// Norms of groups of columns.
#pragma once

#include "kernels/device/codes.cuh"

namespace qgen::QGEN_BACKEND {

// The mean of a group of columns, which is subtracted, and the factor that follows.
struct GroupNorm {
  float mean, factor;
};
// for_values(use): calls use(value) for those of a group that this thread has; `sum`: of all that share it.
template <typename ForValues, typename Sum>
QGEN_DEVICE GroupNorm group_norm(const DeviceNorm& norm, const ForValues& for_values, const Sum& sum) {
  float mean = 0, squares = 0;
  if (norm.kind == Norm::Kind::kScale) return {0, 1};
  if (norm.kind == Norm::Kind::kLayer) {
    for_values([&](float x) { mean += x; });
    mean = sum(mean) / float(norm.group);
  }
  for_values([&](float x) { squares = fused_product(x - mean, x - mean, squares); });
  return {mean, rsqrt_exact(sum(squares) / float(norm.group) + norm.eps)};
}
// The weight and the bias of column `c` of a group that begins at column `begin` of the weight.
struct NormColumn {
  float weight = 1, bias = 0;

  QGEN_DEVICE void load(const DeviceNorm& norm, int begin, int c) {
    if (norm.weight != nullptr) weight = norm.weight[norm.wide_weight ? begin + c : c];
    if (norm.bias != nullptr) bias = norm.bias[norm.wide_bias ? begin + c : c];
  }
  QGEN_DEVICE float normalized(const DeviceNorm& norm, const GroupNorm& group, float x) const {
    float value = rounded_product(x - group.mean, group.factor);
    if (norm.weight != nullptr) value = rounded_product(value, weight);
    return norm.bias != nullptr ? value + bias : value;
  }
};

}  // namespace qgen::QGEN_BACKEND
