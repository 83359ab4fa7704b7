// The unigram model: of all ways to cut a word into pieces, the one with the highest sum of scores.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/token_finder.h"
#include "tokenizer/vocabulary.h"

namespace qgen::tokenizer {

struct UnigramOptions {
  std::optional<TokenId> unknown;
  bool byte_fallback = false;
  bool single_precision = false;  // sums of scores in float, as SentencePiece has them
  // SentencePiece: pieces that text cannot become (control pieces, bytes, unused ones).
  std::vector<bool> unreachable;
  double lowest_score = 0;  // of all pieces; an unknown character costs 10 more
};

// Working memory of one thread.
struct UnigramScratch {
  struct Node {
    TokenId id = -1;
    double score = 0;
    uint32_t begin = UINT32_MAX;
  };
  std::vector<Node> nodes;
  std::vector<uint32_t> pieces;  // by byte of the word: the longest piece that begins there (TokenFinder)
  std::vector<Token> reversed;
};

class Unigram {
 public:
  // `scores` by id.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options);
  void forbid(const std::vector<TokenId>& ids);
  void tokenize(std::string_view word, Trust trust, UnigramScratch& scratch, std::vector<Token>& out) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  TokenFinder pieces_;
  std::vector<bool> forbidden_;
  std::array<TokenId, 256> fallback_bytes_{};
};

}  // namespace qgen::tokenizer
