// The stage after the model: tokens that every text gets, and trimmed offsets.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace qgen::tokenizer {

// Tokens around the text's own: all of `before`, the text, all of `after`. Templates may repeat or leave
// out the text.
struct PostTemplate {
  struct Item {
    bool text = false;         // the text's tokens, else
    std::vector<TokenId> ids;  // these
  };
  std::vector<Item> items;
  bool always = false;  // drops or repeats the text even without special tokens
};
struct PostTrimOffsets {
  bool add_prefix_space = true;
};

using PostProcessor = std::variant<PostTemplate, PostTrimOffsets>;

// The "post_processor" of tokenizer.json, sequences flattened.
std::vector<PostProcessor> read_post_processors(const Json& json);

void post_process(const std::vector<PostProcessor>& processors, const Tokenizer& tokenizer, bool add_special_tokens,
                  Encoding& encoding);

}  // namespace qgen::tokenizer
