#include "quantize/compare.h"

#include <algorithm>
#include <cmath>

namespace qgen::quantize {
namespace {

Verdict judge(double error, Band band) {
  // NaN fails.
  return error <= band.good ? Verdict::kGood : error <= band.limit ? Verdict::kWarn : Verdict::kFail;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"GOOD", "WARN", "FAIL"};
  return kNames[size_t(verdict)];
}

Verdict Likeness::cosine_verdict() const { return judge(-cosine, {-kCosineBand.good, -kCosineBand.limit}); }
Verdict Likeness::mean_verdict() const { return judge(mean_error / width, kMeanErrorBand); }
Verdict Likeness::largest_verdict() const { return judge(largest_error / width, kLargestErrorBand); }
Verdict Likeness::verdict() const { return std::max({cosine_verdict(), mean_verdict(), largest_verdict()}); }

void LikenessSum::add(const float* reference, const float* value, int64_t n) {
  // In lanes, so that sums are vectors.
  constexpr int kLanes = 8;
  double dot[kLanes] = {}, a[kLanes] = {}, b[kLanes] = {}, errors[kLanes] = {};
  float largest_error[kLanes] = {}, largest[kLanes] = {};
  const auto step = [&](int64_t i, int lane) {
    const double x = double(reference[i]), y = double(value[i]);
    const float error = std::fabs(reference[i] - value[i]);
    dot[lane] += x * y;
    a[lane] += x * x;
    b[lane] += y * y;
    errors[lane] += double(error);
    // A NaN stays.
    largest_error[lane] = largest_error[lane] >= error ? largest_error[lane] : error;
    const float magnitude = std::max(std::fabs(reference[i]), std::fabs(value[i]));
    largest[lane] = largest[lane] >= magnitude ? largest[lane] : magnitude;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) step(i + lane, lane);
  }
  for (; i < n; ++i) step(i, 0);
  for (int lane = 0; lane < kLanes; ++lane) {
    dot_ += dot[lane];
    reference_squares_ += a[lane];
    value_squares_ += b[lane];
    errors_ += errors[lane];
    largest_error_ = std::max(largest_error_, double(largest_error[lane]));
    largest_ = std::max(largest_, double(largest[lane]));
  }
  count_ += n;
}

void LikenessSum::merge(const LikenessSum& other) {
  dot_ += other.dot_;
  reference_squares_ += other.reference_squares_;
  value_squares_ += other.value_squares_;
  errors_ += other.errors_;
  largest_error_ = std::max(largest_error_, other.largest_error_);
  largest_ = std::max(largest_, other.largest_);
  count_ += other.count_;
}

Likeness LikenessSum::result(bool fixed_bands) const {
  const double near_zero = fixed_bands ? 1e-6 : 0;  // as the tool has it, which calls small matrices alike
  Likeness out;
  if (count_ == 0) return out;
  out.mean_error = errors_ / double(count_);
  out.largest_error = largest_error_;
  if (!fixed_bands) out.width = std::max(1.0, std::sqrt(reference_squares_ / double(count_)) / kTypicalSize);
  const double norms = std::sqrt(reference_squares_) * std::sqrt(value_squares_);
  if (largest_ > near_zero) out.cosine = norms > 0 ? dot_ / norms : 0;
  if (!std::isfinite(errors_)) out.largest_error = std::nan("");
  return out;
}

}  // namespace qgen::quantize
