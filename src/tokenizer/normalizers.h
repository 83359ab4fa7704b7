// The first stage: text to normalized text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/regex.h"
#include "tokenizer/text.h"
#include "tokenizer/token_finder.h"

namespace qgen::tokenizer {

// "pattern": {"String": ...} or {"Regex": ...}, as Replace and Split have it.
struct Pattern {
  std::string text;  // to be found as it is, if there is no regex
  std::optional<Regex> regex;
  static Pattern read(const Json& json);
  void find_all(std::string_view in, std::vector<Span>& out) const;
};

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
struct NormalizeReplace {
  Pattern pattern;
  std::string content;
};
struct NormalizePrepend {
  std::string prefix;
};
struct NormalizeStrip {
  bool left = true;
  bool right = true;
};
struct NormalizeLowercase {};
struct NormalizeStripAccents {};
struct NormalizeNmt {};
struct NormalizeByteLevel {};
struct NormalizePrecompiled {
  Charsmap map;
};
struct NormalizeBert {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};
// What SentencePiece itself does; not to be found in tokenizer.json.
struct NormalizeSentencePiece {
  Charsmap map;
  TokenFinder verbatim;  // user-defined pieces
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool only_first_prefix = false;  // the dummy prefix only at the beginning of the input
  bool suffix_space = false;       // the dummy prefix goes to the end
};

using Normalizer = std::variant<UnicodeForm, NormalizeReplace, NormalizePrepend, NormalizeStrip, NormalizeLowercase,
                                NormalizeStripAccents, NormalizeNmt, NormalizeByteLevel, NormalizePrecompiled,
                                NormalizeBert, NormalizeSentencePiece>;

// The "normalizer" of tokenizer.json, sequences flattened.
std::vector<Normalizer> read_normalizers(const Json& json);

void normalize(const std::vector<Normalizer>& normalizers, Text& text);

}  // namespace qgen::tokenizer
