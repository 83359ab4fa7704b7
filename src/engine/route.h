// The choice of experts, for engines whose rows a processor reads.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "model/step.h"

namespace qgen {

// What a RouteStep writes for one token: the weights of the chosen experts and their numbers, the best one first; among
// equals the lower number. NaN ranks last. `bias` and `scale` may be empty.
template <typename Value>
void choose_experts(const RouteStep& step, std::span<const Value> logits, std::span<const float> bias,
                    std::span<const float> scale, std::span<Value> out) {
  const size_t experts = logits.size(), chosen = size_t(step.chosen), group = experts / size_t(step.groups);
  std::vector<double> score(experts), rank(experts);
  const double highest = double(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (size_t e = 0; e < experts; ++e) {
    const double x = double(logits[e]);
    switch (step.score) {
      case RouteStep::Score::kSoftmax: score[e] = std::exp(x - highest); break;
      case RouteStep::Score::kSigmoid: score[e] = 1 / (1 + std::exp(-x)); break;
      case RouteStep::Score::kRootSoftplus: score[e] = std::sqrt(x > 30 ? x : std::log1p(std::exp(x))); break;
    }
    sum += score[e];
  }
  for (size_t e = 0; e < experts; ++e) {
    if (step.score == RouteStep::Score::kSoftmax) score[e] /= sum;
    rank[e] = score[e] + (bias.empty() ? 0 : double(bias[e]));
    if (std::isnan(rank[e])) rank[e] = -HUGE_VAL;
  }
  const auto best_of = [](std::span<const double> values, size_t count) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(count), order.end(),
                      [&](size_t a, size_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
    order.resize(count);
    return order;
  };
  if (step.kept_groups < step.groups) {
    std::vector<double> ranks;
    for (size_t g = 0; g < size_t(step.groups); ++g) {
      const std::span<const double> members(rank.data() + g * group, group);
      const size_t counted = step.rank == RouteStep::Rank::kTwoBest ? std::min<size_t>(2, group) : 1;
      double total = 0;
      for (const size_t member : best_of(members, counted)) total += members[member];
      ranks.push_back(total);
    }
    std::vector<bool> kept(ranks.size());
    for (const size_t g : best_of(ranks, size_t(step.kept_groups))) kept[g] = true;
    for (size_t e = 0; e < experts; ++e) {
      if (!kept[e / group]) rank[e] = -HUGE_VAL;
    }
  }
  const std::vector<size_t> best = best_of(rank, chosen);
  double total = step.least_sum;
  for (const size_t e : best) total += score[e];
  for (size_t i = 0; i < chosen; ++i) {
    const double weight = (step.normalized ? score[best[i]] / total : score[best[i]]) * step.scale;
    out[i] = Value(weight * (scale.empty() ? 1 : double(scale[best[i]])));
    out[chosen + i] = Value(best[i]);
  }
}

}  // namespace qgen
