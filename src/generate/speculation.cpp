#include "generate/speculation.h"

#include <algorithm>

namespace qgen {

int64_t DraftLength::next() {
  if (pause_ == 0) return length_;
  --pause_;
  return 0;
}

// As many as came true, and one more.
void DraftLength::judge(int64_t accepted) {
  length_ = std::clamp<int64_t>(accepted + 1, 1, kMost);
  failures_ = accepted == 0 ? failures_ + 1 : 0;
  if (accepted > 0) next_pause_ = kFailures;
  if (failures_ < kFailures) return;
  failures_ = 0;
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
}

Speculation::Speculation(Session& session, int64_t lookup, bool draft_head)
    : session_(session), lookup_(lookup), uses_text_(lookup > 0), uses_head_(draft_head) {
  if (!uses_text_) return;
  for (const TokenId token : session.tokens()) lookup_.see(token);
}

Scores Speculation::append(TokenId token, int64_t room, std::span<const TokenChoice> choices) {
  if (uses_text_) lookup_.see(token);
  if (session_.foresaw(token)) {
    ++accepted_;
    ++last_accepted_;
    return session_.append(token);
  }
  if (source_ == Source::kText) lookup_.judge(last_drafted_, last_accepted_);
  if (source_ == Source::kHead) length_.judge(last_accepted_);
  const std::vector<TokenId> drafted = draft(token, room);
  last_drafted_ = int64_t(drafted.size());
  last_accepted_ = 0;
  drafted_ += last_drafted_;
  ++calls_;
  // Where the text may have a draft, the next call is another one.
  return session_.append(token, drafted, choices.first(std::min<size_t>(choices.size(), uses_text_ ? 1 : 2)));
}

std::vector<TokenId> Speculation::draft(TokenId token, int64_t room) {
  source_ = Source::kNone;
  std::vector<TokenId> out;
  if (uses_text_ && room > 0) out = lookup_.draft(room);
  if (!out.empty()) {
    source_ = Source::kText;
  } else if (const int64_t most = uses_head_ ? std::min(length_.next(), room) : 0; most > 0) {
    out = session_.draft(token, most);
    guessed_ += int64_t(out.size());
    source_ = Source::kHead;
  }
  return out;
}

}  // namespace qgen
