#include "generate/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace qgen {
namespace {

using Candidate = Sampler::Candidate;

// A bound on the relative rounding error of a sum of exponentials over a vocabulary.
constexpr double kSumError = 1e-9;
// The number of best candidates that a token is first drawn from; more are ranked only if these do not settle it.
constexpr size_t kFewBest = 256;

double weight(const Candidate& c) { return std::exp(double(c.score)); }

// Probabilities of candidates, whose scores are differences from the best one.
std::vector<double> softmax(const std::vector<Candidate>& candidates) {
  std::vector<double> out(candidates.size());
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i) sum += out[i] = weight(candidates[i]);
  for (double& p : out) p /= sum;
  return out;
}

// Top-p over all candidates: the smallest number of best ones whose probabilities sum to p.
size_t top_p_of_all(const std::vector<Candidate>& candidates, double p) {
  const std::vector<double> probabilities = softmax(candidates);
  // From the worst up, a token goes while the sum so far, itself included, is at most 1 - p.
  double tail = 0;
  size_t keep = candidates.size();
  while (keep > 1 && tail + probabilities[keep - 1] <= 1 - p) tail += probabilities[--keep];
  return keep;
}

// Top-p over the best of more candidates, with bounds on the sum of all weights; 0 if the bounds leave it open.
size_t top_p_of_best(const std::vector<Candidate>& candidates, double p, double least_mass, double most_mass) {
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    sum += weight(candidates[i]);
    if (sum >= p * most_mass) return i + 1;
    if (sum >= p * least_mass) return 0;
  }
  return 0;
}

TokenId likeliest(std::span<const float> scores) {
  return TokenId(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// The best `count` of more, or as many fewer as there are ties with the next one; all where there are no more.
std::vector<Candidate> best_of(std::span<const float> scores, size_t count) {
  std::vector<Candidate> best;
  const bool all = count >= scores.size();
  best.reserve(std::min(2 * count, scores.size()));
  float dropped = -std::numeric_limits<float>::infinity();  // the highest score that `best` does not have
  const auto drop = [&] {
    std::nth_element(best.begin(), best.begin() + ptrdiff_t(count), best.end(), better);
    dropped = best[count].score;
    best.resize(count);
  };
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] <= dropped && !all) continue;  // candidates that tie with it are dropped as well
    best.push_back({TokenId(i), scores[i]});
    if (!all && best.size() == 2 * count) drop();
  }
  if (!all && best.size() > count) drop();
  if (!all) std::erase_if(best, [&](const Candidate& c) { return c.score <= dropped; });
  std::sort(best.begin(), best.end(), better);
  return best;
}

// Locally typical sampling (Meister et al. 2022): tokens whose surprise is nearest to the entropy.
void keep_typical(std::vector<Candidate>& candidates, double mass) {
  if (mass >= 1) return;
  const std::vector<double> probabilities = softmax(candidates);
  double entropy = 0;
  for (const double p : probabilities) entropy -= p > 0 ? p * std::log(p) : 0;
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto distance = [&](size_t i) { return std::abs(-std::log(probabilities[i]) - entropy); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distance(a) < distance(b); });
  double sum = 0;
  size_t last = 0;
  for (; last < order.size(); ++last) {
    sum += probabilities[order[last]];
    if (sum >= mass) break;
  }
  last = std::min(last, order.size() - 1);
  const double threshold = distance(order[last]);
  std::vector<Candidate> kept;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (distance(i) <= threshold) kept.push_back(candidates[i]);
  }
  candidates = std::move(kept);
}

uint64_t rotate_left(uint64_t x, int k) { return x << k | x >> (64 - k); }

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit) - highest);
  return highest + std::log(sum);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, size_t count) {
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) candidates[i] = {TokenId(i), logits[i]};
  count = std::min(count, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end(), better);
  const double total = log_sum_exp(logits);
  std::vector<TokenLogprob> out;
  for (size_t i = 0; i < count; ++i) out.push_back({candidates[i].token, double(candidates[i].score) - total});
  return out;
}

Sampler::Sampler(const SamplingSettings& settings) : settings_(settings) {
  // splitmix64 spreads the seed over the state of xoshiro256** (Blackman and Vigna).
  uint64_t x = settings.seed.value;
  for (uint64_t& word : state_) {
    x += 0x9E3779B97F4A7C15;
    uint64_t z = x;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    word = z ^ z >> 31;
  }
}

double Sampler::uniform(std::span<uint64_t, 4> state) {
  const uint64_t result = rotate_left(state[1] * 5, 7) * 9;
  const uint64_t t = state[1] << 17;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= t;
  state[3] = rotate_left(state[3], 45);
  return double(result >> 11) * 0x1p-53;
}

void Sampler::see_prompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) seen_[token].in_text = true;
}

