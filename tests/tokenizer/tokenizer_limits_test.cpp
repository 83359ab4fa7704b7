// Tokenizer files that ask for too much: memory stays in proportion to file and text, and time in proportion to the
// text.
#include <chrono>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tests/memory_use.h"
#include "tests/support.h"
#include "tokenizer/loaders.h"
#include "tokenizer/regex.h"
#include "tokenizer/token_finder.h"

namespace qgen::test {
namespace {

constexpr size_t kSlack = 64 << 20;  // a stage may make 1 MiB of a letter, with 8 bytes of origin for each

const std::string kLetters = R"({"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2},"merges":[]})";

std::string repeated(int times, const std::string& item) {
  std::string out;
  for (int i = 0; i < times; ++i) out += (i == 0 ? "" : ",") + item;
  return "[" + out + "]";
}

std::unique_ptr<Tokenizer> parse(const std::string& stages, const std::string& model = kLetters) {
  return tokenizer::parse_tokenizer_json("{\"version\":\"1.0\"," + stages + "\"model\":" + model + "}",
                                         "tokenizer.json");
}

double seconds_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double slowness() {
  const char* factor = std::getenv("QGEN_TIME_FACTOR");
  return factor != nullptr ? std::atof(factor) : 1;
}

TEST_CASE("stages that make much of little end with an error") {
  const std::string doubles = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  const std::string regex = R"({"type":"Replace","pattern":{"Regex":"a"},"content":"aa"})";
  const std::string empty =
      R"({"type":"Replace","pattern":{"String":""},"content":")" + std::string(100000, 'a') + "\"}";
  const std::string prepends = R"({"type":"Prepend","prepend":")" + std::string(100000, 'a') + "\"}";
  for (const std::string& normalizer : {doubles, regex, empty, prepends}) {
    CAPTURE(normalizer.substr(0, 60));
    std::string message;
    const size_t grown = peak_growth([&] {
      const auto tokenizer =
          parse("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":" + repeated(30, normalizer) + "},");
      message = error_of([&] { tokenizer->encode("a"); });
    });
    CHECK(contains(message, "tokenizer: its stages make more than"));
    CHECK(grown < kSlack);
  }
  for (const std::string& decoder : {doubles, regex, empty}) {
    CAPTURE(decoder.substr(0, 60));
    std::string message;
    const std::vector<TokenId> ids{1};
    const size_t grown = peak_growth([&] {
      const auto tokenizer = parse("\"decoder\":{\"type\":\"Sequence\",\"decoders\":" + repeated(30, decoder) + "},");
      message = error_of([&] { tokenizer->decode(ids); });
    });
    CHECK(contains(message, "tokenizer: its decoders make more than"));
    CHECK(grown < kSlack);
  }
  const std::string text = R"({"Sequence":{"id":"A","type_id":0}})";
  const std::string copies =
      R"({"type":"TemplateProcessing","single":)" + repeated(16, text) + R"(,"pair":[],"special_tokens":{}})";
  const auto tokenizer =
      parse("\"post_processor\":{\"type\":\"Sequence\",\"processors\":" + repeated(20, copies) + "},");
  CHECK(contains(error_of([&] { tokenizer->encode("a"); }), "tokenizer: its post-processors make more than"));
  // What is long without such stages is fine.
  CHECK(parse("")->encode(std::string(3 << 20, 'a')).ids.size() == 3 << 20);
}

TEST_CASE("parts between added tokens share what a text may grow to") {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "<t>a";
  const std::string added =
      R"("added_tokens":[{"id":3,"content":"<t>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)"
      R"("special":true}],)";
  std::string message;
  const size_t grown = peak_growth([&] {
    const auto tokenizer =
        parse(added + R"("normalizer":{"type":"Prepend","prepend":")" + std::string(100000, 'a') + "\"},");
    message = error_of([&] { tokenizer->encode(text); });
  });
  CHECK(contains(message, "tokenizer: its stages make more than"));
  CHECK(grown < kSlack);
}

