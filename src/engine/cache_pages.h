// Where tokens lie in a cache: pages of tokens with a table for each sequence. States that keep the same tokens (all of
// them, or a window's) form a group and share page numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/plan.h"

namespace qgen {

constexpr int64_t kPageTokens = 256;
constexpr int64_t kPageUnit = 32;  // pages of a shorter context are a multiple of this
// Tokens behind a window that are kept all the same, so that a sequence can be cut back by so many.
constexpr int64_t kWindowSlack = 1024;

struct CacheLimits {
  int64_t context = 0;    // tokens that a sequence may have
  int64_t sequences = 1;  // that may be open at a time
  int64_t batch = 1;      // tokens of a sequence that run together
  int64_t tokens = 0;     // of all sequences together; 0: sequences * context
};

struct CacheGroup {
  int64_t window = 0;  // 0: all tokens are kept
  std::vector<StateId> states;
  int64_t ring = 0;   // pages that a sequence of full length has; page number p lies at p % ring of its table
  int64_t pages = 0;  // in the pool
};

class CacheLayout {
 public:
  CacheLayout(const Plan& plan, const CacheLimits& limits);

  int64_t page_tokens() const { return page_tokens_; }
  const std::vector<CacheGroup>& groups() const { return groups_; }
  // -1: the state has no pages.
  int32_t group_of(StateId state) const { return group_of_[size_t(state)]; }
  // Pages of a group that a sequence of so many tokens takes.
  int64_t pages_for(const CacheGroup& group, int64_t tokens) const;

 private:
  int64_t page_tokens_ = kPageTokens;
  std::vector<CacheGroup> groups_;
  std::vector<int32_t> group_of_;
};

// The pages of a group. Those of a common beginning belong to several sequences.
class PagePool {
 public:
  explicit PagePool(int64_t pages);
  int64_t free() const { return int64_t(free_.size()); }
  int32_t take();  // there must be a free one
  void share(int32_t page) { ++uses_[size_t(page)]; }
  void release(int32_t page);

 private:
  std::vector<int32_t> free_;  // the lowest number is the next
  std::vector<int32_t> uses_;
};

}  // namespace qgen
