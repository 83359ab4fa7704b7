#include "tokenizer/token_finder.h"

#include <algorithm>
#include <string>

namespace qgen::tokenizer {

void TokenFinder::add(std::string_view text, TokenId id) {
  if (text.empty()) return;
  const std::string reversed(text.rbegin(), text.rend());
  trie_.add(reversed, id);
  // The trie numbers its nodes as they come.
  if (depth_.empty()) {
    depth_.push_back(0);
    parent_.push_back(ByteTrie::kRoot);
    byte_.push_back(0);
  }
  uint32_t node = ByteTrie::kRoot;
  for (const char c : reversed) {
    const uint32_t next = trie_.step(node, static_cast<uint8_t>(c));
    if (next == depth_.size()) {
      depth_.push_back(depth_[node] + 1);
      parent_.push_back(node);
      byte_.push_back(static_cast<uint8_t>(c));
    }
    node = next;
  }
}

void TokenFinder::complete() {
  const size_t nodes = depth_.size();
  fallback_.assign(nodes, ByteTrie::kRoot);
  shorter_.assign(nodes, kNone);
  if (nodes == 0) return;
  // By depth: what a node falls back to is nearer to the root.
  std::vector<uint32_t> first(*std::max_element(depth_.begin(), depth_.end()) + 2, 0);
  for (const uint32_t depth : depth_) ++first[depth + 1];
  for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<uint32_t> order(nodes);
  for (uint32_t node = 0; node < nodes; ++node) order[first[depth_[node]]++] = node;
  for (const uint32_t node : order) {
    if (depth_[node] > 1) fallback_[node] = follow(fallback_[parent_[node]], byte_[node]);
    const uint32_t fallback = fallback_[node];
    shorter_[node] = trie_.value(fallback) >= 0 ? fallback : shorter_[fallback];
  }
}

}  // namespace qgen::tokenizer
