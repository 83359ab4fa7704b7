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

// Limits the time that all matching on this thread may take for a text of so many bytes, as long as the object lives.
// Expressions of published files are a thousand times faster; one that backtracks without end would take days.
class MatchTime {
 public:
  explicit MatchTime(size_t text_bytes, double least_seconds = 5);
  ~MatchTime();
  MatchTime(const MatchTime&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Regex {
 public:
  // Throws a model Error that shows the pattern.
  explicit Regex(std::string_view pattern);

  // All matches in `text` in order, none overlapping; empty ones count unless one ends where the last did.
  // Throws a model Error if matching takes too many steps, or too long (MatchTime).
  void find_all(std::string_view text, std::vector<Span>& out) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace qgen::tokenizer
