#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace qgen {

std::vector<double> inverse_frequencies(const Rope& rope, int64_t length) {
  const double d = double(rope.dim);
  const int64_t half = rope.dim / 2;
  std::vector<double> out(half);
  double theta = rope.theta;
  if (rope.scaling == Rope::Scaling::kDynamic) {
    const double ratio = double(std::max(length, rope.original_context)) / double(rope.original_context);
    theta *= std::pow(rope.factor * ratio - (rope.factor - 1), d / (d - 2));
  }
  for (int64_t i = 0; i < half; ++i) out[i] = std::pow(theta, -2.0 * double(i) / d);
  if (rope.pairs_turned > 0) std::fill(out.begin() + rope.pairs_turned, out.end(), 0.0);

  switch (rope.scaling) {
    case Rope::Scaling::kNone:
    case Rope::Scaling::kDynamic: break;
    case Rope::Scaling::kLinear:
      for (double& f : out) f /= rope.factor;
      break;
    case Rope::Scaling::kFactors: {
      const bool is_long = rope.long_factors != nullptr && length > rope.original_context;
      const std::vector<float> factors = (is_long ? rope.long_factors : rope.factors)->values();
      for (int64_t i = 0; i < half; ++i) out[i] /= double(factors[size_t(i)]);
      break;
    }
    case Rope::Scaling::kLlama3:
      for (double& f : out) {
        const double wavelength = 2 * std::numbers::pi / f;
        const double original = double(rope.original_context);
        if (wavelength > original / rope.low_frequency_factor) {
          f /= rope.factor;
        } else if (rope.low_frequency_factor < rope.high_frequency_factor &&
                   wavelength >= original / rope.high_frequency_factor) {
          const double smooth = (original / wavelength - rope.low_frequency_factor) /
                                (rope.high_frequency_factor - rope.low_frequency_factor);
          f = (1 - smooth) * f / rope.factor + smooth * f;
        }
      }
      break;
    case Rope::Scaling::kYarn: {
      const auto correction = [&](double rotations) {
        return d * std::log(double(rope.original_context) / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
      };
      double low = correction(rope.beta_fast), high = correction(rope.beta_slow);
      if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
      }
      low = std::max(low, 0.0);
      high = std::min(high, d - 1);
      if (low == high) high += 0.001;
      for (int64_t i = 0; i < half; ++i) {
        const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
        out[i] = out[i] / rope.factor * ramp + out[i] * (1 - ramp);
      }
      break;
    }
  }
  return out;
}

}  // namespace qgen
