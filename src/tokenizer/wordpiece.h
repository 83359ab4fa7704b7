// WordPiece: the longest piece that the word begins with, then the longest that goes on, and so forth; a word
// that cannot be cut so is unknown as a whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/token_finder.h"
#include "tokenizer/vocabulary.h"

namespace qgen::tokenizer {

struct WordPieceOptions {
  std::string unknown;
  std::string continuing_prefix;
  size_t max_chars = 100;  // longer words are unknown
};

class WordPiece {
 public:
  WordPiece(Vocabulary vocabulary, WordPieceOptions options);
  void forbid(const std::vector<TokenId>& ids);
  void tokenize(std::string_view word, Trust trust, std::vector<Token>& out) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  WordPieceOptions options_;
  TokenFinder starts_;     // all pieces
  TokenFinder continues_;  // those with the prefix, without it
  std::vector<bool> forbidden_;
};

}  // namespace qgen::tokenizer
