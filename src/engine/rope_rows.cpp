#include "engine/rope_rows.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {

RopeRows::RopeRows(std::span<const Rope> ropes, int64_t context)
    : ropes_(ropes.begin(), ropes.end()), rows_(ropes.size()) {
  for (size_t i = 0; i < ropes_.size(); ++i) {
    for (const Vector* factors : {ropes_[i].factors, ropes_[i].long_factors}) {
      if (factors == nullptr) continue;
      for (const float factor : factors->values()) {
        if (!(factor > 0 && std::isfinite(factor)))
          fail(ErrorKind::kModel, fmt::format("tensor {}: holds {} (expected numbers above 0)", factors->name, factor));
      }
    }
    rows_[i].frequencies = inverse_frequencies(ropes_[i], ropes_[i].scaling == Rope::Scaling::kFactors ? context : 0);
  }
}

void RopeRows::start(RopeLengths& lengths, int64_t length) const {
  lengths.resize(ropes_.size(), 0);
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const Rope& rope = ropes_[i];
    if (rope.scaling != Rope::Scaling::kDynamic) continue;
    // transformers, dynamic_rope_update: the base grows with the longest sequence and is reset only when a sequence is
    // shorter than the original context again.
    if (length > std::max(lengths[i], rope.original_context)) {
      lengths[i] = length;
    } else if (length < rope.original_context && lengths[i] > rope.original_context) {
      lengths[i] = 0;
    }
  }
}

bool RopeRows::may_change(const RopeLengths& lengths, int64_t length) const {
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const bool scaled = i < lengths.size() && lengths[i] > 0;
    if (ropes_[i].scaling == Rope::Scaling::kDynamic && (scaled || length > ropes_[i].original_context)) return true;
  }
  return false;
}

void RopeRows::clear() {
  for (Rows& rows : rows_) {
    rows.cos.clear();
    rows.sin.clear();
  }
}

void RopeRows::add(const RopeLengths& lengths, int64_t first, int64_t count) {
  for (size_t i = 0; i < ropes_.size(); ++i) {
    Rows& rows = rows_[i];
    const bool scaled = lengths[i] > 0;
    const std::vector<double> own = scaled ? inverse_frequencies(ropes_[i], lengths[i]) : std::vector<double>();
    const std::vector<double>& frequencies = scaled ? own : rows.frequencies;
    for (int64_t t = first; t < first + count; ++t) {
      for (const double frequency : frequencies) {
        rows.cos.push_back(std::cos(double(t) * frequency) * ropes_[i].attention_factor);
        rows.sin.push_back(std::sin(double(t) * frequency) * ropes_[i].attention_factor);
      }
    }
  }
}

}  // namespace qgen
