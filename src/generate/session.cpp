#include "generate/session.h"

#include <algorithm>

#include "base/error.h"

namespace qgen {

Scores Session::sync(std::span<const TokenId> tokens) {
  if (tokens.empty()) fail(ErrorKind::kRuntime, "the text is empty: nothing to go on from");
  forget_draft();
  const size_t limit = std::min(tokens.size() - 1, tokens_.size());  // at least one token is run, for its scores
  const size_t common =
      size_t(std::mismatch(tokens.begin(), tokens.begin() + limit, tokens_.begin()).first - tokens.begin());
  const int64_t kept = sequence_.rewind(int64_t(common));
  tokens_.resize(size_t(kept));  // what an exception leaves
  // What comes next often differs from this text's last tokens on: they open an answer, or a thought that is left out.
  constexpr int64_t kTail = 16;
  const int64_t end = int64_t(tokens.size());
  Scores logits;
  if (sequence_.engine().keeps_marks() && end - kept > 2 * kTail) {
    logits = sequence_.run(tokens.subspan(size_t(kept), size_t(end - kTail - kept)));
    if (!logits.empty()) sequence_.mark(kText);
  }
  if (sequence_.position() == kept || !logits.empty())
    logits = sequence_.run(tokens.subspan(size_t(sequence_.position())));
  tokens_.assign(tokens.begin(), tokens.begin() + sequence_.position());
  computed_tokens_ += sequence_.position() - kept;
  return logits;
}

void Session::forget_draft() {
  if (followed_ < draft_.size()) sequence_.rewind(int64_t(tokens_.size()));
  draft_.clear();
  followed_ = 0;
}

Scores Session::append(TokenId token, std::span<const TokenId> draft, std::span<const TokenChoice> choices) {
  if (foresaw(token)) {
    ++followed_;
    tokens_.push_back(token);
    ++computed_tokens_;
    return scores_[followed_];
  }
  forget_draft();
  if (!draft.empty() || sequence_.position() < int64_t(tokens_.size())) return append_with(token, draft, choices);
  const Scores logits = sequence_.run(token, choices);
  tokens_.push_back(token);
  ++computed_tokens_;
  return logits;
}

// Runs the tokens that the sequence lacks, the new one and the drafted ones in one call. The sequence is marked before
// the drafted ones: if one of them fails, only those before it run again.
Scores Session::append_with(TokenId token, std::span<const TokenId> draft, std::span<const TokenChoice> choices) {
  std::vector<TokenId> call(tokens_.begin() + sequence_.position(), tokens_.end());
  call.push_back(token);
  const int64_t certain = int64_t(call.size());
  call.insert(call.end(), draft.begin(), draft.end());
  Work work{.tokens = call, .scores = Wanted::kAll, .first_scored = certain - 1};
  work.choices = choices.first(std::min<size_t>(choices.size(), 1));
  if (!draft.empty()) {
    work.marked = certain;
    work.mark = kDraft;
  }
  scores_.clear();
  copies_.clear();
  const bool are_kept = int64_t(call.size()) <= sequence_.engine().scored_at_once();
  const Scores last = sequence_.run(work, [&](int64_t, const Scores& scores) {
    if (are_kept) {
      scores_.push_back(scores);
    } else {
      const std::span<const float> all = scores.all();
      scores_.emplace_back(copies_.emplace_back(all.begin(), all.end()));
    }
  });
  if (last.empty()) {
    // The observer stopped it: the timeline is what was run of it, without drafts.
    tokens_.push_back(token);
    const int64_t kept = sequence_.rewind(std::min(sequence_.position(), int64_t(tokens_.size())));
    tokens_.resize(size_t(kept));
    return {};
  }
  tokens_.push_back(token);
  ++computed_tokens_;
  draft_.assign(draft.begin(), draft.end());
  return scores_.front();
}

std::vector<TokenId> Session::draft(TokenId token, int64_t most) {
  forget_draft();
  return sequence_.draft(int64_t(tokens_.size()), token, most);
}

}  // namespace qgen
