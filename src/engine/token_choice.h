// How the next token is chosen from scores, as far as an engine can foresee it: what Sampler does with them. The
// engine's guess is not the choice: that is the caller's, who may choose otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qgen {

struct TokenChoice {
  // The settings of Sampler, without biases and penalties. They draw from the `count` best and their mass.
  double temperature = 0;  // 0: the best one is taken
  int64_t top_k = 0;       // 0: off
  double top_p = 1;        // 1: off
  double min_p = 0;        // 0: off
  double random = 0;       // what it is drawn with, in [0, 1)
  // The arguments of Scores::top() that the caller chooses from.
  size_t count = 1;
  double mass_temperature = 0;
};

// Work::choices of a greedy text whose next two tokens are run; the first is that of a guess.
inline constexpr TokenChoice kGreedyChoices[2] = {};

}  // namespace qgen
