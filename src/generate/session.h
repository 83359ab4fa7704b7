// One sequence of tokens on an engine: the caller gives the whole text, and only the tokens behind the prefix that the
// cache already holds are computed.
#pragma once

#include <span>
#include <vector>

#include "base/token.h"
#include "engine/sequence.h"

namespace qgen {

class Session {
 public:
  // Of the engine's, where recurrent states must be able to go back: before a draft, and near the end of a text.
  static constexpr int kMarks = 2;

  // With room for `tokens`.
  Session(Engine& engine, int64_t tokens) : sequence_(engine, tokens) {}

  // Makes the timeline equal to `tokens` and returns the scores of the next one. A common beginning is kept.
  // Nothing is returned where the engine's observer stopped it; the timeline then ends before.
  Scores sync(std::span<const TokenId> tokens);
  // Appends one token and returns the scores of the next one. `draft` are guesses at the tokens after it: they run in
  // the same call, without joining the timeline, and appending them in their order then costs nothing. The first
  // token that is another one makes the engine forget the rest; of models with recurrent states those that were
  // appended run again, with what comes next. All must fit in the context. Nothing is returned where the engine's
  // observer stopped it. `choices`: Work::choices. Nothing else may run on the engine while tokens of the draft are
  // still to be appended: their scores are the engine's.
  Scores append(TokenId token, std::span<const TokenId> draft = {}, std::span<const TokenChoice> choices = {});
  // Guesses of the model's draft head at what follows `token`, which is appended next and was not foreseen.
  std::vector<TokenId> draft(TokenId token, int64_t most);
  // Whether append(token) would find its scores computed.
  bool foresaw(TokenId token) const { return followed_ < draft_.size() && draft_[followed_] == token; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  // Tokens of the timeline that went through the engine so far; those of a kept beginning count once.
  int64_t computed_tokens() const { return computed_tokens_; }

 private:
  enum Mark : int { kDraft, kText };

  void forget_draft();
  Scores append_with(TokenId token, std::span<const TokenId> draft, std::span<const TokenChoice> choices);

  // May lack the last tokens, which are run with the next ones then.
  Sequence sequence_;
  std::vector<TokenId> tokens_;
  int64_t computed_tokens_ = 0;
  // The last draft, how many of its tokens were appended (the engine holds the rest beyond the timeline), and the
  // scores after the token before it and after each of it: the engine's own, or copies where it has not kept them all.
  std::vector<TokenId> draft_;
  size_t followed_ = 0;
  std::vector<Scores> scores_;
  std::vector<std::vector<float>> copies_;
};

}  // namespace qgen
