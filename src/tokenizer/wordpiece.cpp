// Greedy longest match.
#include "tokenizer/wordpiece.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/text.h"

namespace qgen::tokenizer {

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  const std::string_view prefix = options_.continuing_prefix;
  vocabulary_.for_each([&](std::string_view piece, TokenId id) {
    starts_.add(piece, id);
    if (piece.starts_with(prefix)) continues_.add(piece.substr(prefix.size()), id);
  });
  starts_.complete();
  continues_.complete();
}

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
  const size_t taken = known ? word.size() : 0;
  TokenMatches starts(starts_, word.substr(0, taken)), continues(continues_, word.substr(0, taken));
  for (size_t begin = 0; known && begin < word.size();) {
    const TokenFinder& finder = begin == 0 ? starts_ : continues_;
    uint32_t match = begin == 0 ? starts.at(0) : continues.at(begin);
    while (match != TokenFinder::kNone && guarded && forbidden_[finder.id(match)]) match = finder.shorter(match);
    known = match != TokenFinder::kNone;
    if (!known) break;
    const size_t end = begin + finder.length(match);
    out.push_back({finder.id(match), uint32_t(begin), uint32_t(end)});
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
