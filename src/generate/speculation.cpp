#include "generate/speculation.h"

namespace qgen {

Speculation::Speculation(Session& session, int64_t most) : session_(session), lookup_(most), enabled_(most > 0) {
  if (!enabled_) return;
  for (const TokenId token : session.tokens()) lookup_.see(token);
}

Scores Speculation::append(TokenId token, int64_t room) {
  if (!enabled_) {
    ++calls_;
    return session_.append(token);
  }
  lookup_.see(token);
  if (session_.foresaw(token)) {
    ++accepted_;
    ++last_accepted_;
    return session_.append(token);
  }
  if (last_drafted_ > 0) lookup_.judge(last_drafted_, last_accepted_);
  const std::vector<TokenId> draft = lookup_.draft(room);
  last_drafted_ = int64_t(draft.size());
  last_accepted_ = 0;
  drafted_ += last_drafted_;
  ++calls_;
  return session_.append(token, draft);
}

}  // namespace qgen
