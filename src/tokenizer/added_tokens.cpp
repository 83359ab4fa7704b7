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
    Finders& finders = token.normalized ? normalized_ : plain_;
    const std::string form = token.normalized ? normalize(token.content) : token.content;
    finders.all.add(form, id);
    if (!special_.contains(token.content)) finders.not_special.emplace_back(form, id);
  }
  plain_.all.complete();
  normalized_.all.complete();
  guard("");
}

void AddedTokens::guard(std::string_view source) {
  const auto is_open = [&](std::string_view content) {
    // Markup, which a template may also put together.
    if (content.size() > 1 && content.find_first_of("<>[]{}|") != content.npos) return false;
    // One letter or white space that a template has too is none of its words.
    const bool word = std::ranges::count_if(content, [](char c) { return (c & 0xC0) != 0x80; }) > 1 &&
                      content.find_first_not_of(" \t\r\n") != content.npos;
    return !word || source.find(content) == source.npos;
  };
  for (Finders* finders : {&plain_, &normalized_}) {
    finders->open = finders->guarded = TokenFinder();
    for (const auto& [form, id] : finders->not_special)
      (is_open(by_id_.at(id).content) ? finders->open : finders->guarded).add(form, id);
    finders->open.complete();
    finders->guarded.complete();
  }
}

std::vector<Span> AddedTokens::guarded_in(std::string_view text) const {
  std::vector<Span> out;
  if (plain_.guarded.empty()) return out;
  TokenMatches matches(plain_.guarded, text);
  for (size_t at = 0; (at = matches.next(at)) != SIZE_MAX;) {
    const size_t end = at + plain_.guarded.length(matches.at(at));
    out.push_back({uint32_t(at), uint32_t(end)});
    at = end;
  }
  return out;
}

// A part of a text that is cut at tokens from its beginning to its end.
struct AddedTokens::Cut {
  std::string_view part;
  size_t begin = 0;  // of the part in the text
  std::vector<Part>& out;
  size_t done = 0, space_end = 0;  // within the part

  void plain(size_t to) const {
    if (done < to) out.push_back({begin + done, begin + to, -1});
  }
  void take(size_t from, size_t to, const AddedToken& token, TokenId id) {
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
    plain(from);
    out.push_back({begin + from, begin + to, id});
    done = to;
  }
};

// `range`: of the part.
void AddedTokens::split_range(const TokenFinder& finder, const Span& range, Cut& cut) const {
  if (finder.empty() || range.begin >= range.end) return;
  TokenMatches matches(finder, cut.part.substr(range.begin, range.end - range.begin));
  for (size_t at = 0; (at = matches.next(at)) != SIZE_MAX;) {
    const uint32_t match = matches.at(at);
    const size_t from = range.begin + at;
    at += finder.length(match);
    const TokenId id = finder.id(match);
    if (const auto found = by_id_.find(id); found != by_id_.end()) cut.take(from, range.begin + at, found->second, id);
  }
}

void AddedTokens::split(std::string_view text, size_t begin, size_t end, bool normalized,
                        const std::vector<Span>& trusted, std::vector<Part>& out) const {
  const Finders& finders = normalized ? normalized_ : plain_;
  Cut cut{text.substr(begin, end - begin), begin, out};
  const auto within = [&](uint32_t at) { return uint32_t(std::clamp<size_t>(at, begin, end) - begin); };
  uint32_t done = 0;
  for (const Span& range : trusted) {
    const Span own{within(range.begin), within(range.end)};
    split_range(finders.open, {done, own.begin}, cut);
    split_range(finders.all, own, cut);
    done = std::max(done, own.end);
  }
  split_range(finders.open, {done, uint32_t(cut.part.size())}, cut);
  cut.plain(cut.part.size());
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
