#include "generate/timeline.h"

#include <algorithm>

namespace qgen {
namespace {

size_t size_of(const Prompt& prompt) {
  size_t bytes = 0;
  for (const PromptPart& part : prompt) bytes += part.text.size();
  return bytes;
}

// How many bytes both begin with, by the same author. Neighbouring parts have different ones, so two prompts that
// agree are cut alike.
size_t common_bytes(const Prompt& a, const Prompt& b) {
  size_t bytes = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i].trusted == b[i].trusted; ++i) {
    const std::string &x = a[i].text, &y = b[i].text;
    const size_t same = size_t(
        std::mismatch(x.begin(), x.begin() + ptrdiff_t(std::min(x.size(), y.size())), y.begin()).first - x.begin());
    bytes += same;
    if (same < x.size() || same < y.size()) break;
  }
  return bytes;
}

Prompt without_beginning(const Prompt& prompt, size_t bytes) {
  Prompt out;
  for (const PromptPart& part : prompt) {
    if (bytes < part.text.size()) out.push_back({part.text.substr(bytes), part.trusted});
    bytes -= std::min(bytes, part.text.size());
  }
  return out;
}

// Whether the template goes on with a special token.
bool begins_special(const Prompt& rest, const Tokenizer& tokenizer) {
  if (rest.empty() || !rest.front().trusted) return false;
  const std::vector<TokenId> ids = tokenizer.encode(Prompt{rest.front()});
  return !ids.empty() && tokenizer.is_special(ids.front()) &&
         rest.front().text.starts_with(tokenizer.piece_of(ids.front()));
}

}  // namespace

std::vector<TokenId> Timeline::encode(const Prompt& prompt, const Tokenizer& tokenizer) const {
  const size_t common = common_bytes(text_, prompt);
  for (auto cut = cuts_.rbegin(); cut != cuts_.rend(); ++cut) {
    if (cut->bytes > common) continue;
    const Prompt rest = without_beginning(prompt, cut->bytes);
    if (!begins_special(rest, tokenizer)) continue;
    std::vector<TokenId> ids(ids_.begin(), ids_.begin() + ptrdiff_t(cut->ids));
    const std::vector<TokenId> more = tokenizer.encode(rest);
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }
  return tokenizer.encode(prompt);
}

void Timeline::record(Prompt prompt, std::vector<TokenId> ids, std::span<const TokenId> answer, std::string_view text,
                      const Tokenizer& tokenizer) {
  // A cut holds on where the same bytes are still the same ids.
  const size_t common = common_bytes(text_, prompt);
  const size_t common_ids = size_t(
      std::mismatch(ids_.begin(), ids_.begin() + ptrdiff_t(std::min(ids_.size(), ids.size())), ids.begin()).first -
      ids_.begin());
  std::erase_if(cuts_, [&](const Cut& cut) { return cut.bytes > common || cut.ids > common_ids; });
  text_ = std::move(prompt);
  ids_ = std::move(ids);

  std::string said = tokenizer.decode(answer);
  while (said.size() > text.size() && said.starts_with(text)) {
    answer = answer.first(answer.size() - 1);
    said = tokenizer.decode(answer);
  }
  if (said != text) return;  // thinking that the conversation does not keep, or a stop string inside a token
  ids_.insert(ids_.end(), answer.begin(), answer.end());
  if (!text.empty()) {
    if (text_.empty() || text_.back().trusted) text_.push_back({"", false});
    text_.back().text += text;
  }
  cuts_.push_back({size_of(text_), ids_.size()});
}

}  // namespace qgen
