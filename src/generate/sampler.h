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
#include "engine/token_choice.h"
#include "generate/sampling_settings.h"

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
  // The same token, or none where another might matter, from the few best scores alone.
  std::optional<TokenId> choose_among(const TopScores& top);
  // How many of them there should be, 0 where only all will do, and the temperature for their mass, 0 where that is not
  // needed.
  struct Wanted {
    size_t count = 0;
    double temperature = 0;
  };
  Wanted wanted() const;
  // How the next `count` tokens will be chosen, for Work::choices. One at most where that cannot be foreseen
  // (penalties, typical-p), with what top() will be asked for; none where all scores will be.
  std::vector<TokenChoice> upcoming(size_t count) const;

  using Candidate = ScoredToken;
  // The tokens that all filters leave, with probabilities that add up to 1, best first; what choose() draws from.
  std::vector<std::pair<TokenId, double>> distribution(std::span<const float> logits) const;

 private:
  // Candidates on their way to a choice, best first, their scores less the best's and divided by the temperature. Not
  // all need be known: those that are not are worse.
  struct Ranked {
    std::vector<Candidate> best;
    bool complete = false;
    double least_mass = 0, most_mass = 0;  // bounds of the sum of exp(score) over all, known or not
  };

  bool plain() const;       // neither bias nor penalties
  bool needs_all() const;   // a filter looks at all candidates at once
  bool needs_mass() const;  // what all of them weigh
  std::vector<float> penalized(std::span<const float> logits) const;
  // Divides by the temperature, from `best` on.
  void cool(std::vector<Candidate>& candidates, float best) const;
  // Leaves what the filters leave; false where more must be known.
  bool filter(Ranked& ranked) const;
  // What the point `u` of [0, 1) falls on; none where more must be known.
  std::optional<TokenId> settle(Ranked ranked, double u) const;
  // In [0, 1).
  static double uniform(std::span<uint64_t, 4> state);
  double uniform() { return uniform(state_); }

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
