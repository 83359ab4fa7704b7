// One timeline of tokens on an engine: whoever drives it says what the whole text is, and only what is new
// gets computed.
#pragma once

#include <span>
#include <vector>

#include "base/token.h"
#include "engine/engine.h"

namespace qgen {

class Session {
 public:
  explicit Session(Engine& engine) : engine_(engine) {}

  // Makes the timeline equal to `tokens` and returns the scores of the next one. A common beginning is kept.
  // Nothing is returned where the engine's observer stopped it; the timeline then ends before.
  std::span<const float> sync(std::span<const TokenId> tokens);
  // Appends one token.
  std::span<const float> append(TokenId token);
  const std::vector<TokenId>& tokens() const { return tokens_; }
  // Tokens that went through the engine so far; those of a kept beginning count once.
  int64_t computed_tokens() const { return computed_tokens_; }

 private:
  Engine& engine_;
  std::vector<TokenId> tokens_;
  int64_t computed_tokens_ = 0;
};

}  // namespace qgen
