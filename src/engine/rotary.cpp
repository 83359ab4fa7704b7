#include <cmath>

#include "engine/engine.h"

namespace qgen {

RotaryTable::RotaryTable(const Rope& rope, int64_t head_dim)
    : rope_(rope), head_dim_(head_dim), half_(head_dim / 2), frequencies_(inverse_frequencies(rope, head_dim, 0)) {}

void RotaryTable::start(int64_t length) {
  if (rope_.scaling == Rope::Scaling::kDynamic) {
    // transformers, dynamic_rope_update: the base grows with the longest sequence and is reset only when
    // a sequence is shorter than the original context again.
    const int64_t before = std::max(longest_, rope_.original_context);
    if (length > before) {
      longest_ = length;
      frequencies_ = inverse_frequencies(rope_, head_dim_, length);
    } else if (length < rope_.original_context && longest_ > rope_.original_context) {
      longest_ = 0;
      frequencies_ = inverse_frequencies(rope_, head_dim_, 0);
    }
  }
}

void RotaryTable::compute(int64_t first, int64_t count) {
  cos_.resize(count * half_);
  sin_.resize(count * half_);
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t i = 0; i < half_; ++i) {
      const double angle = double(first + t) * frequencies_[i];
      cos_[t * half_ + i] = std::cos(angle) * rope_.attention_factor;
      sin_[t * half_ + i] = std::sin(angle) * rope_.attention_factor;
    }
  }
}

}  // namespace qgen
