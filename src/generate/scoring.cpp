#include "generate/scoring.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/sequence.h"
#include "generate/generation.h"
#include "generate/sampler.h"

namespace qgen {
namespace {

// `model` and `other`: the scores of the token `next`.
void add(Divergence& sum, std::span<const float> model, std::span<const float> other, TokenId next) {
  const double model_sum = log_sum_exp(model), other_sum = log_sum_exp(other);
  double kl = 0;
  for (size_t i = 0; i < model.size(); ++i) {
    const double other_logprob = double(other[i]) - other_sum;
    kl += std::exp(other_logprob) * (other_logprob - (double(model[i]) - model_sum));
  }
  sum.kl += kl;
  sum.largest_kl = std::max(sum.largest_kl, kl);
  sum.nll -= double(other[next]) - other_sum;
  sum.same_choice += std::max_element(model.begin(), model.end()) - model.begin() ==
                     std::max_element(other.begin(), other.end()) - other.begin();
  ++sum.tokens;
}

}  // namespace

std::optional<TextScores> score_text(const LoadedModel& model, const LoadedModel* other, std::span<const TokenId> ids,
                                     const ScoringWindows& windows, const RunControl& control,
                                     const TokenScores& each) {
  TextScores out;
  out.logprobs.assign(ids.size(), kUnscored);
  const PrefillWatch watch(*model.engine, int64_t(std::min(windows.window, ids.size())), control);
  Sequence sequence(*model.engine, int64_t(windows.window));
  std::optional<Sequence> beside;
  if (other != nullptr) beside.emplace(*other->engine, int64_t(windows.window));
  // Two models go side by side, so that the scores of a few tokens are kept at a time.
  constexpr size_t kSideBySide = 64;
  const size_t step = beside ? kSideBySide : windows.window;
  for (size_t begin = 0, done = 0; done < ids.size(); begin += windows.stride) {
    const size_t end = std::min(begin + windows.window, ids.size());
    sequence.rewind(0);
    if (beside) beside->rewind(0);
    for (size_t first = begin; first < end; first += step) {
      const std::span<const TokenId> tokens = ids.subspan(first, std::min(step, end - first));
      std::vector<float> others;
      if (beside) {
        beside->run(tokens, [&](int64_t, std::span<const float> scores) {
          others.insert(others.end(), scores.begin(), scores.end());
        });
      }
      const auto result = sequence.run(tokens, [&](int64_t t, std::span<const float> scores) {
        const size_t at = first + size_t(t);
        if (each && at >= done) each(at, scores);
        if (!std::ranges::all_of(scores, [](float value) { return std::isfinite(value); })) {
          fail(ErrorKind::kRuntime,
               fmt::format("{}: the scores after token {} are not finite numbers", model.name, at));
        }
        // Windows before this one have scored the tokens up to `done`.
        if (at + 1 >= end || at + 1 < done) return;
        out.logprobs[at + 1] = double(scores[ids[at + 1]]) - log_sum_exp(scores);
        if (beside)
          add(out.divergence, scores, std::span(others).subspan(size_t(t) * scores.size(), scores.size()), ids[at + 1]);
      });
      if (result.empty()) return {};
    }
    done = end;
  }
  double total = 0;
  for (const double logprob : out.logprobs) {
    if (logprob == kUnscored) continue;
    total += logprob;
    ++out.scored;
  }
  out.mean_nll = out.scored == 0 ? 0 : -total / double(out.scored);
  return out;
}

LoadedModel load_beside(const LoadedModel& model, ModelOptions options, const std::string& name,
                        std::string_view option, int64_t window, const Progress& progress) {
  options.model = name;
  options.quantize.clear();
  options.quantize_head = false;
  auto plan = open_plan(options);
  if (plan->model.vocab != model.plan->model.vocab) {
    fail(ErrorKind::kUsage, fmt::format("{} {}: another vocabulary (expected {} tokens, found {})", option, name,
                                        model.plan->model.vocab, plan->model.vocab));
  }
  return load_model(std::move(plan), options, window, progress, true);
}

}  // namespace qgen
