// What the small files beside a vocabulary say about added and special tokens: tokenizer_config.json, and where that
// has no added_tokens_decoder, special_tokens_map.json, which then counts first, and added_tokens.json. As
// transformers 5 reads them (tokenization_utils_base.py, PreTrainedTokenizerBase._from_pretrained).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/model_files.h"
#include "base/token.h"

namespace qgen {

struct AddedToken {
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

// Flags that are left out are off, but for `normalized`: it is what `special` is not.
AddedToken read_added_token(const Json& json, std::string content);

// Of a tokenizer, by the names that templates know them by: "bos_token" -> "<s>".
using SpecialTokens = std::map<std::string, std::string, std::less<>>;

struct ConfigTokens {
  std::map<TokenId, AddedToken> tokens;  // those with ids of their own
  // Of what ends with _token, and of lists of further ones, by content. Some are in `tokens` too, which then say how
  // they are found in a text.
  std::map<std::string, AddedToken> specials;
  // What ends with _token. bos_token and eos_token are there unless they are null: of some classes that have them by
  // default, else "".
  SpecialTokens names;
  std::string tokenizer_class;
  std::optional<bool> add_bos_token, add_eos_token, add_prefix_space, legacy;
};

ConfigTokens read_config_tokens(const ModelFiles& files);

}  // namespace qgen
