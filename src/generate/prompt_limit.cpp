#include "generate/prompt_limit.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {
namespace {

// Text of any language has fewer bytes a token than this with any tokenizer, rows of blanks and the like aside.
constexpr int64_t kUsualBytes = 8;
constexpr size_t kChunkBytes = 64 << 10;

// How much of a text to tokenize at once: up to a line's or a word's end, so that next to no token is torn apart.
size_t chunk_of(std::string_view text) {
  if (text.size() <= kChunkBytes) return text.size();
  for (const char end : {'\n', ' '}) {
    const size_t at = text.rfind(end, kChunkBytes);
    if (at != text.npos && at > kChunkBytes / 2) return at;
  }
  size_t at = kChunkBytes;
  while (at > 1 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;  // whole characters
  return at;
}

}  // namespace

void refuse_far_too_long(std::span<const std::string_view> prompt, const Tokenizer& tokenizer, int64_t context,
                         const std::string& model_name) {
  size_t bytes = 0;
  for (const std::string_view part : prompt) bytes += part.size();
  if (int64_t(bytes) <= kUsualBytes * context + int64_t(kChunkBytes)) return;
  EncodeOptions plain;
  plain.add_special_tokens = plain.parse_special_tokens = false;
  // Tokens that chunks tear apart are few: the quarter is more than enough for them.
  const int64_t enough = context + context / 4 + 1024;
  int64_t tokens = 0;
  for (std::string_view text : prompt) {
    while (!text.empty()) {
      const size_t chunk = chunk_of(text);
      tokens += int64_t(tokenizer.encode(text.substr(0, chunk), plain).ids.size());
      text.remove_prefix(chunk);
      if (tokens <= enough) continue;
      fail(ErrorKind::kUsage,
           fmt::format("{}: the prompt does not fit in the context (expected at most {} tokens, found more than {})",
                       model_name, context, tokens),
           fmt::format("it has {} bytes; a part of them, or a summary, may do", bytes));
    }
  }
}

}  // namespace qgen
