// The norms of a plan (model/step.h) in double precision, for engines and tools that compute exactly.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/step.h"

namespace qgen {

// Normalizes x in place. `weight` and `bias`: the values of the norm's vectors, empty where it has none. `first`: the
// column of a whole row at which x begins, for vectors of whole rows.
inline void normalize(const Norm& norm, std::span<const float> weight, std::span<const float> bias, std::span<double> x,
                      int64_t first = 0) {
  if (!norm) return;
  // Of the column's own, or the same for every group.
  const auto element = [&](std::span<const float> values, int64_t column, double fallback) {
    if (values.empty()) return fallback;
    return double(values[size_t(int64_t(values.size()) == norm.group ? column % norm.group : column)]);
  };
  for (size_t begin = 0; begin < x.size(); begin += size_t(norm.group)) {
    const size_t end = begin + size_t(norm.group);
    double mean = 0, squares = 0;
    if (norm.kind == Norm::Kind::kLayer) {
      for (size_t k = begin; k < end; ++k) mean += x[k] / double(norm.group);
    }
    for (size_t k = begin; k < end; ++k) squares += (x[k] - mean) * (x[k] - mean);
    const double factor = norm.kind == Norm::Kind::kScale ? 1 : 1 / std::sqrt(squares / double(norm.group) + norm.eps);
    for (size_t k = begin; k < end; ++k) {
      const int64_t column = first + int64_t(k);
      x[k] = (x[k] - mean) * factor * element(weight, column, 1) + element(bias, column, 0);
    }
  }
}

}  // namespace qgen
