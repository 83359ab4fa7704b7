// Viterbi over the bytes of a word, with all pieces that begin at each of them.
#include "tokenizer/unigram.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/text.h"

namespace qgen::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10.0;

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options)
    : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), options_(std::move(options)) {
  options_.unreachable.resize(vocabulary_.id_limit());
  for (TokenId id = 0; size_t(id) < vocabulary_.id_limit(); ++id) {
    const std::string_view piece = vocabulary_.piece(id);
    if (!piece.empty() && !options_.unreachable[id]) pieces_.add(piece, id);
  }
  pieces_.complete();
  for (int b = 0; b < 256; ++b) fallback_bytes_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
}

void Unigram::forbid(const std::vector<TokenId>& ids) {
  forbidden_.assign(vocabulary_.id_limit(), false);
  for (const TokenId id : ids) {
    if (vocabulary_.has(id)) forbidden_[id] = true;
  }
}

void Unigram::tokenize(std::string_view word, Trust trust, UnigramScratch& scratch, std::vector<Token>& out) const {
  const bool guarded = trust == Trust::kUntrusted && !forbidden_.empty();
  const double unknown_score = options_.single_precision ? double(float(options_.lowest_score) - float(kUnknownPenalty))
                                                         : options_.lowest_score - kUnknownPenalty;
  auto& nodes = scratch.nodes;
  nodes.assign(word.size() + 1, {});
  const auto offer = [&](size_t end, size_t begin, TokenId id, double score) {
    double sum = nodes[begin].score + score;
    if (options_.single_precision) sum = double(float(nodes[begin].score) + float(score));
    auto& node = nodes[end];
    if (node.begin == UINT32_MAX || sum > node.score) node = {id, sum, uint32_t(begin)};
  };
  scratch.pieces.assign(word.size(), TokenFinder::kNone);
  pieces_.scan(word, [&](size_t begin, uint32_t piece) { scratch.pieces[begin] = piece; });
  for (size_t begin = 0; begin < word.size();) {
    const uint32_t length = char_at(word.substr(begin)).length;
    bool single = false;
    for (uint32_t piece = scratch.pieces[begin]; piece != TokenFinder::kNone; piece = pieces_.shorter(piece)) {
      const TokenId id = pieces_.id(piece);
      if (guarded && forbidden_[id]) continue;
      offer(begin + pieces_.length(piece), begin, id, scores_[id]);
      single = single || pieces_.length(piece) == length;
    }
    if (!single) {
      if (nodes[begin + length].begin == UINT32_MAX ||
          nodes[begin].score + unknown_score > nodes[begin + length].score) {
        if (!options_.unknown) {
          fail(ErrorKind::kModel, "tokenizer: a character is not in the vocabulary, which has no unknown piece");
        }
      }
      offer(begin + length, begin, options_.unknown.value_or(-1), unknown_score);
    }
    begin += length;
  }
  // Neighbouring unknown characters are one token.
  auto& reversed = scratch.reversed;
  reversed.clear();
  for (uint32_t end = uint32_t(word.size()); end > 0;) {
    const auto& node = nodes[end];
    if (node.id == options_.unknown && !reversed.empty() && reversed.back().id == node.id) {
      reversed.back().begin = node.begin;
    } else {
      reversed.push_back({node.id, node.begin, end});
    }
    end = node.begin;
  }
  for (auto token = reversed.rbegin(); token != reversed.rend(); ++token) {
    const std::string_view piece = word.substr(token->begin, token->end - token->begin);
    if (token->id != options_.unknown) {
      out.push_back(*token);
      continue;
    }
    // Fused characters may spell a piece after all.
    const TokenId whole = options_.single_precision ? -1 : vocabulary_.find(piece);
    const auto has_byte = [&](char c) { return fallback_bytes_[static_cast<uint8_t>(c)] >= 0; };
    if (whole >= 0 && !(guarded && forbidden_[whole])) {
      out.push_back({whole, token->begin, token->end});
    } else if (options_.byte_fallback && std::all_of(piece.begin(), piece.end(), has_byte)) {
      for (const char c : piece) out.push_back({fallback_bytes_[static_cast<uint8_t>(c)], token->begin, token->end});
    } else {
      out.push_back(*token);
    }
  }
}

}  // namespace qgen::tokenizer
