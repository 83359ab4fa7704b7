// The index of a token in a model's vocabulary.
#pragma once

#include <cstdint>
#include <vector>

namespace qgen {

using TokenId = int32_t;

// A token with its score, a logit.
struct ScoredToken {
  TokenId token;
  float score;
};
// Best first, ties by id.
inline bool better(const ScoredToken& a, const ScoredToken& b) {
  return a.score != b.score ? a.score > b.score : a.token < b.token;
}

// The best scores of a vocabulary, and the softmax denominator over all of it.
struct TopScores {
  std::vector<ScoredToken> best;  // best first, ties by id; every other score is lower
  // The sum of exp((score - the best) / temperature) over all, give or take kMassError of it; 0: not asked for.
  double mass = 0;
};
constexpr double kMassError = 1e-4;

}  // namespace qgen
