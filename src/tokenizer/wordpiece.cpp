// Greedy longest match, from the longest piece of the vocabulary downwards.
#include "tokenizer/wordpiece.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/text.h"

namespace qgen::tokenizer {

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

void WordPiece::forbid(const std::vector<TokenId>& ids) {
  forbidden_.assign(vocabulary_.id_limit(), false);
  for (const TokenId id : ids) {
    if (vocabulary_.has(id)) forbidden_[id] = true;
  }
}

void WordPiece::tokenize(std::string_view word, Trust trust, std::vector<Token>& out) const {
  const bool guarded = trust == Trust::kUntrusted && !forbidden_.empty();
  const size_t old = out.size();
  bool known = count_chars(word) <= options_.max_chars;
  std::string piece;
  for (size_t begin = 0; known && begin < word.size();) {
    const std::string_view prefix = begin > 0 ? std::string_view(options_.continuing_prefix) : std::string_view();
    const size_t longest = vocabulary_.longest_piece() - std::min(vocabulary_.longest_piece(), prefix.size());
    size_t end = std::min(word.size(), begin + longest);
    while (end > begin && end < word.size() && is_continuation(word[end])) --end;
    TokenId id = -1;
    while (end > begin) {
      piece = prefix;
      piece += word.substr(begin, end - begin);
      id = vocabulary_.find(piece);
      if (id >= 0 && !(guarded && forbidden_[id])) break;
      id = -1;
      do --end;
      while (end > begin && is_continuation(word[end]));
    }
    known = id >= 0;
    if (known) out.push_back({id, uint32_t(begin), uint32_t(end)});
    begin = end;
  }
  if (known) return;
  out.resize(old);
  const TokenId unknown = vocabulary_.find(options_.unknown);
  if (unknown < 0) {
    fail(ErrorKind::kModel,
         fmt::format("tokenizer: the unknown token '{}' is not in the vocabulary", options_.unknown));
  }
  out.push_back({unknown, 0, uint32_t(word.size())});
}

}  // namespace qgen::tokenizer
