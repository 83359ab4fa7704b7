#include "engine/session.h"

#include <algorithm>

#include "base/error.h"

namespace qgen {

std::span<const float> Session::sync(std::span<const TokenId> tokens) {
  if (tokens.empty()) fail(ErrorKind::kRuntime, "the text is empty: nothing to go on from");
  const size_t limit = std::min(tokens.size() - 1, tokens_.size());  // at least one token is run, for its scores
  const size_t common =
      size_t(std::mismatch(tokens.begin(), tokens.begin() + limit, tokens_.begin()).first - tokens.begin());
  engine_.rewind(int64_t(common));
  tokens_.resize(common);  // what an exception leaves
  const std::span<const float> logits = engine_.prefill(tokens.subspan(common));
  tokens_.assign(tokens.begin(), tokens.begin() + engine_.position());
  computed_tokens_ += engine_.position() - int64_t(common);
  return logits;
}

std::span<const float> Session::append(TokenId token) {
  const std::span<const float> logits = engine_.decode(token);
  tokens_.push_back(token);
  ++computed_tokens_;
  return logits;
}

}  // namespace qgen
