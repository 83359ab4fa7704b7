// Of the tokens that match at the leftmost place the longest is taken.
#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace qgen::tokenizer {
namespace {

// Spaces at the end of `text`, in bytes, and at its beginning.
size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const Char c = char_before_end(text.substr(0, end));
    if (!is_white_space(c.code_point)) break;
    end -= c.length;
  }
  return text.size() - end;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Char c = char_at(text.substr(at));
    if (!is_white_space(c.code_point)) break;
    at += c.length;
  }
  return at;
}

}  // namespace

void AddedTokens::add(std::vector<AddedToken> tokens, const Vocabulary& vocabulary) {
  TokenId next = TokenId(vocabulary.size());
  for (const auto& [id, token] : by_id_) next = std::max(next, id + 1);
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    TokenId id = id_of(token.content);
    if (id < 0) id = vocabulary.find(token.content);
    if (id < 0) id = next++;
    add_with_id(std::move(token), id);
  }
}

void AddedTokens::add_with_id(AddedToken token, TokenId id) {
  if (token.content.empty()) return;
  by_content_[token.content] = id;
  if (token.special) special_.insert(token.content);
  by_id_[id] = std::move(token);
}

void AddedTokens::add_beside(const ConfigTokens& config, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  for (const auto& [id, token] : config.tokens) tokens.push_back(token);
  add(std::move(tokens), vocabulary);
  add_specials(config, vocabulary);
}

void AddedTokens::add_all(const ConfigTokens& config, const Vocabulary& vocabulary) {
  for (auto [id, token] : config.tokens) {
    token.normalized = false;
    add_with_id(std::move(token), id);
  }
  add_specials(config, vocabulary);
}

void AddedTokens::add_specials(const ConfigTokens& config, const Vocabulary& vocabulary) {
  for (auto [content, token] : config.specials) {
    TokenId id = id_of(content);
    if (id >= 0) {
      token = by_id_[id];
    } else {
      id = vocabulary.find(content);
      token.normalized = false;
    }
    token.special = true;
    if (id >= 0) add_with_id(std::move(token), id);
  }
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

TokenId AddedTokens::id_of(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? -1 : found->second;
}

std::vector<TokenId> AddedTokens::special_ids(const Vocabulary& vocabulary) const {
  std::vector<TokenId> ids;
  for (const auto& [id, token] : by_id_) {
    if (special_.contains(token.content)) ids.push_back(id);
  }
  for (const std::string& content : special_) {
    if (const TokenId id = vocabulary.find(content); id >= 0) ids.push_back(id);
  }
  return ids;
}

size_t AddedTokens::count_beyond(const Vocabulary& vocabulary) const {
  return size_t(std::count_if(by_content_.begin(), by_content_.end(),
                              [&](const auto& entry) { return vocabulary.find(entry.first) < 0; }));
}

void AddedTokens::complete(const std::function<std::string(std::string_view)>& normalize) {
  std::vector<TokenId> ids;
  for (const auto& [id, token] : by_id_) ids.push_back(id);
  std::ranges::sort(ids);
  for (const TokenId id : ids) {
    const AddedToken& token = by_id_.at(id);
    if (token.normalized) {
      normalized_.add(normalize(token.content), id);
    } else {
      plain_.add(token.content, id);
    }
  }
  plain_.complete();
  normalized_.complete();
}

void AddedTokens::split(std::string_view text, size_t begin, size_t end, bool normalized,
                        const std::vector<Span>& allowed, std::vector<Part>& out) const {
  const TokenFinder& finder = normalized ? normalized_ : plain_;
  const std::string_view part = text.substr(begin, end - begin);
  size_t done = 0, space_end = 0;
  const auto plain = [&](size_t from, size_t to) {
    if (from < to) out.push_back({begin + from, begin + to, -1});
  };
  const auto take = [&](size_t from, size_t to, TokenId id) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    const AddedToken& token = found->second;
    if (token.single_word) {
      const bool starts = from == 0 || !is_word(char_before_end(part.substr(0, from)).code_point);
      const bool ends = to == part.size() || !is_word(char_at(part.substr(to)).code_point);
      if (!starts || !ends) return;
    }
    // White space is walked over once, however many tokens take it.
    if (token.lstrip) from = from > done ? from - trailing_space(part.substr(done, from - done)) : done;
    if (token.rstrip) {
      if (to >= space_end) space_end = to + leading_space(part.substr(to));
      to = space_end;
    }
    plain(done, from);
    out.push_back({begin + from, begin + to, id});
    done = to;
  };
  if (!finder.empty()) {
    for (const Span& range : allowed) {
      const size_t first = std::max<size_t>(range.begin, begin), last = std::min<size_t>(range.end, end);
      if (first >= last) continue;
      TokenMatches matches(finder, text.substr(first, last - first));
      for (size_t at = 0; (at = matches.next(at)) != SIZE_MAX;) {
        const uint32_t match = matches.at(at);
        const size_t from = first + at - begin;
        at += finder.length(match);
        take(from, first + at - begin, finder.id(match));
      }
    }
  }
  plain(done, part.size());
}

std::vector<AddedToken> read_added_tokens(const Json& json) {
  std::vector<AddedToken> out;
  if (json.is_null()) return out;
  for (const Json& element : json.elements()) {
    for (const std::string_view key : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
      element.at(key).as_bool();
    }
    element.at("id").as_integer(0, UINT32_MAX);
    out.push_back(read_added_token(element, std::string(element.at("content").as_string())));
  }
  return out;
}

std::optional<TokenId> id_of_name(const ConfigTokens& config, std::string_view name, const AddedTokens& added,
                                  const Vocabulary& vocabulary) {
  const auto content = config.names.find(name);
  if (content == config.names.end()) return {};
  TokenId id = added.id_of(content->second);
  if (id < 0) id = vocabulary.find(content->second);
  if (id < 0) return {};
  return id;
}

}  // namespace qgen::tokenizer
