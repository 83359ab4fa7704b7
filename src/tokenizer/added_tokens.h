// Tokens beside the model's: found in the text before the model sees it, special ones left out on decoding.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "tokenizer/text.h"
#include "tokenizer/token_finder.h"
#include "tokenizer/vocabulary.h"

namespace qgen::tokenizer {

struct AddedToken {
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

class AddedTokens {
 public:
  // Tokens keep the ids that the model's vocabulary has for them; the others get the next free ones, in
  // order, as `tokenizers` does it. `normalize` gives the form in which a normalized token appears in text.
  void add(std::vector<AddedToken> tokens, const Vocabulary& vocabulary,
           const std::function<std::string(std::string_view)>& normalize);
  // For vocabularies without tokenizer.json: the id is given.
  void add_with_id(AddedToken token, TokenId id, const std::function<std::string(std::string_view)>& normalize);

  // To be called after the last token was added and before split().
  void complete();

  // Cuts [begin, end) of `text` at the tokens that are spelled out there. Of the others, `normalized` picks those
  // that are to be found in normalized text. Tokens are only looked for within `allowed`, ascending ranges.
  void split(std::string_view text, size_t begin, size_t end, bool normalized, const std::vector<Span>& allowed,
             std::vector<Part>& out) const;
  bool any(bool normalized) const { return !(normalized ? normalized_ : plain_).empty(); }

  const AddedToken* find(TokenId id) const;
  TokenId id_of(std::string_view content) const;  // -1 if there is none
  bool is_special_content(std::string_view content) const { return special_.contains(std::string(content)); }
  std::vector<TokenId> special_ids(const Vocabulary& vocabulary) const;
  size_t count_beyond(const Vocabulary& vocabulary) const;

 private:
  std::unordered_map<TokenId, AddedToken> by_id_;
  std::unordered_map<std::string, TokenId> by_content_;
  std::unordered_set<std::string> special_;
  TokenFinder plain_;
  TokenFinder normalized_;
};

// The "added_tokens" of tokenizer.json. Their ids are not used: `tokenizers` gives its own.
std::vector<AddedToken> read_added_tokens(const Json& json);
AddedToken read_added_token(const Json& json, std::string content);

}  // namespace qgen::tokenizer