void Sampler::see_generated(TokenId token) {
  Seen& seen = seen_[token];
  seen.in_text = true;
  ++seen.generated;
}

bool Sampler::plain() const {
  return settings_.logit_bias.empty() && settings_.repetition_penalty.value == 1 &&
         settings_.presence_penalty.value == 0 && settings_.frequency_penalty.value == 0;
}

float Sampler::penalized(float score, const Seen& seen) const {
  const double repetition = settings_.repetition_penalty.value;
  if (seen.in_text) score = float(score < 0 ? score * repetition : score / repetition);
  if (seen.generated > 0)
    score -= float(settings_.presence_penalty.value + settings_.frequency_penalty.value * double(seen.generated));
  return score;
}

std::vector<float> Sampler::penalized(std::span<const float> logits) const {
  std::vector<float> scores(logits.begin(), logits.end());
  const auto in_range = [&](TokenId token) { return token >= 0 && size_t(token) < scores.size(); };
  for (const auto& [token, bias] : settings_.logit_bias) {
    if (in_range(token)) scores[size_t(token)] += float(bias);
  }
  for (const auto& [token, seen] : seen_) {
    if (in_range(token)) scores[size_t(token)] = penalized(scores[size_t(token)], seen);
  }
  return scores;
}

bool Sampler::needs_all() const {
  return settings_.typical_p.value < 1 && settings_.top_k.value == 0 && settings_.top_p.value >= 1 &&
         settings_.min_p.value <= 0;
}

bool Sampler::needs_mass() const {
  return settings_.top_k.value == 0 && (settings_.top_p.value < 1 || settings_.min_p.value <= 0);
}

void Sampler::cool(std::vector<Candidate>& candidates, float best) const {
  // Measured from the best score, so that the smallest temperatures lead to the likeliest token and not out of range.
  for (Candidate& c : candidates) c.score = float((double(c.score) - best) / settings_.temperature.value);
}

bool Sampler::filter(Ranked& ranked) const {
  std::vector<Candidate>& best = ranked.best;
  if (const size_t k = size_t(settings_.top_k.value); k > 0) {
    // The k best and all that tie with the last of them.
    const bool known = k < best.size() && best.back().score < best[k - 1].score;
    if (!known && !ranked.complete) return false;
    if (k < best.size())
      std::erase_if(best, [threshold = best[k - 1].score](const Candidate& c) { return c.score < threshold; });
    ranked.complete = true;
  }
  if (const double p = settings_.top_p.value; p < 1) {
    const size_t keep =
        ranked.complete ? top_p_of_all(best, p) : top_p_of_best(best, p, ranked.least_mass, ranked.most_mass);
    if (keep == 0) return false;
    best.resize(keep);
    ranked.complete = true;
  }
  if (const double min_p = settings_.min_p.value; min_p > 0) {
    if (!ranked.complete && weight(best.back()) >= min_p) return false;
    size_t keep = 1;
    while (keep < best.size() && weight(best[keep]) >= min_p) ++keep;
    best.resize(keep);
    ranked.complete = true;
  }
  if (settings_.typical_p.value < 1) {
    if (!ranked.complete) return false;
    keep_typical(best, settings_.typical_p.value);
  }
  return true;
}

std::optional<TokenId> Sampler::settle(Ranked ranked, double u) const {
  if (!filter(ranked)) return std::nullopt;
  if (ranked.complete) {
    ranked.least_mass = 0;
    for (const Candidate& c : ranked.best) ranked.least_mass += weight(c);
    ranked.most_mass = ranked.least_mass;
  }
  double sum = 0;
  for (const Candidate& c : ranked.best) {
    sum += weight(c);
    if (sum > u * ranked.most_mass) return c.token;
    if (sum > u * ranked.least_mass) return std::nullopt;
  }
  // Rounding may leave a sliver below 1: it belongs to the best, which always has a probability.
  return ranked.complete ? std::optional(ranked.best.front().token) : std::nullopt;
}

std::vector<std::pair<TokenId, double>> Sampler::distribution(std::span<const float> logits) const {
  std::vector<float> changed;
  if (!plain()) logits = changed = penalized(logits);
  if (settings_.greedy()) return {{likeliest(logits), 1.0}};
  Ranked ranked{best_of(logits, logits.size()), true};
  cool(ranked.best, ranked.best.front().score);
  filter(ranked);
  const std::vector<double> probabilities = softmax(ranked.best);
  std::vector<std::pair<TokenId, double>> out;
  out.reserve(ranked.best.size());
  for (size_t i = 0; i < ranked.best.size(); ++i) out.emplace_back(ranked.best[i].token, probabilities[i]);
  return out;
}

