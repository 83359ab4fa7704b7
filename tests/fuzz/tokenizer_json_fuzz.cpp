// Any bytes as tokenizer.json, and as the other files a tokenizer comes in. Whatever loads must encode, decode
// and stream without harm, and the stream must say what decoding at once says.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file_map.h"
#include "base/utf8.h"
#include "tokenizer/loaders.h"
#include "tokenizer/tokenizer.h"

namespace {

constexpr std::string_view kTexts[] = {
    "",
    " Hello  world, don't\n\n",
    "<s>a</s> <unk>[UNK]\xE2\x96\x81x",
    "caf\xC3\xA9 e\xCC\x81 \xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD\xE4\xBD\xA0\xE5\xA5\xBD 123",
    "\xFF\xC3(\xE2\x82",
    std::string_view("a\0b", 3)};

void use(const qgen::Tokenizer& tokenizer) {
  for (const std::string_view text : kTexts) {
    std::vector<qgen::TokenId> ids;
    try {
      qgen::Encoding encoding = tokenizer.encode(text, {});
      if (encoding.ids.size() != encoding.offsets.size()) std::abort();
      const size_t size = qgen::replace_invalid_utf8(text).size();
      for (const auto& offset : encoding.offsets) {
        if (offset.begin > offset.end || offset.end > size) std::abort();
      }
      tokenizer.encode(qgen::Prompt{{std::string(text), true}, {std::string(text), false}});
      ids = encoding.ids;
      for (qgen::TokenId id = -1; id < 20; ++id) ids.push_back(id * 7 % 23);
      const std::string whole = tokenizer.decode(ids, false);
      qgen::StreamDecoder stream(tokenizer, false);
      std::string pieces;
      for (const qgen::TokenId id : ids) {
        const std::string piece = stream.next(id);
        if (!qgen::is_utf8(piece)) std::abort();
        pieces += piece;
      }
      if (pieces + stream.finish() != whole) std::abort();
    } catch (const qgen::Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    if (bytes.starts_with('{') || bytes.starts_with(' ')) {
      use(*qgen::tokenizer::parse_tokenizer_json(bytes, "tokenizer.json"));
    } else {
      use(*qgen::tokenizer::parse_sentencepiece(bytes, "tokenizer.model", {}));
    }
  } catch (const qgen::Error&) {
  }
  return 0;
}
