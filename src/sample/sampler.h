// From scores to a token. The order and the formulas are those of transformers' logits processors
// (generation/logits_process.py): bias, repetition, presence and frequency penalties, temperature, top-k, top-p,
// min-p, typical-p, then one draw. The same seed and scores give the same tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token.h"
#include "sample/settings.h"

namespace qgen {

// The natural logarithm of a token's probability under the model itself, before any setting.
struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;
};
// log(sum(exp(logits))), in double.
double log_sum_exp(std::span<const float> logits);
// The `count` likeliest tokens, best first, ties by id.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, size_t count);

class Sampler {
 public:
  explicit Sampler(const SamplingSettings& settings);

  // Tokens of the prompt count for the repetition penalty, generated ones for all penalties.
  void see_prompt(std::span<const TokenId> tokens);
  void see_generated(TokenId token);

  // The next token. `logits` must be finite.
  TokenId choose(std::span<const float> logits);
  // The same token, or none, from the few best scores alone, of which there should be wanted() (0: it takes all).
  // `best` is sorted, best first, ties by id, and every other score is lower; nothing is chosen where another might
  // matter.
  size_t wanted() const;
  std::optional<TokenId> choose_among(std::span<const ScoredToken> best);

  using Candidate = ScoredToken;
  // The tokens that all filters leave, with probabilities that add up to 1, best first; what choose() draws from.
  std::vector<std::pair<TokenId, double>> distribution(std::span<const float> logits) const;

 private:
  bool plain() const;  // neither bias nor penalties
  std::vector<Candidate> penalized(std::span<const float> logits) const;
  // What the filters leave; the best is first.
  std::vector<Candidate> filtered(std::vector<Candidate> candidates) const;
  TokenId likeliest(std::span<const float> logits) const;
  TokenId draw(const std::vector<Candidate>& candidates);
  double uniform();  // [0, 1)

  SamplingSettings settings_;
  uint64_t state_[4];
  struct Seen {
    bool in_text = false;
    int64_t generated = 0;
  };
  float penalized(float score, const Seen& seen) const;
  std::unordered_map<TokenId, Seen> seen_;
};

}  // namespace qgen
