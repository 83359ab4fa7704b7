// The second stage: normalized text to words.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/text.h"

namespace qgen::tokenizer {

// What becomes of the text that a splitting pattern matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitByteLevel {
  bool add_prefix_space = true;
  bool use_regex = true;
  // Off if the model reads bytes: it then spells them in the byte-level alphabet itself.
  bool spell_bytes = true;
  Regex regex;
};
struct SplitPattern {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
struct SplitDigits {
  bool individual = false;
};
struct SplitPunctuation {
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
struct SplitWords {};       // "Whitespace": \w+|[^\w\s]+
struct SplitWhitespace {};  // "WhitespaceSplit"
struct SplitBert {};
struct SplitMetaspace {
  enum class Prepend { kFirst, kNever, kAlways };
  std::string replacement;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
struct SplitDelimiter {
  uint32_t delimiter = 0;
};
struct SplitFixedLength {
  size_t chars = 5;
};

using PreTokenizer = std::variant<SplitByteLevel, SplitPattern, SplitDigits, SplitPunctuation, SplitWords,
                                  SplitWhitespace, SplitBert, SplitMetaspace, SplitDelimiter, SplitFixedLength>;

// The "pre_tokenizer" of tokenizer.json, sequences flattened.
std::vector<PreTokenizer> read_pre_tokenizers(const Json& json);

// The splitting pattern of GPT-2.
Regex byte_level_regex();

// Cuts `parts` of `text` into words; parts that are tokens already stay.
void pre_tokenize(const std::vector<PreTokenizer>& pre_tokenizers, Text& text, std::vector<Part>& parts);

}  // namespace qgen::tokenizer
