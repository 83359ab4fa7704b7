#include "generate/prompt_lookup.h"

#include <algorithm>

namespace qgen {

void PromptLookup::see(TokenId token) {
  // What ends the text is noted only now that something follows it, so that it is never found as its own match.
  for (NgramIndex& index : indexes_) index.add(text_);
  text_.push_back(token);
}

PromptLookup::Match PromptLookup::find() const {
  for (const NgramIndex& index : indexes_) {
    const size_t end = index.find(text_);
    if (end == 0) continue;
    const int64_t limit = std::min(int64_t(end), std::max(most_, kLongestMatch));
    int64_t length = int64_t(index.length());
    while (length < limit && text_[end - 1 - size_t(length)] == text_[text_.size() - 1 - size_t(length)]) ++length;
    return {end, length};
  }
  return {};
}

// A draft is as long as the match behind it. The first ones of a repetition are short, each that comes true more than
// doubles the next, and a short match that came about by chance costs little.
std::vector<TokenId> PromptLookup::draft(int64_t room) const {
  const Match match = find();
  std::vector<TokenId> out;
  if (match.length < needed_) return out;
  const int64_t count = std::min({match.length, most_, room});
  for (int64_t i = 0; i < count; ++i) {
    // At the end of the text the draft follows itself: a period that is shorter than the draft goes on in it.
    const size_t at = match.end + size_t(i);
    out.push_back(at < text_.size() ? text_[at] : out[at - text_.size()]);
  }
  return out;
}

// Running a few tokens costs an engine on a processor up to two and a half times what one costs, so drafts that fail
// must become rare where nothing repeats: each asks for a longer match from then on, each that holds for a shorter one.
void PromptLookup::judge(int64_t drafted, int64_t accepted) {
  constexpr int64_t kStep = 2;
  needed_ =
      2 * accepted >= drafted ? std::max(needed_ - kStep, kShortestMatch) : std::min(needed_ + kStep, kLongestMatch);
}

}  // namespace qgen
