// Tokens beside the model's: found in the text before the model sees it, special ones left out on decoding.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/config_tokens.h"
#include "base/json.h"
#include "tokenizer/text.h"
#include "tokenizer/token_finder.h"
#include "tokenizer/vocabulary.h"

namespace qgen::tokenizer {

class AddedTokens {
 public:
  // Tokens keep the ids that the model's vocabulary has for them; the others get the next free ones, in
  // order, as `tokenizers` does it. A token that is there already has the new flags, but stays special.
  void add(std::vector<AddedToken> tokens, const Vocabulary& vocabulary);
  // For vocabularies without tokenizer.json: the id is given.
  void add_with_id(AddedToken token, TokenId id);
  // What the files beside tokenizer.json add to it, as in transformers (tokenization_utils_tokenizers.py): their tokens
  // count before those of tokenizer.json, special ones are only looked for there and in the vocabulary: what has no id
  // would get one there that the model has no row for.
  void add_beside(const ConfigTokens& config, const Vocabulary& vocabulary);
  // The same where there is no tokenizer.json: ids are what the files say, and all are looked for in the text as it is.
  void add_all(const ConfigTokens& config, const Vocabulary& vocabulary);

  // To be called after the last token was added and before split(). `normalize` gives the form in which a normalized
  // token appears in text.
  void complete(const std::function<std::string(std::string_view)>& normalize);

  // Tokens that are no special ones stand for text of anyone, as letters do that a vocabulary has been given later
  // (DeepSeek-V2), but for markup (<think>) and for words that this text, a chat template, mentions.
  void guard(std::string_view source);

  // Cuts [begin, end) of `text` at the tokens that are spelled out there. Of the others, `normalized` picks those
  // that are to be found in normalized text. All tokens are looked for within `trusted`, ascending ranges; outside of
  // them those that stand for anyone's text.
  void split(std::string_view text, size_t begin, size_t end, bool normalized, const std::vector<Span>& trusted,
             std::vector<Part>& out) const;
  // Where guarded tokens are spelled out, of those that are looked for in the text as it is.
  std::vector<Span> guarded_in(std::string_view text) const;
  bool any(bool normalized) const { return !(normalized ? normalized_ : plain_).all.empty(); }

  const AddedToken* find(TokenId id) const;
  TokenId id_of(std::string_view content) const;  // -1 if there is none
  bool is_special_content(std::string_view content) const { return special_.contains(std::string(content)); }
  std::vector<TokenId> special_ids(const Vocabulary& vocabulary) const;
  size_t count_beyond(const Vocabulary& vocabulary) const;

 private:
  void add_specials(const ConfigTokens& config, const Vocabulary& vocabulary);
  struct Cut;
  void split_range(const TokenFinder& finder, const Span& range, Cut& cut) const;

  std::unordered_map<TokenId, AddedToken> by_id_;
  std::unordered_map<std::string, TokenId> by_content_;
  std::unordered_set<std::string> special_;
  struct Finders {
    // Open are those that stand for anyone's text, guarded the others, but special ones.
    TokenFinder all, open, guarded;
    std::vector<std::pair<std::string, TokenId>> not_special;  // in the form in which they are looked for
  };
  Finders plain_, normalized_;
};

// The "added_tokens" of tokenizer.json. Their ids are not used: `tokenizers` gives its own.
std::vector<AddedToken> read_added_tokens(const Json& json);

// The id of a token that has a name ("bos_token"), if there is one.
std::optional<TokenId> id_of_name(const ConfigTokens& config, std::string_view name, const AddedTokens& added,
                                  const Vocabulary& vocabulary);

}  // namespace qgen::tokenizer