TEST_CASE("tables and patterns of a file are limited before they are made") {
  std::string tokens, message;
  for (int i = 0; i < 2000; ++i) {
    tokens += fmt::format(R"({}{{"id":{},"content":"t{}","single_word":false,"lstrip":false,"rstrip":false,)"
                          R"("normalized":true,"special":false}})",
                          i ? "," : "", i + 3, i);
  }
  size_t grown = peak_growth([&] {
    message = error_of([&] {
      parse("\"added_tokens\":[" + tokens + R"(],"normalizer":{"type":"Prepend","prepend":")" +
            std::string(100000, 'x') + "\"},");
    });
  });
  CHECK(contains(message, "tokenizer: its stages make more than"));
  CHECK(grown < kSlack);

  const std::string special = R"({"SpecialToken":{"id":"s","type_id":0}})";
  grown = peak_growth([&] {
    message = error_of([&] {
      parse("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":" + repeated(10000, special) +
            R"(,"pair":[],"special_tokens":{"s":{"id":"s","ids":)" + repeated(10000, "1") + ",\"tokens\":[]}}},");
    });
  });
  CHECK(contains(message, "special tokens"));
  CHECK(grown < kSlack);

  CHECK(contains(error_of([] { tokenizer::pcre2_pattern(std::string(40000, 'a')); }), "too long"));
  const std::string split =
      R"({"type":"Split","pattern":{"Regex":"(?:(?:a|bc*){3,99}){30}"},"behavior":"Isolated","invert":false})";
  grown = peak_growth([&] {
    message = error_of(
        [&] { parse("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":" + repeated(5000, split) + "},"); });
  });
  CHECK(contains(message, "too many nested pre-tokenizers"));
  CHECK(grown < kSlack);
  CHECK(contains(error_of([] {
                   parse("", R"({"type":"BPE","vocab":{"a":0},"merges":[],"end_of_word_suffix":")" +
                                 std::string(1000, 'x') + "\"}");
                 }),
                 "end_of_word_suffix: longer than 256 bytes"));
}

// tekken.json with the 256 bytes as pieces, which has so many special tokens as it says.
ModelFiles tekken_with(int specials) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string vocab;
  for (size_t byte = 0; byte < 256; ++byte) {
    vocab += fmt::format(R"({}{{"rank":{},"token_bytes":"{}{}==","token_str":null}})", byte ? "," : "", byte,
                         kDigits[byte >> 2], kDigits[(byte & 3) << 4]);
  }
  const std::string text = fmt::format(
      R"({{"config":{{"pattern":".","default_vocab_size":{},"default_num_special_tokens":{}}},"vocab":[{}]}})",
      specials + 256, specials, vocab);
  return ModelFiles("model", {{"tekken.json", [text] { return text; }}});
}

TEST_CASE("special tokens of a tekken.json that only their number is known of are limited") {
  std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(tekken_with(1000));
  CHECK(tokenizer->encode("a").ids == std::vector<TokenId>{1, 1000 + 'a'});
  CHECK(tokenizer->decode(std::vector<TokenId>{999}, false) == "<SPECIAL_999>");
  std::string message;
  const size_t grown = peak_growth([&] { message = error_of([&] { Tokenizer::load(tekken_with(3'000'000)); }); });
  CHECK(contains(message, "config.default_num_special_tokens: 3000000 is out of range"));
  CHECK(grown < kSlack);
}

// One protobuf field with bytes.
std::string field(int number, const std::string& bytes) {
  std::string length;
  for (size_t left = bytes.size(); left > 0x7F || length.empty() || left > 0; left >>= 7) {
    length += char((left & 0x7F) | (left > 0x7F ? 0x80 : 0));
    if (left <= 0x7F) break;
  }
  return std::string{char(number << 3 | 2)} + length + bytes;
}
std::string piece(const std::string& text, float score, int type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(1, field(1, text) + std::string{char(2 << 3 | 5)} + bits + std::string{char(3 << 3), char(type)});
}

