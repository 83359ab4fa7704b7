#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace qgen {
namespace {

using Candidate = Sampler::Candidate;

// Probabilities of candidates that are sorted best first.
std::vector<double> softmax(const std::vector<Candidate>& candidates) {
  std::vector<double> out(candidates.size());
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i)
    sum += out[i] = std::exp(double(candidates[i].score) - candidates.front().score);
  for (double& p : out) p /= sum;
  return out;
}

// Keeps the k best and all that tie with the last of them.
void keep_top_k(std::vector<Candidate>& candidates, size_t k) {
  if (k == 0 || k >= candidates.size()) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), better);
  const float threshold = candidates[k - 1].score;
  std::erase_if(candidates, [&](const Candidate& c) { return c.score < threshold; });
}

// Keeps the smallest set of best candidates that holds a probability of p; sorted input.
void keep_top_p(std::vector<Candidate>& candidates, double p) {
  if (p >= 1) return;
  const std::vector<double> probabilities = softmax(candidates);
  // From the worst up, a token goes while the sum so far, itself included, is at most 1 - p.
  double tail = 0;
  size_t keep = candidates.size();
  while (keep > 1 && tail + probabilities[keep - 1] <= 1 - p) tail += probabilities[--keep];
  candidates.resize(keep);
}

void keep_min_p(std::vector<Candidate>& candidates, double min_p) {
  if (min_p <= 0) return;
  const std::vector<double> probabilities = softmax(candidates);
  size_t keep = 1;
  while (keep < candidates.size() && probabilities[keep] >= min_p * probabilities[0]) ++keep;
  candidates.resize(keep);
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

double Sampler::uniform() {
  const uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate_left(state_[3], 45);
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

std::vector<Candidate> Sampler::penalized(std::span<const float> logits) const {
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) candidates[i] = {TokenId(i), logits[i]};
  if (plain()) return candidates;
  const auto in_range = [&](TokenId token) { return token >= 0 && size_t(token) < candidates.size(); };
  for (const auto& [token, bias] : settings_.logit_bias) {
    if (in_range(token)) candidates[token].score += float(bias);
  }
  for (const auto& [token, seen] : seen_) {
    if (in_range(token)) candidates[token].score = penalized(candidates[token].score, seen);
  }
  return candidates;
}

std::vector<Candidate> Sampler::filtered(std::vector<Candidate> candidates) const {
  // Measured from the best score, so that the smallest temperatures lead to the likeliest token and not out of range.
  const double best = std::min_element(candidates.begin(), candidates.end(), better)->score;
  for (Candidate& c : candidates) c.score = float((c.score - best) / settings_.temperature.value);
  keep_top_k(candidates, size_t(settings_.top_k.value));
  const bool needs_order = settings_.top_k.value > 0 || settings_.top_p.value < 1 || settings_.min_p.value > 0 ||
                           settings_.typical_p.value < 1;
  if (needs_order) {
    std::sort(candidates.begin(), candidates.end(), better);
    keep_top_p(candidates, settings_.top_p.value);
    keep_min_p(candidates, settings_.min_p.value);
    keep_typical(candidates, settings_.typical_p.value);
  } else {
    // The first must be the best: softmax() measures from it.
    std::iter_swap(candidates.begin(), std::min_element(candidates.begin(), candidates.end(), better));
  }
  return candidates;
}

TokenId Sampler::likeliest(std::span<const float> logits) const {
  if (plain()) return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<Candidate> candidates = penalized(logits);
  return std::min_element(candidates.begin(), candidates.end(), better)->token;
}

std::vector<std::pair<TokenId, double>> Sampler::distribution(std::span<const float> logits) const {
  if (settings_.greedy()) return {{likeliest(logits), 1.0}};
  std::vector<Candidate> candidates = filtered(penalized(logits));
  std::sort(candidates.begin(), candidates.end(), better);
  const std::vector<double> probabilities = softmax(candidates);
  std::vector<std::pair<TokenId, double>> out;
  out.reserve(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) out.emplace_back(candidates[i].token, probabilities[i]);
  return out;
}

TokenId Sampler::choose(std::span<const float> logits) {
  return settings_.greedy() ? likeliest(logits) : draw(filtered(penalized(logits)));
}

size_t Sampler::wanted() const {
  // Some more than are kept: for those that tie, and those that penalties push down.
  constexpr int64_t kMost = 200, kMore = 40;
  const int64_t kept = settings_.greedy() ? 1 : settings_.top_k.value;
  // Only what pushes scores down leaves the others below the best.
  const bool lowers = settings_.logit_bias.empty() && settings_.repetition_penalty.value >= 1 &&
                      settings_.presence_penalty.value >= 0 && settings_.frequency_penalty.value >= 0;
  if (kept == 0 || kept > kMost || !lowers) return 0;
  return size_t(settings_.greedy() && plain() ? 1 : kept + kMore);
}

std::optional<TokenId> Sampler::choose_among(std::span<const ScoredToken> best) {
  const size_t kept = settings_.greedy() ? 1 : size_t(settings_.top_k.value);
  if (best.size() < kept || wanted() == 0) return std::nullopt;
  if (settings_.greedy() && plain()) return best.front().token;
  const float lowest = best.back().score;
  std::vector<Candidate> candidates(best.begin(), best.end());
  for (Candidate& c : candidates) {
    if (const auto seen = seen_.find(c.token); seen != seen_.end()) c.score = penalized(c.score, seen->second);
  }
  // All others are below `lowest`, so those that are kept must not be.
  std::nth_element(candidates.begin(), candidates.begin() + ptrdiff_t(kept - 1), candidates.end(), better);
  if (candidates[kept - 1].score < lowest) return std::nullopt;
  if (settings_.greedy()) return std::min_element(candidates.begin(), candidates.end(), better)->token;
  return draw(filtered(std::move(candidates)));
}

TokenId Sampler::draw(const std::vector<Candidate>& candidates) {
  const std::vector<double> probabilities = softmax(candidates);
  double left = uniform();
  for (size_t i = 0; i < candidates.size(); ++i) {
    left -= probabilities[i];
    if (left < 0) return candidates[i].token;
  }
  // Rounding may leave a sliver below 1: it belongs to the best, which always has a probability.
  return candidates.front().token;
}

}  // namespace qgen
