#include "engine/shortlist.h"

#include <algorithm>

namespace qgen {
namespace {

// Of the matrix: smaller ones stay in a processor's cache, where less to read is no gain.
constexpr size_t kLeastBytes = size_t{16} << 20;

// Null where this is no product that can have a shortlist.
const Projection* suiting(const Step& step, RowId scores) {
  const auto* const linear = std::get_if<LinearStep>(&step.op);
  if (linear == nullptr || result_of(step).row != scores || linear->projections.size() != 1) return nullptr;
  const Projection& p = linear->projections[0];
  const bool plain =
      p.bias == nullptr && p.gate == nullptr && p.activation == Activation::kNone && p.scale > 0 && !p.add;
  const Weight& head = *p.weight;
  const bool suits = !head.quantized() && head.scale.empty() && !head.ordered && head.cols <= kMostShortlistCols;
  return plain && suits && head.bytes() >= kLeastBytes ? &p : nullptr;
}

bool alike(const Projection& a, const Projection& b) {
  return a.weight == b.weight && a.scale == b.scale && a.softcap == b.softcap;
}

// That the scores of steps [first, last) do not read.
size_t bytes_saved(const Plan& plan, const EngineOptions& options, size_t first, size_t last) {
  if (!options.shortlist) return 0;
  const ShortlistHead head = shortlist_head(plan);
  return head.step_in(first, last) ? head.weight().bytes() - shortlist_bytes(head.weight()) : 0;
}

}  // namespace

std::optional<size_t> ShortlistHead::step_in(size_t first, size_t last) const {
  const auto found = std::ranges::find_if(steps, [&](size_t step) { return first <= step && step < last; });
  return found != steps.end() ? std::optional(*found) : std::nullopt;
}

ShortlistHead shortlist_head(const Plan& plan) {
  ShortlistHead out;
  for (size_t i = plan.steps.size(); i-- > 0;) {
    const Projection* const p = suiting(plan.steps[i], plan.scores);
    if (p == nullptr || (out && !alike(*p, *out.projection))) continue;
    out.projection = p;
    out.steps.push_back(i);
  }
  return out;
}

std::vector<size_t> shortlist_counts(const Batch& batch, size_t most, size_t tokens) {
  if (batch.kernels == Kernels::kPrompt || batch.scored.size() > tokens || batch.choices.size() != batch.scored.size())
    return {};
  std::vector<size_t> out;
  for (const TokenChoice& choice : batch.choices) {
    if (!takes_shortlist(choice) || choice.count > most) return {};
    out.push_back(choice.count);
  }
  return out;
}

size_t shortlist_bytes(const Weight& head) {
  const int64_t groups = shortlist_groups(head.cols);
  // Codes, the scale twice, the upper bound of a score, and norms of each group and of the row in BF16.
  return size_t(head.rows * (head.cols + 3 * int64_t(sizeof(float)) + 2 * (groups + 1)));
}

size_t shortlist_bytes(const Plan& plan, const EngineOptions& options) {
  const ShortlistHead head = options.shortlist ? shortlist_head(plan) : ShortlistHead();
  return head ? shortlist_bytes(head.weight()) : 0;
}

size_t bytes_per_token(const Plan& plan, const EngineOptions& options) {
  return plan.bytes_per_token() - bytes_saved(plan, options, 0, plan.main_steps());
}

size_t bytes_per_guess(const Plan& plan, const EngineOptions& options) {
  return plan.bytes_per_guess() - bytes_saved(plan, options, plan.main_steps(), plan.steps.size());
}

}  // namespace qgen
