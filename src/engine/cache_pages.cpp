#include "engine/cache_pages.h"

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "base/rounding.h"

namespace qgen {
namespace {

// A memory Error where the bytes of the cache, of elements of any type, do not fit in 64 bits.
void check_size(const Plan& plan, const CacheLimits& limits) {
  const std::string subject = "key-value cache";
  size_t elements = 1;
  for (const State& state : plan.states) {
    elements =
        checked_sum(subject, {elements, checked_product(subject, {size_t(state.kv_heads), size_t(state.key_dim)}),
                              checked_product(subject, {size_t(state.kv_heads), size_t(state.value_dim)})});
  }
  size_t fixed = 0;
  for (const State& state : plan.states) fixed = checked_sum(subject, {fixed, size_t(state.elements)});
  constexpr size_t kMostSlots = 1 << 12;
  checked_product(subject, {fixed, sizeof(double), size_t(limits.sequences), kMostSlots});
  const size_t tokens = checked_product(subject, {size_t(limits.context) + 2 * kPageTokens, size_t(limits.sequences)});
  constexpr size_t kSpare = 4;  // pages that are begun, rows that are padded
  const size_t bytes =
      checked_product(subject, {std::max(tokens, size_t(limits.tokens)), elements, sizeof(double), kSpare});
  if (bytes > size_t(INT64_MAX)) fail_size(subject, ErrorKind::kMemory);
}

}  // namespace

CacheLayout::CacheLayout(const Plan& plan, const CacheLimits& limits) {
  check_size(plan, limits);
  page_tokens_ = std::min(kPageTokens, round_up(limits.context, kPageUnit));
  const int64_t tokens = limits.tokens > 0 ? limits.tokens : limits.sequences * limits.context;
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const State& state = plan.states[i];
    if (state.kind == State::Kind::kFixed) {
      group_of_.push_back(-1);
      continue;
    }
    // A window that holds the whole context is none.
    const int64_t window = state.window > 0 && state.window + kWindowSlack < limits.context ? state.window : 0;
    size_t group = 0;
    while (group < groups_.size() && groups_[group].window != window) ++group;
    if (group == groups_.size()) {
      CacheGroup& added = groups_.emplace_back();
      added.window = window;
      const int64_t held = window > 0 ? std::min(limits.context, window + kWindowSlack + limits.batch) : limits.context;
      added.ring = (held + page_tokens_ - 1) / page_tokens_ + (window > 0 ? 1 : 0);
      // Sequences begin on pages of their own, so each may leave a part of one unused.
      const int64_t whole = (tokens + page_tokens_ - 1) / page_tokens_ + (limits.sequences - 1);
      added.pages = std::min(whole, added.ring * limits.sequences);
    }
    groups_[group].states.push_back(StateId(i));
    group_of_.push_back(int32_t(group));
  }
}

int64_t CacheLayout::pages_for(const CacheGroup& group, int64_t tokens) const {
  return std::min(group.ring, (tokens + page_tokens_ - 1) / page_tokens_);
}

PagePool::PagePool(int64_t pages) : uses_(size_t(pages), 0) {
  for (int64_t i = pages; i-- > 0;) free_.push_back(int32_t(i));
}

int32_t PagePool::take() {
  const int32_t page = free_.back();
  free_.pop_back();
  uses_[size_t(page)] = 1;
  return page;
}

void PagePool::release(int32_t page) {
  if (--uses_[size_t(page)] > 0) return;
  free_.insert(std::upper_bound(free_.begin(), free_.end(), page, std::greater<>()), page);
}

}  // namespace qgen
