// Any expression of a tokenizer on any text: it is refused, or its matches lie in the text one after the other.
#include "base/utf8.h"
#include "tests/fuzz/support.h"
#include "tokenizer/regex.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 256, 8 << 20);
  const auto parts = qgen::fuzz::parts_of(qgen::fuzz::text_of(data, size), 2);
  if (!qgen::is_utf8(parts[0])) return 0;
  const std::string text =
      qgen::replace_invalid_utf8(parts.size() > 1 ? parts[1] : "don't  x1\r\n \xE4\xBD\xA0\xE5\xA5\xBD caf\xC3\xA9!?");
  qgen::fuzz::expect_model_error([&] {
    const qgen::tokenizer::Regex regex(parts[0]);
    std::vector<qgen::tokenizer::Span> matches;
    const qgen::tokenizer::MatchTime limited(text.size(), 0.5);
    regex.find_all(text, matches);
    size_t end = 0;
    for (const auto& match : matches) {
      if (match.begin < end || match.end < match.begin || match.end > text.size()) std::abort();
      // A match cuts no character.
      for (const size_t at : {match.begin, match.end}) {
        if (at < text.size() && qgen::tokenizer::is_continuation(text[at])) std::abort();
      }
      end = match.end;
    }
  });
  return 0;
}
