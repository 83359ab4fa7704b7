// The log-probability of each token of a text under a model, and how far its scores are from another model's.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "generate/loader.h"

namespace qgen {

constexpr double kUnscored = INFINITY;  // the log-probability of a token that nothing comes before

// How far a model's scores are from those of another, over all tokens that have a score.
struct Divergence {
  double kl = 0, largest_kl = 0;  // D(other || model), in nats: the sum and the largest of a token
  double nll = 0;                 // of the text under the other model, the sum
  size_t same_choice = 0;         // tokens for which both find the same one likeliest
  size_t tokens = 0;

  double mean_kl() const { return kl / double(tokens > 0 ? tokens : 1); }
  double perplexity() const { return std::exp(nll / double(tokens > 0 ? tokens : 1)); }  // of the other model
  double same_share() const { return double(same_choice) / double(tokens > 0 ? tokens : 1); }
};

struct TextScores {
  std::vector<double> logprobs;  // of each token
  size_t scored = 0;             // tokens that have one
  double mean_nll = 0;
  Divergence divergence;  // where another model was given

  double perplexity() const { return std::exp(mean_nll); }
};

struct ScoringWindows {
  size_t window = 0, stride = 0;  // tokens that run together, and from one window to the next
};

// Receives the scores that follow token `at`, each once and in order.
using TokenScores = std::function<void(size_t at, std::span<const float> scores)>;

// Window by window: each one starts with an empty cache, and a token's score comes from the first window that holds it
// and something before it. Nothing is returned where the control stopped it. Throws a runtime Error where scores are
// not finite.
std::optional<TextScores> score_text(const LoadedModel& model, const LoadedModel* other, std::span<const TokenId> ids,
                                     const ScoringWindows& windows, const RunControl& control,
                                     const TokenScores& each = {});

// The model named `name`, with `options` and its own engine, for score_text() beside `model`. A usage Error that begins
// with `option` where it has another vocabulary.
LoadedModel load_beside(const LoadedModel& model, ModelOptions options, const std::string& name,
                        std::string_view option, int64_t window, const Progress& progress);

}  // namespace qgen
