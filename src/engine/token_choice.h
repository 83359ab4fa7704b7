// How the next token is chosen from scores, as far as an engine can foresee it: what Sampler does with them where there
// are neither biases nor penalties. The engine's guess is not the choice: that is the caller's, who may choose
// otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qgen {

struct TokenChoice {
  double temperature = 0;  // 0: the best one, and the rest does not count
  int64_t top_k = 0;       // 0: off
  double top_p = 1;        // 1: off
  double min_p = 0;        // 0: off
  double random = 0;       // what it is drawn with, in [0, 1)
  // With these the caller will ask for the best scores, Scores::top().
  size_t count = 1;
  double mass_temperature = 0;

  bool operator==(const TokenChoice&) const = default;
};

// Of a greedy text: Work::choices.
inline constexpr TokenChoice kGreedyChoices[2] = {};

}  // namespace qgen
