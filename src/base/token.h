// The index of a token in a model's vocabulary.
#pragma once

#include <cstdint>

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

}  // namespace qgen
