#include "quantize/group_scale.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "base/numbers.h"

namespace qgen::quantize {
namespace {

constexpr uint32_t kInfinity = 0x7F800000;
// The least magnitude that the tool of Recipe::compat takes a block's largest for.
constexpr float kCompatFloor = 1e-12f;

// Step `i` of `steps` from 0.5 to 1, as torch.linspace() has them: from either end, in F32.
float grid_step(int i, int steps) {
  if (steps == 1) return 0.5f;
  const float step = 0.5f / float(steps - 1);
  return i < steps / 2 ? 0.5f + step * float(i) : 1.0f - step * float(steps - 1 - i);
}

// Whether no element has only ones in its exponent.
template <typename Bits>
bool none_all_ones(std::span<const std::byte> elements, Bits exponent) {
  Bits found = 0;
  for (size_t at = 0; at + sizeof(Bits) <= elements.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, elements.data() + at, sizeof bits);
    found |= Bits((bits & exponent) == exponent);
  }
  return found == 0;
}

}  // namespace

float round_scale(double scale, ScaleType type) {
  if (type == ScaleType::kE8M0) {
    int exponent = 0;
    const bool exact = std::frexp(scale, &exponent) == 0.5;
    return std::ldexp(1.0f, std::clamp(exponent - (exact ? 1 : 0), -126, 127));
  }
  float out = float(std::clamp(scale, double(FLT_MIN), double(FLT_MAX)));
  if (type == ScaleType::kBf16) {
    const float rounded = bf16_to_float(float_to_bf16(out));
    out = std::isinf(rounded) ? bf16_to_float(0x7F7F) : rounded;
  }
  if (type == ScaleType::kF16) {
    constexpr float kLeast = 0x1p-24f, kMost = kLargestF16;  // small weights need F16's subnormal numbers
    out = std::clamp(f16_to_float(float_to_f16(std::min(out, kMost))), kLeast, kMost);
  }
  return out;
}

uint32_t GroupQuantizer::largest_bits(const Group& group, const RoundingKernels& kernels) {
  uint32_t largest = 0;
  for (int64_t r = 0; r < group.rows; ++r)
    largest = std::max(largest, kernels.largest_magnitude(group.row(r), group.cols));
  return largest;
}

double GroupQuantizer::squares(const Group& group, float largest) const {
  double sum = 0;
  for (int64_t r = 0; r < group.rows; ++r)
    sum += kernels_.sum_of_squares(group.row(r), group.weights, group.cols, largest);
  return sum;
}

std::vector<double> GroupQuantizer::errors(const Group& group, float largest) const {
  std::vector<double> out;
  float before = 0;
  for (int step = 0; step < recipe_.mse_steps; ++step) {
    const Scale scale = grid_scale(largest, step);
    // Steps whose scales are stored as the same number have the same error.
    out.push_back(dividing(scale) == before ? out.back() : error(group, scale));
    before = dividing(scale);
  }
  return out;
}

double GroupQuantizer::error(const Group& group, const Scale& scale) const {
  const float divisor = dividing(scale);
  double sum = 0;
  for (int64_t r = 0; r < group.rows; ++r) {
    sum += recipe_.is_fp8()
               ? kernels_.e4m3_error(group.row(r), group.weights, group.cols, divisor)
               : kernels_.int8_error(group.row(r), group.weights, group.cols, divisor, recipe_.ties_away());
  }
  return sum * double(divisor) * double(divisor);
}

Scale GroupQuantizer::finish(double exact) const { return {float(exact), round_scale(exact, type_)}; }

Scale GroupQuantizer::grid_scale(float largest, int step) const {
  return finish(largest * grid_step(step, recipe_.mse_steps) / recipe_.largest_code());
}

Scale GroupQuantizer::from_largest(float largest) const { return finish(largest / recipe_.largest_code()); }

Scale GroupQuantizer::from_squares(float largest, double squares, int64_t positions) const {
  const double rms = double(largest) * std::sqrt(squares / double(positions));
  double wanted = std::max(recipe_.rms_factor * rms, double(largest));
  if (recipe_.compat) wanted = std::max(float(recipe_.rms_factor) * std::max(float(rms), kCompatFloor), largest);
  return finish(wanted / double(recipe_.largest_code()));
}

Scale GroupQuantizer::from_quantile(float largest, double quantile) const {
  if (recipe_.compat) return finish(std::max(float(quantile), kCompatFloor) / recipe_.largest_code());
  // Where nearly all values are zero their quantile is, too; the others count all the more.
  return quantile > 0 ? finish(quantile / double(recipe_.largest_code())) : from_largest(largest);
}

Scale GroupQuantizer::from_errors(float largest, std::span<const double> errors) const {
  size_t best = 0;
  for (size_t i = 1; i < errors.size(); ++i) {
    if (errors[i] < errors[best]) best = i;
  }
  return grid_scale(largest, int(best));
}

double GroupQuantizer::quantile(std::vector<float>& magnitudes, int64_t positions) const {
  const auto zeros = positions - int64_t(magnitudes.size());
  // The rank counts from the smallest, the zeros of the padding; p is an F32 in the tool of Recipe::compat.
  const double p = recipe_.compat ? double(float(recipe_.percentile / 100)) : recipe_.percentile / 100;
  const double rank = p * double(positions - 1);
  const auto below = int64_t(rank);
  const auto at = [&](int64_t i) -> double {
    if (i < zeros) return 0;
    const auto place = magnitudes.begin() + std::min(i - zeros, int64_t(magnitudes.size()) - 1);
    std::nth_element(magnitudes.begin(), place, magnitudes.end());
    return double(*place);
  };
  const double low = at(below);
  return below + 1 < positions ? low + (rank - double(below)) * (at(below + 1) - low) : low;
}

std::optional<Scale> GroupQuantizer::scale(const Group& group) {
  const uint32_t bits = largest_bits(group, kernels_);
  if (bits >= kInfinity) return {};
  float largest = std::bit_cast<float>(bits);
  if (recipe_.compat) largest = std::max(largest, kCompatFloor);
  if (largest == 0) return Scale{};
  switch (recipe_.mode) {
    case Mode::kMax: return from_largest(largest);
    case Mode::kRms: return from_squares(largest, squares(group, largest), group.positions);
    case Mode::kMse: return from_errors(largest, errors(group, largest));
    case Mode::kPercentile: break;
  }
  magnitudes_.clear();
  for (int64_t r = 0; r < group.rows; ++r) {
    for (int64_t c = 0; c < group.cols; ++c) magnitudes_.push_back(std::fabs(group.row(r)[c]));
  }
  return from_quantile(largest, quantile(magnitudes_, group.positions));
}

void GroupQuantizer::codes(const Group& group, int64_t r, const Scale& scale, std::byte* out) const {
  const float divisor = dividing(scale);
  if (recipe_.is_fp8()) {
    kernels_.to_e4m3(group.row(r), group.cols, divisor, reinterpret_cast<uint8_t*>(out));
  } else {
    kernels_.to_int8(group.row(r), group.cols, divisor, recipe_.ties_away(), reinterpret_cast<int8_t*>(out));
  }
}

bool all_finite(std::span<const std::byte> elements, Dtype type) {
  switch (type) {
    case Dtype::kF32: return none_all_ones<uint32_t>(elements, 0x7F800000);
    case Dtype::kF16: return none_all_ones<uint16_t>(elements, 0x7C00);
    case Dtype::kBf16: return none_all_ones<uint16_t>(elements, 0x7F80);
    default: return true;
  }
}

}  // namespace qgen::quantize
