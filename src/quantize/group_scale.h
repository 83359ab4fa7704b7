// The scale of one group of a matrix, and its codes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quantize/recipe.h"
#include "quantize/rounding.h"

namespace qgen::quantize {

// A group's values, (rows, cols) in F32, rows `pitch` values apart.
struct Group {
  const float* values = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t pitch = 0;
  const float* weights = nullptr;  // (cols): how much each column's error counts; nullptr: all the same
  // Positions of a whole group: those beyond the matrix count as zeros in means and quantiles.
  int64_t positions = 0;

  const float* row(int64_t r) const { return values + r * pitch; }
};

struct Scale {
  float exact = 1;   // by the mode's formula
  float stored = 1;  // rounded to its type
};

// Finds scales and makes codes by a recipe. Not shared between threads.
class GroupQuantizer {
 public:
  GroupQuantizer(const Recipe& recipe, ScaleType type, const RoundingKernels& kernels = rounding_kernels())
      : recipe_(recipe), type_(type), kernels_(kernels) {}

  // Nothing where a value is NaN or infinite.
  std::optional<Scale> scale(const Group& group);
  // Row r's codes into `out`, cols() bytes.
  void codes(const Group& group, int64_t r, const Scale& scale, std::byte* out) const;

  // For groups that are looked at in pieces: what a piece adds. The bits of its largest magnitude; the sum of
  // (w / largest)^2; the squared error of each step of the mse grid.
  static uint32_t largest_bits(const Group& group, const RoundingKernels& kernels);
  double squares(const Group& group, float largest) const;
  std::vector<double> errors(const Group& group, float largest) const;

  // The scale from statistics of a whole group. `quantile`: of the magnitudes, where the mode asks for it.
  Scale from_largest(float largest) const;
  Scale from_squares(float largest, double squares, int64_t positions) const;
  Scale from_quantile(float largest, double quantile) const;
  Scale from_errors(float largest, std::span<const double> errors) const;
  // The quantile of a recipe: of `magnitudes` (reordered) and as many zeros more as `positions` has.
  double quantile(std::vector<float>& magnitudes, int64_t positions) const;

 private:
  Scale finish(double exact) const;
  Scale grid_scale(float largest, int step) const;
  double error(const Group& group, const Scale& scale) const;
  float dividing(const Scale& scale) const { return recipe_.compat ? scale.exact : scale.stored; }

  const Recipe& recipe_;
  ScaleType type_;
  const RoundingKernels& kernels_;
  std::vector<float> magnitudes_;
};

// The largest number of F16, beyond which a scale of that type is cut off.
inline constexpr float kLargestF16 = 65504;

// A scale rounded to a type, to the nearest (E8M0: up, so that nothing is clipped), within its positive normal numbers
// (F16: positive ones).
float round_scale(double scale, ScaleType type);

// Whether elements of F32, F16 or BF16 are neither NaN nor infinite. Of other types they all are.
bool all_finite(std::span<const std::byte> elements, Dtype type);

}  // namespace qgen::quantize
