#include "chat/reasoning.h"

#include <algorithm>

namespace qgen {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

}  // namespace

void ReasoningSplitter::take(std::string_view text, std::vector<ReasoningPiece>& out) {
  if (skip_space_) {
    const size_t start = text.find_first_not_of(" \t\r\n");
    if (start == text.npos) return;
    text.remove_prefix(start);
    skip_space_ = false;
  }
  if (!text.empty()) out.push_back({std::string(text), thinking_});
}

std::vector<ReasoningPiece> ReasoningSplitter::push(std::string_view text) {
  std::vector<ReasoningPiece> out;
  held_ += text;
  for (;;) {
    const std::string_view tag = thinking_ ? kClose : kOpen;
    const size_t at = held_.find(tag);
    if (at == held_.npos) break;
    take(std::string_view(held_).substr(0, at), out);
    held_.erase(0, at + tag.size());
    thinking_ = !thinking_;
    skip_space_ = true;
  }
  const std::string_view tag = thinking_ ? kClose : kOpen;
  size_t hold = std::min(tag.size() - 1, held_.size());
  while (hold > 0 && !tag.starts_with(std::string_view(held_).substr(held_.size() - hold))) --hold;
  take(std::string_view(held_).substr(0, held_.size() - hold), out);
  held_.erase(0, held_.size() - hold);
  return out;
}

std::vector<ReasoningPiece> ReasoningSplitter::finish() {
  std::vector<ReasoningPiece> out;
  take(held_, out);
  held_.clear();
  return out;
}

bool ends_in_thinking(std::string_view prompt) {
  const size_t open = prompt.rfind(kOpen);
  if (open == prompt.npos) return false;
  return prompt.find_first_not_of(" \t\r\n", open + kOpen.size()) == prompt.npos;
}

}  // namespace qgen
