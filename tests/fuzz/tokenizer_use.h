// What must hold of any tokenizer that could be loaded: it encodes, decodes and streams without harm, and the stream
// says what decoding at once says.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace qgen::fuzz {

inline void use_tokenizer(const Tokenizer& tokenizer) {
  constexpr std::string_view kTexts[] = {
      "",
      " Hello  world, don't\n\n",
      "<s>a</s> <unk>[UNK]\xE2\x96\x81x",
      "caf\xC3\xA9 e\xCC\x81 \xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD\xE4\xBD\xA0\xE5\xA5\xBD 123",
      "\xFF\xC3(\xE2\x82",
      std::string_view("a\0b", 3)};
  for (const std::string_view text : kTexts) {
    try {
      const Encoding encoding = tokenizer.encode(text, {});
      if (encoding.ids.size() != encoding.offsets.size()) std::abort();
      const size_t size = replace_invalid_utf8(text).size();
      for (const auto& offset : encoding.offsets) {
        if (offset.begin > offset.end || offset.end > size) std::abort();
      }
      tokenizer.encode(Prompt{{std::string(text), true}, {std::string(text), false}});
      std::vector<TokenId> ids = encoding.ids;
      for (TokenId id = -1; id < 20; ++id) ids.push_back(id * 7 % 23);
      const std::string whole = tokenizer.decode(ids, false);
      StreamDecoder stream(tokenizer, false);
      std::string pieces;
      for (const TokenId id : ids) {
        const std::string piece = stream.next(id);
        if (!is_utf8(piece)) std::abort();
        pieces += piece;
      }
      if (pieces + stream.finish() != whole) std::abort();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) std::abort();
    }
  }
}

}  // namespace qgen::fuzz
