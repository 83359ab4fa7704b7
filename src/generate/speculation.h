// Speculative decoding, with drafts from the text itself or from the model's draft head. The caller decodes as without
// it, one token at a time: it chooses from the scores and appends. Where a draft predicted the token, its scores have
// been computed already.
//
// From the same scores the same tokens are chosen, with the same random numbers. Speculative sampling (Leviathan et al.
// 2023, Chen et al. 2023) accepts a drafted token x with probability min(1, p(x) / q(x)) and else draws from what p has
// more than q. Here the draft is certain of its token, q(x) = 1: accept with p(x), else draw from p without x. Drawing
// a token from p and comparing it with x does just that, greedily and with any sampler, and takes from its random
// numbers what drawing without a draft takes.
#pragma once

#include <cstdint>
#include <span>

#include "base/token.h"
#include "generate/prompt_lookup.h"
#include "generate/session.h"

namespace qgen {

// How many tokens the draft head is asked for.
class DraftLength {
 public:
  int64_t next();
  // How many tokens at the beginning of the last draft came true.
  void judge(int64_t accepted);

  // A guess costs a layer and an output head, and each that is wrong a token of the next call.
  static constexpr int64_t kMost = 4;
  // So many drafts in a row that failed are followed by a pause, each longer than the one before.
  static constexpr int64_t kFailures = 4;
  static constexpr int64_t kLongestPause = 64;  // tokens

 private:
  int64_t length_ = 2;
  int64_t failures_ = 0, pause_ = 0, next_pause_ = kFailures;
};

class Speculation {
 public:
  // Goes on from the session's tokens. `lookup`: tokens at most of a draft from the text; 0: there are none.
  // `draft_head`: the model's own drafts, where the text has none.
  Speculation(Session& session, int64_t lookup, bool draft_head);

  // Session::append(), with a draft of at most `room` tokens.
  Scores append(TokenId token, int64_t room, std::span<const TokenChoice> choices = {});

  // Of the engine, for tokens of the answer.
  int64_t calls() const { return calls_; }
  // Tokens that were run as drafts, and those of them that were appended then.
  int64_t drafted() const { return drafted_; }
  int64_t accepted() const { return accepted_; }
  int64_t guessed() const { return guessed_; }  // of the drafted tokens: by the draft head

 private:
  enum class Source : uint8_t { kNone, kText, kHead };
  std::vector<TokenId> draft(TokenId token, int64_t room);

  Session& session_;
  PromptLookup lookup_;
  DraftLength length_;
  bool uses_text_, uses_head_;
  int64_t calls_ = 0, drafted_ = 0, accepted_ = 0, guessed_ = 0;
  // Of the latest draft: where it came from, its tokens, and those that came true.
  Source source_ = Source::kNone;
  int64_t last_drafted_ = 0, last_accepted_ = 0;
};

}  // namespace qgen
