// Finds where strings of a set begin in a text, in time linear in the text however long the strings are: the automaton
// of Aho and Corasick ("Efficient string matching", CACM 18(6), 1975) over the reversed strings, run from the text's
// end to its beginning. There its state at a place holds all strings of the set that begin at that place.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "tokenizer/vocabulary.h"

namespace qgen::tokenizer {

class TokenFinder {
 public:
  static constexpr uint32_t kNone = 0;  // the root: no string

  // A string that is there already gets the new id. Empty ones are left out.
  void add(std::string_view text, TokenId id);
  // To be called after the last add() and before the first search.
  void complete();
  bool empty() const { return trie_.empty(); }

  // Calls found(i, match) for every i where a string begins, from the text's end to its beginning; `match` is the
  // longest one.
  template <typename Found>
  void scan(std::string_view text, Found&& found) const {
    uint32_t node = ByteTrie::kRoot;
    for (size_t i = text.size(); i-- > 0;) {
      const uint8_t byte = static_cast<uint8_t>(text[i]);
      if (node == ByteTrie::kRoot && !trie_.can_start(byte)) continue;
      node = follow(node, byte);
      if (const uint32_t match = trie_.value(node) >= 0 ? node : shorter_[node]; match != kNone) found(i, match);
    }
  }
  // Of a match: the next shorter string that begins there, or kNone.
  uint32_t shorter(uint32_t match) const { return shorter_[match]; }
  TokenId id(uint32_t match) const { return trie_.value(match); }
  uint32_t length(uint32_t match) const { return depth_[match]; }  // bytes

 private:
  uint32_t follow(uint32_t node, uint8_t byte) const {
    for (;;) {
      const uint32_t next = trie_.step(node, byte);
      if (next != ByteTrie::kDead) return next;
      if (node == ByteTrie::kRoot) return node;
      node = fallback_[node];
    }
  }

  ByteTrie trie_;                // of the reversed strings
  std::vector<uint32_t> depth_;  // by node, as all of these
  std::vector<uint32_t> parent_;
  std::vector<uint8_t> byte_;       // that leads there from its parent
  std::vector<uint32_t> fallback_;  // the longest proper suffix that is a node
  std::vector<uint32_t> shorter_;   // the longest proper suffix that is a string
};

// The longest strings that begin somewhere, for a walk from the text's beginning to its end.
class TokenMatches {
 public:
  TokenMatches() = default;
  TokenMatches(const TokenFinder& finder, std::string_view text) : finder_(&finder) {
    finder.scan(text, [&](size_t begin, uint32_t match) { matches_.push_back({uint32_t(begin), match}); });
  }
  // What begins at `at`, which never decreases from call to call; TokenFinder::kNone for nothing.
  uint32_t at(size_t at) {
    while (!matches_.empty() && matches_.back().begin < at) matches_.pop_back();
    return !matches_.empty() && matches_.back().begin == at ? matches_.back().match : TokenFinder::kNone;
  }
  // The next place, from `at` on, where something begins; SIZE_MAX for none.
  size_t next(size_t at) {
    while (!matches_.empty() && matches_.back().begin < at) matches_.pop_back();
    return matches_.empty() ? SIZE_MAX : matches_.back().begin;
  }

 private:
  struct Match {
    uint32_t begin, match;
  };
  const TokenFinder* finder_ = nullptr;
  std::vector<Match> matches_;  // the first one last
};

}  // namespace qgen::tokenizer
