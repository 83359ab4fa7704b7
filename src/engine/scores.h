// The scores (vocab) of the token that comes next, until the engine runs again. Where an engine has them in the memory
// of a device, they are brought only when all are asked for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "base/token.h"
#include "engine/backend.h"

namespace qgen {

class Scores {
 public:
  Scores() = default;  // none: the call was stopped
  Scores(std::span<const float> all) : all_(all) {}
  // Of a scored token of the backend's last batch.
  Scores(Backend& backend, int64_t index) : backend_(&backend), index_(index) {}

  bool empty() const { return backend_ == nullptr && all_.empty(); }
  std::span<const float> all() const { return backend_ != nullptr ? backend_->scores(index_) : all_; }
  operator std::span<const float>() const { return all(); }
  // Whether none is NaN or infinite.
  bool finite() const {
    if (backend_ != nullptr) return backend_->scores_finite(index_);
    return std::all_of(all_.begin(), all_.end(), [](float v) { return std::isfinite(v); });
  }
  // The first of the tokens with the best score; nothing without scores, or where one is NaN or infinite.
  std::optional<TokenId> best() const {
    if (empty() || !finite()) return {};
    if (const TopScores found = top(1); !found.best.empty()) return found.best.front().token;
    const std::span<const float> values = all();
    return TokenId(std::max_element(values.begin(), values.end()) - values.begin());
  }
  // The best `count` and perhaps more (of one alone: no other is higher, and it is the first of those that tie), with
  // their mass where a temperature is given. None where they cannot be had for less than all, as where the next token
  // is under way and Work::choices said otherwise.
  TopScores top(size_t count, double temperature = 0) const {
    return backend_ != nullptr ? backend_->top_scores(index_, count, temperature) : TopScores();
  }

 private:
  std::span<const float> all_;
  Backend* backend_ = nullptr;
  int64_t index_ = 0;
};

}  // namespace qgen
