#include "engine/shortlist.h"

namespace qgen {
namespace {

// Of the matrix: smaller ones stay in a processor's cache, where less to read is no gain.
constexpr size_t kLeastBytes = size_t{16} << 20;

// Null where a plan has no shortlist with these options.
const Weight* head_of(const Plan& plan, const EngineOptions& options) {
  const auto step = options.shortlist ? shortlist_step(plan) : std::nullopt;
  return step ? std::get<LinearStep>(plan.steps[*step].op).projections[0].weight : nullptr;
}

// That a token or a guess does not read.
size_t bytes_saved(const Plan& plan, const EngineOptions& options) {
  const Weight* const head = head_of(plan, options);
  return head != nullptr ? head->bytes() - shortlist_bytes(*head) : 0;
}

}  // namespace

std::optional<size_t> shortlist_step(const Plan& plan) {
  for (size_t i = plan.draft ? plan.main_steps() : 0; i < plan.steps.size(); ++i) {
    const auto* const step = std::get_if<LinearStep>(&plan.steps[i].op);
    if (step == nullptr || result_of(plan.steps[i]).row != plan.scores) continue;
    if (step->projections.size() != 1) return {};
    const Projection& p = step->projections[0];
    const bool plain =
        p.bias == nullptr && p.gate == nullptr && p.activation == Activation::kNone && p.scale > 0 && !p.add;
    const Weight& head = *p.weight;
    const bool suits = !head.quantized() && head.scale.empty() && !head.ordered && head.cols <= kMostShortlistCols;
    return plain && suits && head.bytes() >= kLeastBytes ? std::optional(i) : std::nullopt;
  }
  return {};
}

size_t shortlist_count(const Batch& batch, size_t most) {
  if (batch.kernels != Kernels::kByCount || batch.scored.size() != 1 || batch.choices.size() != 1) return 0;
  const TokenChoice& choice = batch.choices[0];
  return takes_shortlist(choice) && choice.count <= most ? choice.count : 0;
}

size_t shortlist_bytes(const Weight& head) {
  const int64_t groups = shortlist_groups(head.cols);
  // Codes, the scale twice, the upper bound of a score, and norms of each group and of the row in BF16.
  return size_t(head.rows * (head.cols + 3 * int64_t(sizeof(float)) + 2 * (groups + 1)));
}

size_t shortlist_bytes(const Plan& plan, const EngineOptions& options) {
  const Weight* const head = head_of(plan, options);
  return head != nullptr ? shortlist_bytes(*head) : 0;
}

size_t bytes_per_token(const Plan& plan, const EngineOptions& options) {
  return plan.bytes_per_token() - (plan.draft ? 0 : bytes_saved(plan, options));
}

size_t bytes_per_guess(const Plan& plan, const EngineOptions& options) {
  return plan.bytes_per_guess() - (plan.draft ? bytes_saved(plan, options) : 0);
}

}  // namespace qgen
