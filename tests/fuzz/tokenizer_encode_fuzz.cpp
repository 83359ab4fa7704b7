// Any bytes through a byte-level tokenizer and back: decoding gives the text with invalid UTF-8 replaced, and
// text of a user gives no added token.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "tests/fuzz/support.h"
#include "tokenizer/loaders.h"
#include "tokenizer/text.h"
#include "tokenizer/tokenizer.h"

namespace {

// All bytes, some merges, and an added token.
std::unique_ptr<qgen::Tokenizer> make_tokenizer() {
  std::string vocabulary, merges;
  int next = 0;
  const auto add = [&](const std::string& piece) {
    vocabulary += (next ? "," : "") + qgen::json_quote(piece) + ":" + std::to_string(next);
    ++next;
  };
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    qgen::append_utf8(piece, qgen::tokenizer::char_of_byte(uint8_t(byte)));
    add(piece);
  }
  for (const auto& [left, right] : {std::pair<std::string, std::string>{"a", "a"},
                                    {"aa", "aa"},
                                    {"aa", "a"},
                                    {"a", "b"},
                                    {"t", "h"},
                                    {"th", "e"},
                                    {"\xC4\xA0", "the"},
                                    {"<", "e"},
                                    {"<e", ">"}}) {
    merges += (merges.empty() ? "" : ",") + ("[" + qgen::json_quote(left) + "," + qgen::json_quote(right) + "]");
    add(left + right);
  }
  const std::string file =
      R"({"version":"1.0","added_tokens":[{"id":265,"content":"<e>","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":false,"special":true},{"id":266,"content":"<t>","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":false,"special":false}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel",)"
      R"("add_prefix_space":false,"trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{"type":)"
      R"("ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE","vocab":{)" +
      vocabulary + "},\"merges\":[" + merges + "]}}";
  return qgen::tokenizer::parse_tokenizer_json(file, "tokenizer.json");
}

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<qgen::Tokenizer> tokenizer = make_tokenizer();
  const qgen::fuzz::MemoryLimit limit(size, 512, 8 << 20);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string valid = qgen::replace_invalid_utf8(text);
  const auto is_added = [&](qgen::TokenId id) {
    return tokenizer->piece_of(id) == "<e>" || tokenizer->piece_of(id) == "<t>";
  };

  const qgen::Encoding encoding = tokenizer->encode(text, {});
  check(tokenizer->decode(encoding.ids, false) == valid);
  size_t end = 0;
  for (const auto& offset : encoding.offsets) {
    check(offset.begin <= end && offset.end >= end);
    end = offset.end;
  }
  check(end == valid.size());

  qgen::EncodeOptions plain;
  plain.parse_special_tokens = false;
  const auto ids = tokenizer->encode(text, plain).ids;
  check(std::none_of(ids.begin(), ids.end(), is_added));
  check(tokenizer->decode(ids, true) == valid);

  if (size > 0) {
    const size_t cut = data[0] % (size + 1);
    const qgen::Prompt prompt{{text.substr(0, cut), false}, {"<e>", true}, {text.substr(cut), false}};
    const auto mixed = tokenizer->encode(prompt);
    check(std::count_if(mixed.begin(), mixed.end(), is_added) == 1);
  }

  // Any ids, streamed.
  std::vector<qgen::TokenId> any;
  for (size_t i = 0; i + 1 < size; i += 2) any.push_back((data[i] << 8 | data[i + 1]) % 300 - 5);
  qgen::StreamDecoder stream(*tokenizer, false);
  std::string pieces;
  for (const qgen::TokenId id : any) {
    const std::string piece = stream.next(id);
    check(qgen::is_utf8(piece));
    pieces += piece;
  }
  check(pieces + stream.finish() == tokenizer->decode(any, false));
  return 0;
}