TEST_CASE("long tokens are found in linear time") {
  const std::string text(400'000, 'a'), token(399'999, 'a');
  const double limit = 5 * slowness();  // looking anew at every place took minutes
  const auto added = [](const std::string& content) {
    return R"("added_tokens":[{"id":3,"content":")" + content +
           R"(b","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false}],)";
  };
  CHECK(seconds_of([&] { CHECK(parse(added(token))->encode(text).ids.size() == text.size()); }) < limit);
  // White space around tokens is walked over once.
  const std::string spaces(300'000, ' ');
  for (const char* side : {"lstrip", "rstrip"}) {
    CAPTURE(side);
    std::string strip = added(" ");
    strip.replace(strip.find(" b\""), 2, " ");
    strip.replace(strip.find(side), 13, std::string(side) + "\":true");
    CHECK(seconds_of([&] { parse(strip)->encode(spaces); }) < limit);
  }
  const std::string unigram =
      R"({"type":"Unigram","unk_id":0,"vocab":[["?",0],["a",-1],["aa",-1.5],[")" + token + "b\",-1]]}";
  CHECK(seconds_of([&] { CHECK(parse("", unigram)->encode(text).ids.size() == text.size() / 2); }) < limit);
  const std::string wordpiece = R"({"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"",)"
                                R"("max_input_chars_per_word":1000000,"vocab":{"?":0,"a":1,")" +
                                token + "b\":2}}";
  CHECK(seconds_of([&] { CHECK(parse("", wordpiece)->encode(text).ids.size() == text.size()); }) < limit);
  const std::string pieces = piece("?", 0, 2) + piece("a", -1, 1) + piece(token.substr(0, 50'000) + "b", 0, 4);
  for (const int type : {1, 2}) {
    CAPTURE(type);
    const std::string trainer = field(2, std::string{char(3 << 3), char(type)});
    CHECK(seconds_of([&] { tokenizer::parse_sentencepiece(pieces + trainer, "tokenizer.model", {})->encode(text); }) <
          limit);
  }
  std::string long_pieces = piece("?", 0, 2) + field(2, std::string{char(3 << 3), 2});
  for (int i = 0; i < 10; ++i) long_pieces += piece(std::string(400'000 + i, 'a'), -1, 1);
  CHECK(contains(error_of([&] { tokenizer::parse_sentencepiece(long_pieces, "tokenizer.model", {}); }),
                 "pieces that are too long"));
}

TEST_CASE("an expression that is slow everywhere ends in time") {
  // Each word is given up after a hundred thousand ways to read it, far below what one match may take.
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::string(18, 'a') + " ";
  const tokenizer::Regex slow("(a|aa|aaa)+[bc]|.");
  std::vector<tokenizer::Span> matches;
  const tokenizer::MatchTime limited(0, 0.2);
  const double seconds = seconds_of(
      [&] { CHECK(contains(error_of([&] { slow.find_all(text, matches); }), "takes too long on this text")); });
  CHECK(seconds < 2 * slowness());
}

TEST_CASE("a finder finds what a search at every place does") {
  std::mt19937 random(1);
  const auto word = [&](size_t most) {
    std::string out;
    for (size_t length = random() % (most + 1); length > 0; --length) out += char('a' + random() % 3);
    return out;
  };
  size_t found = 0;
  for (int round = 0; round < 2000; ++round) {
    tokenizer::TokenFinder finder;
    std::map<std::string, TokenId> tokens;
    for (TokenId id = 0; id < TokenId(random() % 12); ++id) {
      const std::string token = word(6);
      finder.add(token, id);
      if (!token.empty()) tokens[token] = id;
    }
    finder.complete();
    REQUIRE(finder.empty() == tokens.empty());
    const std::string text = word(40);
    tokenizer::TokenMatches matches(finder, text);
    for (size_t at = 0; at < text.size(); ++at) {
      uint32_t match = matches.at(at);
      for (size_t length = text.size() - at; length > 0; --length) {
        const auto token = tokens.find(text.substr(at, length));
        if (token == tokens.end()) continue;
        ++found;
        REQUIRE(match != tokenizer::TokenFinder::kNone);
        REQUIRE(finder.length(match) == length);
        REQUIRE(finder.id(match) == token->second);
        match = finder.shorter(match);
      }
      REQUIRE(match == tokenizer::TokenFinder::kNone);
    }
  }
  CHECK(found > 5000);
}

}  // namespace
}  // namespace qgen::test