TokenId Sampler::choose(std::span<const float> logits) {
  std::vector<float> changed;
  if (!plain()) logits = changed = penalized(logits);
  if (settings_.greedy()) return likeliest(logits);
  const double u = uniform();
  const float best = *std::max_element(logits.begin(), logits.end());
  double mass = 0;
  if (needs_mass() && !needs_all()) {
    // As cool() rounds them.
    for (const float score : logits)
      mass += std::exp(double(float((double(score) - best) / settings_.temperature.value)));
  }
  // The choice seldom goes beyond the few best, and to sort a whole vocabulary takes longer than a small model's token.
  for (size_t count = needs_all() ? logits.size() : kFewBest;; count *= 8) {
    Ranked ranked{best_of(logits, count), count >= logits.size(), mass * (1 - kSumError), mass * (1 + kSumError)};
    cool(ranked.best, best);
    if (ranked.best.empty()) continue;  // all of them tie
    if (const auto token = settle(std::move(ranked), u)) return *token;
  }
}

Sampler::Wanted Sampler::wanted() const {
  // Some more than are kept: for those that tie, and those that penalties push down.
  constexpr int64_t kMost = 200, kMore = 40;
  // Only what pushes scores down leaves the others below the best.
  const bool lowers = settings_.logit_bias.empty() && settings_.repetition_penalty.value >= 1 &&
                      settings_.presence_penalty.value >= 0 && settings_.frequency_penalty.value >= 0;
  if (!lowers) return {};
  if (settings_.greedy()) return {size_t(plain() ? 1 : 1 + kMore), 0};
  if (needs_all()) return {};
  const int64_t k = settings_.top_k.value;
  if (k > 0) return {size_t(k <= kMost ? k + kMore : 0), 0};
  return {kFewBest, needs_mass() ? settings_.temperature.value : 0};
}

std::vector<TokenChoice> Sampler::upcoming(size_t count) const {
  const Wanted best = wanted();
  if (best.count == 0) return {};
  TokenChoice choice;
  choice.count = best.count;
  choice.mass_temperature = best.temperature;
  // Which token that will be is not foreseen.
  if (!plain() || settings_.typical_p.value < 1) return std::vector<TokenChoice>(std::min<size_t>(count, 1), choice);
  if (settings_.greedy()) return std::vector<TokenChoice>(count, choice);
  choice.temperature = settings_.temperature.value;
  choice.top_k = settings_.top_k.value;
  choice.top_p = settings_.top_p.value;
  choice.min_p = settings_.min_p.value;
  std::vector<TokenChoice> out;
  for (auto state = std::to_array(state_); out.size() < count; out.push_back(choice)) choice.random = uniform(state);
  return out;
}

std::optional<TokenId> Sampler::choose_among(const TopScores& top) {
  if (top.best.empty() || wanted().count == 0) return std::nullopt;
  if (settings_.greedy() && plain()) return top.best.front().token;
  // All that are not here are below this.
  const float lowest = top.best.back().score;
  std::vector<Candidate> candidates = top.best;
  size_t elsewhere = seen_.size();  // tokens with penalties that are not here
  if (!plain()) {
    for (Candidate& c : candidates) {
      if (const auto seen = seen_.find(c.token); seen != seen_.end()) {
        c.score = penalized(c.score, seen->second);
        --elsewhere;
      }
    }
    std::sort(candidates.begin(), candidates.end(), better);
  }
  const float best = candidates.front().score;
  if (best < lowest) return std::nullopt;
  if (settings_.greedy()) return candidates.front().token;
  Ranked ranked;
  if (needs_mass()) {
    if (top.mass <= 0) return std::nullopt;
    const double t = settings_.temperature.value, first = top.best.front().score, error = top.mass * kMassError;
    // What the others weigh, measured from the best as it was.
    double others = top.mass;
    for (const ScoredToken& c : top.best) others -= std::exp((c.score - first) / t);
    const double lost = plain() ? 0 : double(elsewhere) * std::exp((lowest - first) / t);
    double known = 0;
    for (const Candidate& c : candidates) known += std::exp((double(c.score) - best) / t);
    const double raise = std::exp((first - best) / t);
    ranked.least_mass = (known + raise * std::max(0.0, others - error - lost)) * (1 - kSumError);
    ranked.most_mass = (known + raise * std::max(0.0, others + error)) * (1 + kSumError);
    if (!std::isfinite(ranked.most_mass)) return std::nullopt;
  }
  std::erase_if(candidates, [&](const Candidate& c) { return c.score < lowest; });
  cool(candidates, best);
  ranked.best = std::move(candidates);
  const auto before = std::to_array(state_);
  const std::optional<TokenId> token = settle(std::move(ranked), uniform());
  if (!token) std::copy(before.begin(), before.end(), state_);
  return token;
}

}  // namespace qgen
