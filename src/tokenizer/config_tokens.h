// What the small files beside a vocabulary say about added and special tokens: tokenizer_config.json,
// added_tokens.json, special_tokens_map.json. Only read where there is no tokenizer.json.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/model_files.h"
#include "tokenizer/added_tokens.h"

namespace qgen::tokenizer {

struct ConfigTokens {
  std::map<TokenId, AddedToken> tokens;        // those with ids of their own
  std::map<std::string, AddedToken> specials;  // special ones by name, to be found in the vocabulary
  std::map<std::string, std::string> roles;    // "bos_token" -> its content
  std::string tokenizer_class;
  std::optional<bool> add_bos_token, add_eos_token, add_prefix_space, legacy;

  // Adds them all to `added`; specials that neither the vocabulary nor the files give an id are left out.
  void add_to(AddedTokens& added, const Vocabulary& vocabulary) const;
  // The id of a role's token, if there is one.
  std::optional<TokenId> id_of_role(const std::string& role, const AddedTokens& added,
                                    const Vocabulary& vocabulary) const;
};

ConfigTokens read_config_tokens(const ModelFiles& files);

}  // namespace qgen::tokenizer
