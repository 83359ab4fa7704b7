// What every model of a vocabulary shares: words in, tokens out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace qgen::tokenizer {

// One token of a word: bytes [begin, end) of that word.
struct Token {
  TokenId id = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
};

// Whose words they are. Words that hold text of a user never become ids of special tokens, not even where
// the vocabulary spells one out and its merges lead there.
enum class Trust { kTrusted, kUntrusted };

}  // namespace qgen::tokenizer
