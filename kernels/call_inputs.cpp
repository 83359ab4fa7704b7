#include "kernels/call_inputs.h"

#include <algorithm>
#include <cstring>

#include "base/rounding.h"

namespace qgen::QGEN_BACKEND {

DrawSettings draw_settings(const TokenChoice& choice) {
  // As 32 bits hold it; temperatures of 0 are not divided by.
  const auto inverse = [](double t) { return t > 0 ? float(std::min(1 / t, 1e30)) : 1; };
  return {int32_t(choice.count),       inverse(choice.mass_temperature),
          inverse(choice.temperature), int32_t(std::min<int64_t>(choice.top_k, INT32_MAX)),
          float(choice.top_p),         float(choice.min_p),
          float(choice.random)};
}

CallInputs::CallInputs(const Plan& plan, const EngineOptions& options, const CacheLayout& layout, int64_t tokens,
                       int64_t scored)
    : plan_(plan),
      layout_(layout),
      most_tokens_(tokens),
      most_scored_(scored),
      most_sequences_(options.sequences),
      now_(places(1)) {}

CallInputs::Places CallInputs::places(int64_t tokens) const {
  Places out{};
  const auto take = [&](int64_t numbers) {
    const size_t begin = out.bytes;
    out.bytes += size_t(numbers) * sizeof(int32_t);
    return begin;
  };
  out.tokens = take(tokens);
  out.positions = take(tokens);
  out.sequences = take(tokens);
  out.scored = take(most_scored_);
  const int64_t segments = std::min(tokens, most_sequences_);
  out.segments = take(segments + 1);
  out.slots = take(segments);
  out.new_slots = take(segments);
  out.marked = take(segments);
  out.mark_slots = take(segments);
  out.draw = take(most_scored_ * int64_t(sizeof(DrawSettings) / sizeof(int32_t)));
  for (const CacheGroup& group : layout_.groups())
    out.tables.push_back(take(std::min(tokens, most_sequences_) * group.ring));
  for (const Rope& rope : plan_.ropes) {
    out.cos.push_back(take(tokens * (rope.dim / 2)));
    out.sin.push_back(take(tokens * (rope.dim / 2)));
  }
  out.bytes = size_t(round_up(int64_t(out.bytes), kPiece));
  return out;
}

void CallInputs::fill(const Batch& batch, int side) {
  now_ = places(int64_t(batch.tokens.size()));
  const auto there = [&](size_t place) { return reinterpret_cast<int32_t*>(host_[side].data() + place); };
  // What is not filled in below is not read; it is zero, so that differ_in_token_alone() can compare bytes.
  if (batch.tokens.size() == 1) std::memset(host_[side].data(), 0, now_.bytes);
  std::copy(batch.tokens.begin(), batch.tokens.end(), there(now_.tokens));
  std::copy(batch.scored.begin(), batch.scored.end(), there(now_.scored));
  segments_ = int(std::min(int64_t(batch.tokens.size()), most_sequences_));
  std::fill_n(there(now_.segments), segments_ + 1, int32_t(batch.tokens.size()));
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const Segment& segment = batch.segments[s];
    there(now_.segments)[s] = segment.first;
    there(now_.slots)[s] = segment.slot;
    there(now_.new_slots)[s] = segment.new_slot >= 0 ? segment.new_slot : segment.slot;
    there(now_.marked)[s] = segment.marked > 0 ? segment.first + segment.marked - 1 : -1;
    there(now_.mark_slots)[s] = segment.mark_slot;
    for (int32_t t = 0; t < segment.count; ++t) {
      there(now_.positions)[segment.first + t] = int32_t(segment.position + t);
      there(now_.sequences)[segment.first + t] = int32_t(s);
    }
    // A table that is shorter than its ring is that of a sequence that never goes round it.
    for (size_t g = 0; g < segment.pages.size(); ++g)
      std::copy(segment.pages[g].begin(), segment.pages[g].end(),
                there(now_.tables[g]) + int64_t(s) * layout_.groups()[g].ring);
  }
  std::transform(batch.choices.begin(), batch.choices.end(), reinterpret_cast<DrawSettings*>(there(now_.draw)),
                 draw_settings);
  for (size_t i = 0; i < plan_.ropes.size(); ++i) {
    const auto put = [&](std::span<const double> values, size_t place) {
      std::transform(values.begin(), values.end(), reinterpret_cast<float*>(there(place)),
                     [](double value) { return float(value); });
    };
    put(batch.ropes->cos(i), now_.cos[i]);
    put(batch.ropes->sin(i), now_.sin[i]);
  }
}

bool CallInputs::differ_in_token_alone() const {
  const Places one = places(1);
  return std::memcmp(host_[0].data() + one.positions, host_[1].data() + one.positions, one.bytes - one.positions) == 0;
}

Rotation CallInputs::rotation(int32_t rope) const {
  if (rope < 0) return {};
  const Rope& shape = plan_.ropes[size_t(rope)];
  return {at<float>(now_.cos[size_t(rope)]), at<float>(now_.sin[size_t(rope)]), int(shape.dim / 2),
          shape.pairs == Rope::Pairs::kAdjacent};
}

}  // namespace qgen::QGEN_BACKEND
