#include "cpu/shortlist.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/numbers.h"
#include "base/rounding.h"

namespace qgen::cpu {
namespace {

// The copy is made after the first kShortAnswer tokens, during kGrowingBatches of them. It costs as much time as it
// saves in some 15 tokens, which short answers do not have.
constexpr int64_t kShortAnswer = 8, kGrowingBatches = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint16_t bound_of(float norm) { return bf16_upwards(std::bit_cast<uint32_t>(norm)); }

// Row n of a matrix of floats, zeros behind it up to `padded`. No library calls within the loops: they are vectorized.
void decode_floats(const Weight& weight, int64_t n, float* out, int64_t padded) {
  const std::byte* const row = weight.code_at(n, 0);
  const auto bits = [&](int64_t k) {
    uint16_t two;
    std::memcpy(&two, row + 2 * k, sizeof two);
    return two;
  };
  switch (weight.codes) {
    case Codes::kF32: std::memcpy(out, row, size_t(weight.cols) * sizeof(float)); break;
    case Codes::kBf16:
      for (int64_t k = 0; k < weight.cols; ++k) out[k] = bf16_to_float(bits(k));
      break;
    default:
      for (int64_t k = 0; k < weight.cols; ++k) out[k] = f16_to_float(bits(k));
  }
  std::fill(out + weight.cols, out + padded, 0.0f);
}

float norm_of_squares(float squares) { return shortlist_norm(std::sqrt(squares)); }

}  // namespace

Shortlist::Shortlist(const Projection& head, const IsaTarget& target, int workers)
    : head_(*head.weight),
      scale_(float(head.scale)),
      softcap_(float(head.softcap)),
      target_(target),
      groups_(shortlist_groups(head_.cols)),
      padded_rows_(round_up(head_.rows, kRows)),
      rows_a_batch_(round_up((head_.rows + kGrowingBatches - 1) / kGrowingBatches, kRows)),
      listed_(size_t(workers)) {
  copy_.name = head_.name;
  copy_.rows = head_.rows;
  copy_.cols = copy_.row_bytes = head_.cols;
  copy_.codes = Codes::kI8;
  copy_.scale = make_grid(head_.rows, head_.cols, 1, head_.cols);
  copy_.scale.row_pitch = copy_.scale.col_pitch = sizeof(float);
  copy_.scale.data = reinterpret_cast<const std::byte*>(scales_.data());
  kernel_.emplace(copy_, target, Activations::k16Bit);
  lay_out();
}

void Shortlist::lay_out() {
  codes_ = memory_.take<int8_t>(head_.rows * head_.cols);
  bounds_ = memory_.take<uint16_t>((groups_ + 1) * padded_rows_);
}

void Shortlist::lay_out_work(Arena& work) {
  inputs_ = work.take<float>(int64_t(kTokens) * head_.cols);
  norms_ = work.take<float>(int64_t(kTokens) * (groups_ + 1));
  upper_ = work.take<float>(int64_t(kTokens) * padded_rows_);
  best_lower_ = work.take<float>(int64_t(kTokens) * padded_rows_ / kRows);
}

void Shortlist::allocate() {
  memory_.allocate("output head in 8 bits");
  lay_out();
  scales_.resize(size_t(head_.rows));
  copy_.data = {reinterpret_cast<const std::byte*>(codes_), size_t(head_.rows * head_.cols)};
  copy_.scale.data = reinterpret_cast<const std::byte*>(scales_.data());
  kernel_.emplace(copy_, target_, Activations::k16Bit);
}

Shortlist::Use Shortlist::begin(const Batch& batch) {
  std::vector<size_t> counts = shortlist_counts(batch, size_t(padded_rows_ / kRows), kTokens);
  if (counts.empty()) return Use::kNone;
  if (added_ < head_.rows) return ++waited_ <= kShortAnswer ? Use::kNone : Use::kGrow;
  if (rest_.rests()) return Use::kNone;
  counts_ = std::move(counts);
  for (auto& listed : listed_) listed.clear();
  return Use::kFind;
}

void Shortlist::end(Use use) {
  if (use == Use::kGrow) {
    added_ = rows_to_add().second;
    if (added_ == head_.rows) kernel_->load(copy_);
  }
  if (use == Use::kFind) {
    int64_t rows = 0;
    for (const auto& listed : listed_) rows += int64_t(listed.size());
    rest_.look_at(rows, head_.rows);
  }
}

void Shortlist::add_row(int64_t row, float* values) {
  const int64_t padded = groups_ * kShortlistGroup;
  decode_floats(head_, row, values, padded);
  // A row with NaN or infinity is on every shortlist.
  const float largest = target_.magnitude(values, padded);
  const bool finite = std::isfinite(largest), scaled = finite && largest > kLeastShortlistPeak;
  const float scale = scaled ? largest / 127 : 0, inverse = scaled ? 127 / largest : 0;
  scales_[size_t(row)] = scale;
  if (!finite) std::fill_n(values, padded, 0.0f);
  float of_row = 0;
  for (int64_t g = 0; g < groups_; ++g) {
    int8_t codes[kShortlistGroup];
    float squares = 0, left = 0;
    target_.round_weights(values + g * kShortlistGroup, kShortlistGroup, inverse, scale, codes, &squares, &left);
    of_row += squares;
    const int64_t first = g * kShortlistGroup;
    std::memcpy(codes_ + row * head_.cols + first, codes, size_t(std::min(kShortlistGroup, head_.cols - first)));
    bounds_[g * padded_rows_ + row] = bound_of(finite ? norm_of_squares(left) : kInfinity);
  }
  bounds_[groups_ * padded_rows_ + row] = bound_of(finite ? norm_of_squares(of_row) : kInfinity);
}

void Shortlist::measure(int64_t token, const float* x) {
  std::copy_n(x, head_.cols, inputs_ + token * head_.cols);
  float* const norms = norms_ + token * (groups_ + 1);
  float largest = 0, squares = 0;
  for (int64_t g = 0; g < groups_; ++g) {
    const int64_t first = g * kShortlistGroup, end = std::min(head_.cols, first + kShortlistGroup);
    float of_group = 0;
    for (int64_t k = first; k < end; ++k) {
      largest = std::max(largest, std::abs(x[k]));
      of_group += x[k] * x[k];
    }
    norms[g] = norm_of_squares(of_group);
    squares += norms[g] * norms[g];
  }
  // The products see the input as integers of 16 bits, or floats that are more exact: each element is off by up to
  // 2^-16 of the largest, in either of two products, of rows of which the copy's are up to half as long again.
  const float rounded = 3 * 0x1p-16f * largest * std::sqrt(float(head_.cols));
  norms[groups_] = kShortlistRounding * std::sqrt(squares) + rounded;
}

void Shortlist::bound(const Input& x, Kernels kernels, int64_t begin, int64_t end, void* scratch) {
  kernel_->multiply(x, kernels, begin, end, upper_ + begin, padded_rows_, scratch);
  for (int64_t t = 0; t < x.tokens; ++t) {
    const float* const norms = norms_ + t * (groups_ + 1);
    for (int64_t first = begin; first < end; first += kRows) {
      float error[kRows];
      std::fill_n(error, kRows, kShortlistFlushed);
      for (int64_t g = 0; g <= groups_; ++g) {
        const uint16_t* const bounds = bounds_ + g * padded_rows_ + first;
        for (int64_t i = 0; i < kRows; ++i) error[i] += bf16_to_float(bounds[i]) * norms[g];
      }
      float* const scores = upper_ + t * padded_rows_ + first;
      if (first + kRows > head_.rows) std::fill(scores + head_.rows - first, scores + kRows, -kInfinity);
      float best = -kInfinity;
      for (int64_t i = 0; i < kRows; ++i) {
        const float lower = scores[i] - error[i];
        best = lower > best ? lower : best;
        scores[i] += error[i];
      }
      best_lower_[(t * padded_rows_ + first) / kRows] = best;
    }
  }
}

void Shortlist::choose_rows(int64_t token) {
  // The largest of each kRows are different rows: the count()-th of them is no better than that of all rows.
  const int64_t parts = padded_rows_ / kRows;
  float* const lower = best_lower_ + token * parts;
  float* const last = lower + count(token) - 1;
  std::nth_element(lower, last, lower + parts, std::greater<>());
  float least = *last;
  // All rows are multiplied at once where the list would come out empty.
  if (softcap_ > 0 && !(std::abs(least * scale_) < kMostShortlistCaps * softcap_)) least = -kInfinity;
  least_[token] = least;
}

std::vector<ScoredToken> Shortlist::best(int64_t token, const float* scores) const {
  // Tokens that are not on the list may have any score up to here; those that set it are above by what bounds them.
  float limit = least_[token] * scale_;
  if (softcap_ > 0) limit = softcap_ * (std::tanh(limit / softcap_) + kShortlistCapError);
  std::vector<ScoredToken> out;
  for (const auto& listed : listed_) {
    for (const int64_t row : listed) {
      if (scores[row] > limit) out.push_back({TokenId(row), scores[row]});
    }
  }
  std::sort(out.begin(), out.end(), better);
  return out;
}

bool Shortlist::all_finite(const float* scores) const {
  return std::ranges::all_of(listed_, [&](const std::vector<int64_t>& listed) {
    return std::ranges::all_of(listed, [&](int64_t row) { return std::isfinite(scores[row]); });
  });
}

}  // namespace qgen::cpu
