// Speculative decoding with drafts from the text itself. The caller decodes as without it, one token at a time: it
// chooses from the scores and appends. Where a draft predicted the token, its scores have been computed already.
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

class Speculation {
 public:
  // Goes on from the session's tokens. `most`: tokens a draft has at most; 0: there are none.
  Speculation(Session& session, int64_t most);

  // Session::append(), with a draft of at most `room` tokens.
  Scores append(TokenId token, int64_t room);

  // Of the engine.
  int64_t calls() const { return calls_; }
  // Tokens that were run as drafts, and those of them that were appended then.
  int64_t drafted() const { return drafted_; }
  int64_t accepted() const { return accepted_; }

 private:
  Session& session_;
  PromptLookup lookup_;
  bool enabled_;
  int64_t calls_ = 0, drafted_ = 0, accepted_ = 0;
  int64_t last_drafted_ = 0, last_accepted_ = 0;  // of the draft at hand
};

}  // namespace qgen
