// One pass: characters are mapped by their longest entry, runs of spaces shrink, spaces become visible.
#include "tokenizer/sentencepiece_text.h"

namespace qgen::tokenizer {
namespace {

constexpr std::string_view kVisibleSpace = "\xE2\x96\x81";

}  // namespace

void normalize_for_sentencepiece(const NormalizeSentencePiece& normalizer, Text& text) {
  const std::string_view in = text.view();
  if (in.empty()) return;
  const std::string_view space = normalizer.escape_whitespaces ? kVisibleSpace : std::string_view(" ");
  TokenMatches verbatim(normalizer.verbatim, in);
  // What the text begins with at `at`: its bytes there and their replacement.
  const auto next = [&](size_t at) -> Charsmap::Hit {
    const std::string_view left = in.substr(at);
    if (const uint32_t piece = verbatim.at(at); piece != TokenFinder::kNone) {
      const size_t length = normalizer.verbatim.length(piece);
      return {length, left.substr(0, length)};
    }
    if (const auto hit = normalizer.map.longest(left)) return *hit;
    const size_t length = char_at(left).length;
    return {length, left.substr(0, length)};
  };

  TextBuilder builder(text);
  size_t at = 0;
  if (normalizer.remove_extra_whitespaces) {
    while (at < in.size()) {
      const auto hit = next(at);
      if (hit.replacement != " ") break;
      at += hit.length;
    }
    if (at == in.size()) {
      text = builder.take();
      return;
    }
  }
  const bool dummy = normalizer.add_dummy_prefix && (!normalizer.only_first_prefix || text.source_of(0).begin == 0);
  if (dummy && !normalizer.suffix_space) builder.put(space, at, at + char_at(in.substr(at)).length);
  bool after_space = normalizer.remove_extra_whitespaces;
  // Spaces at the end are only known as such once nothing follows: they wait.
  struct Pending {
    size_t begin, end;
  };
  std::vector<Pending> spaces;
  const auto put_space = [&](size_t begin, size_t end) { builder.put(space, begin, end); };
  while (at < in.size()) {
    const auto hit = next(at);
    std::string_view replacement = hit.replacement;
    while (after_space && replacement.starts_with(' ')) replacement.remove_prefix(1);
    for (const char& c : replacement) {
      const size_t i = size_t(&c - replacement.data());
      if (c == ' ') {
        if (normalizer.remove_extra_whitespaces) {
          spaces.push_back({at, at + hit.length});
        } else {
          put_space(at, at + hit.length);
        }
        continue;
      }
      for (const Pending& pending : spaces) put_space(pending.begin, pending.end);
      spaces.clear();
      builder.put(replacement.substr(i, 1), at, at + hit.length);
    }
    if (!replacement.empty()) after_space = normalizer.remove_extra_whitespaces && replacement.ends_with(' ');
    at += hit.length;
  }
  if (dummy && normalizer.suffix_space) builder.put(space, in.size() - 1, in.size());
  text = builder.take();
}

}  // namespace qgen::tokenizer
