// Regular expressions of tokenizer files. They are written for Oniguruma; we rewrite them for PCRE2 so that
// they match the same text, and reject what we cannot. Matches are found as `tokenizers` finds them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text.h"

namespace qgen::tokenizer {

// `pattern` (Oniguruma's syntax) in PCRE2's. Throws a model Error that shows the pattern if it uses what has
// no counterpart.
std::string pcre2_pattern(std::string_view pattern);

class Regex {
 public:
  // Throws a model Error that shows the pattern.
  explicit Regex(std::string_view pattern);

  // All matches in `text` in order, none overlapping; empty ones count unless one ends where the last did.
  // Throws a model Error if matching takes too many steps.
  void find_all(std::string_view text, std::vector<Span>& out) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace qgen::tokenizer
