// How close a matrix is to another, and what that means.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qgen::quantize {

enum class Verdict : uint8_t { kGood, kWarn, kFail };
std::string_view verdict_name(Verdict verdict);  // "GOOD", "WARN", "FAIL"

// The bands of QuixiAI's quantize_fp8.py: a value is good up to the first limit, and fails beyond the second.
struct Band {
  double good, limit;
};
constexpr Band kCosineBand = {0.9995, 0.995};
constexpr Band kMeanErrorBand = {0.0008, 0.001};
constexpr Band kLargestErrorBand = {0.01, 0.05};

// The bands of errors are for weights of this root mean square, as large models have them, and below; they widen with
// larger ones.
constexpr double kTypicalSize = 0.02;

// Between all elements of two matrices.
struct Likeness {
  double cosine = 1;  // 1 where both are zero
  double mean_error = 0;
  double largest_error = 0;
  double width = 1;  // of the bands of errors

  Verdict cosine_verdict() const;
  Verdict mean_verdict() const;
  Verdict largest_verdict() const;
  Verdict verdict() const;  // the worst of them
};

// Sums up what Likeness is made of; parts of a matrix may be added in any order of calls to add(), then merged in one.
class LikenessSum {
 public:
  void add(const float* reference, const float* value, int64_t n);
  void merge(const LikenessSum& other);
  // `fixed_bands`: as the tool has them, whatever the size of the weights.
  Likeness result(bool fixed_bands) const;

 private:
  double dot_ = 0, reference_squares_ = 0, value_squares_ = 0, errors_ = 0;
  double largest_error_ = 0, largest_ = 0;
  int64_t count_ = 0;
};

// Number i of `count` indices that are spread evenly over [0, all).
inline size_t spread(int64_t i, int64_t count, int64_t all) { return size_t((2 * i + 1) * all / (2 * count)); }

}  // namespace qgen::quantize
