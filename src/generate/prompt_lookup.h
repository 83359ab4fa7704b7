// Guesses how a text goes on from the text itself: what followed the last time that its latest tokens stood there
// (prompt lookup decoding, A. Saxena 2023). Summaries, corrections and code repeat long parts of what they are about.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"
#include "generate/ngram_index.h"

namespace qgen {

class PromptLookup {
 public:
  // `most`: the tokens that a draft has at most.
  explicit PromptLookup(int64_t most) : most_(most) {}

  void see(TokenId token);
  // The tokens that may follow those seen, at most `room`. None where nothing comparable came before, or too little
  // of what did has come true lately.
  std::vector<TokenId> draft(int64_t room) const;
  // How many tokens at the beginning of a draft came true.
  void judge(int64_t drafted, int64_t accepted);

  // Fewer tokens in common say nothing: most pairs of words come again somewhere, and go on in another way.
  static constexpr int64_t kShortestMatch = 3;
  static constexpr int64_t kLongestMatch = 16;  // that is ever asked for

 private:
  struct Match {
    size_t end = 0;      // the position after the earlier occurrence
    int64_t length = 0;  // tokens in common, counted as far as anybody asks
  };
  Match find() const;

  int64_t most_;
  int64_t needed_ = kShortestMatch;  // tokens that a match must have in common
  std::vector<TokenId> text_;
  // The latest of long matches first: it is seldom the latest of short ones.
  std::array<NgramIndex, 2> indexes_ = {NgramIndex(8), NgramIndex(size_t(kShortestMatch))};
};

}  // namespace qgen
