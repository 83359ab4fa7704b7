// What the tokenizer promises beyond agreeing with `tokenizers`: who may write special tokens, streams,
// errors, time.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tests/skipped.h"
#include "tokenizer/loaders.h"
#include "tokenizer/regex.h"
#include "tokenizer/text.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace qgen;
using Ids = std::vector<TokenId>;

std::string shown(const Ids& ids) { return fmt::format("{}", fmt::join(ids, " ")); }

std::optional<std::filesystem::path> shared_folder() {
  const char* folder = std::getenv("QGEN_SHARED");
  if (folder == nullptr || !std::filesystem::is_directory(folder)) return {};
  return folder;
}

// A file around a model and whatever else it needs.
std::unique_ptr<Tokenizer> parse(const std::string& model, const std::string& rest = "") {
  return tokenizer::parse_tokenizer_json("{\"version\":\"1.0\"," + rest + "\"model\":" + model + "}", "tokenizer.json");
}

// The message of the error that loading gives.
std::string error_of(const std::string& text) {
  try {
    tokenizer::parse_tokenizer_json(text, "tokenizer.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kModel);
    return error.message();
  }
  return "no error";
}

std::string added(const std::string& content, int id, bool special) {
  return fmt::format(
      R"({{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":{}}})",
      id, json_quote(content), special);
}

// Merges lead from the letters to "</s>" and to "<e>", as in vocabularies made from SentencePiece's.
const std::string kReachable =
    R"({"type":"BPE","unk_token":"?","vocab":{"?":0,"<":1,"/":2,"s":3,">":4,"</":5,"s>":6,"</s>":7,"e":8,"a":9,"<e":10,"<e>":11},)"
    R"("merges":["< /","s >","</ s>","< e","<e >"]})";
const std::string kReachableAdded = "\"added_tokens\":[" + added("</s>", 7, true) + "," + added("<e>", 11, false) +
                                    "," + added("[x]", 12, false) + "],";

TEST_CASE("only trusted text becomes special tokens") {
  const auto tokenizer = parse(kReachable, kReachableAdded);
  CHECK(shown(tokenizer->encode("a</s>a").ids) == "9 7 9");
  EncodeOptions plain;
  plain.parse_special_tokens = false;
  CHECK(shown(tokenizer->encode("a</s>a", plain).ids) == "9 5 6 9");
  CHECK(shown(tokenizer->encode(Prompt{{"</s>", true}, {"</s>", false}})) == "7 5 6");
  CHECK(shown(tokenizer->encode(Prompt{{"a", true}, {"</s>", false}, {"</s>a", true}})) == "9 5 6 7 9");
  // Neither half of a token is enough.
  CHECK(shown(tokenizer->encode(Prompt{{"</", true}, {"s>", false}})) == "5 6");
  CHECK(shown(tokenizer->encode(Prompt{{"</", false}, {"s>", true}})) == "5 6");
  // Parts that no token cuts are one text.
  CHECK(shown(tokenizer->encode(Prompt{{"<", true}, {"/", false}})) == "5");
  CHECK(tokenizer->encode(Prompt{}).empty());
}

TEST_CASE("added tokens that are not special are anyone's, but for markup and words of the chat template") {
  const auto tokenizer =
      parse(kReachable, "\"added_tokens\":[" + added("</s>", 7, true) + "," + added("<e>", 11, false) + "," +
                            added("[x]", 12, false) + "," + added("\u00f6", 13, false) + "," + added("sop", 14, false) +
                            "," + added("\n\n", 15, false) + "],");
  const Prompt prompt = {{"[x]sop", true}, {"[x]a\u00f6</s>sop\n\n<e>", false}};
  CHECK(shown(tokenizer->encode(prompt)) == "12 14 0 0 0 9 13 5 6 14 15 11");
  EncodeOptions plain;
  plain.parse_special_tokens = false;
  CHECK(shown(tokenizer->encode("a[x]\u00f6</s>sop", plain).ids) == "9 0 0 0 13 5 6 14");
  CHECK(tokenizer->guarded_in("sop</s>").empty());
  tokenizer->guard("{{ 'sop' }} \u00f6\n\n");
  CHECK(shown(tokenizer->encode(prompt)) == "12 14 0 0 0 9 13 5 6 3 0 0 15 11");
  CHECK(shown(tokenizer->encode("a[x]\u00f6</s>sop", plain).ids) == "9 0 0 0 13 5 6 3 0 0");
  const auto guarded = tokenizer->guarded_in("a[x]\u00f6</s>sop");
  REQUIRE(guarded.size() == 2);
  CHECK(guarded[0].begin == 1);
  CHECK(guarded[0].end == 4);
  CHECK(guarded[1].begin == 10);
}

TEST_CASE("user text never becomes a special token of any model") {
  const std::string unigram =
      R"({"type":"Unigram","unk_id":0,"vocab":[["?",0],["<s>",5.0],["<",-1.0],["s",-1.0],[">",-1.0]]})";
  const std::string wordpiece =
      R"({"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"","max_input_chars_per_word":100,)"
      R"("vocab":{"?":0,"<s>":1,"<":2,"s":3,">":4}})";
  for (const std::string& model : {unigram, wordpiece}) {
    const auto tokenizer = parse(model, "\"added_tokens\":[" + added("<s>", 1, true) + "],");
    CHECK(shown(tokenizer->encode("<s>").ids) == "1");
    CHECK(shown(tokenizer->encode(Prompt{{"<s>", false}})) == "2 3 4");
    CHECK(shown(tokenizer->encode(Prompt{{"<s>", false}, {"<s>", true}})) == "2 3 4 1");
  }
}

TEST_CASE("trust follows text through normalizers") {
  const auto tokenizer =
      parse(R"({"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"x":3},"merges":[]})",
            R"("normalizer":{"type":"Lowercase"},"added_tokens":[{"id":4,"content":"ab","single_word":false,)"
            R"("lstrip":false,"rstrip":false,"normalized":true,"special":true}],)");
  CHECK(shown(tokenizer->encode(Prompt{{"xAB", true}, {"AB", false}, {"abX", true}})) == "3 4 1 2 4 3");
  CHECK(shown(tokenizer->encode(Prompt{{"A", true}, {"B", false}})) == "1 2");
}

TEST_CASE("invalid bytes are read as U+FFFD") {
  const auto tokenizer = parse(R"({"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"�":2},"merges":[]})");
  const Encoding encoding = tokenizer->encode(
      "a\xFF\xE2\x82"
      "a");
  CHECK(shown(encoding.ids) == "1 2 2 1");
  CHECK(encoding.offsets[2].begin == 4);
  CHECK(encoding.offsets[3].end == 8);
}

TEST_CASE("a stream holds bytes until a character is whole") {
  const auto tokenizer = parse(R"({"type":"BPE","vocab":{"Ã":0,"©":1,"a":2,"â":3,"Ģ":4},"merges":[]})",
                               R"("decoder":{"type":"ByteLevel"},)");
  StreamDecoder stream(*tokenizer);
  CHECK(stream.next(0) == "");
  CHECK(stream.next(1) == "é");
  CHECK(stream.next(3) == "");
  CHECK(stream.next(4) == "");
  CHECK(stream.next(2) == "\uFFFDa");
  CHECK(stream.next(-1) == "");
  CHECK(stream.next(1000) == "");
  CHECK(stream.next(0) == "");
  CHECK(stream.finish() == "\uFFFD");
}

TEST_CASE("what is not supported is named") {
  const std::string model = R"("model":{"type":"BPE","vocab":{},"merges":[]})";
  CHECK(error_of(R"({"pre_tokenizer":{"type":"X"},)" + model + "}") ==
        "tokenizer.json: pre_tokenizer.type: 'X' is not supported");
  CHECK(error_of(R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Y"}]},)" + model + "}") ==
        "tokenizer.json: normalizer.normalizers[0].type: 'Y' is not supported");
  CHECK(error_of(R"({"decoder":{"type":"CTC"},)" + model + "}") ==
        "tokenizer.json: decoder.type: 'CTC' is not supported");
  CHECK(error_of(R"({"post_processor":{"type":"Z"},)" + model + "}") ==
        "tokenizer.json: post_processor.type: 'Z' is not supported");
  CHECK(error_of(R"({"model":{"type":"WordLevel","vocab":{}}})") ==
        "tokenizer.json: model.type: 'WordLevel' is not supported");
  CHECK(error_of(R"({"version":"2.0",)" + model + "}").starts_with("tokenizer.json: version: '2.0'"));
}

TEST_CASE("damaged files are errors") {
  const auto model = [](const std::string& body) { return R"({"model":{"type":"BPE",)" + body + "}}"; };
  CHECK(error_of("") != "no error");
  CHECK(error_of("[]") != "no error");
  CHECK(error_of("{}") == "tokenizer.json: model: missing");
  CHECK(error_of(model(R"("vocab":{"a":-1},"merges":[])")).find("has the id -1") != std::string::npos);
  CHECK(error_of(model(R"("vocab":{"a":99999999999},"merges":[])")).find("has the id 99999999999") !=
        std::string::npos);
  CHECK(error_of(model(R"("vocab":{"a":0.5},"merges":[])")).find("no integer") != std::string::npos);
  CHECK(error_of(model(R"("vocab":{"a":0},"merges":["a b"])")).find("\"b\" is not in the vocabulary") !=
        std::string::npos);
  CHECK(error_of(model(R"("vocab":{"a":0},"merges":["a a"])")).find("\"aa\" is not in the vocabulary") !=
        std::string::npos);
  CHECK(error_of(model(R"("vocab":{"a":0},"merges":["a a a"])")).find("two pieces") != std::string::npos);
  CHECK(error_of(model(R"("vocab":{"a":0},"merges":[["a"]])")).find("pairs of strings") != std::string::npos);
  CHECK(
      error_of(
          R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated","invert":false},"model":)"
          R"({"type":"BPE","vocab":{},"merges":[]}})")
          .find("regular expression \"(a\"") != std::string::npos);
  std::string nested = R"({"type":"Lowercase"})";
  for (int i = 0; i < 200; ++i) nested = R"({"type":"Sequence","normalizers":[)" + nested + "]}";
  CHECK(error_of("{\"normalizer\":" + nested + R"(,"model":{"type":"BPE","vocab":{},"merges":[]}})")
            .find("too many nested") != std::string::npos);
}

TEST_CASE("regular expressions are read as Oniguruma reads them") {
  const auto matches = [](const char* pattern, std::string_view text) {
    std::vector<tokenizer::Span> spans;
    tokenizer::Regex(pattern).find_all(text, spans);
    std::string out;
    for (const auto& span : spans) out += fmt::format("[{}]", text.substr(span.begin, span.end - span.begin));
    return out;
  };
  CHECK(matches("x*", "axb") == "[][x][]");
  CHECK(matches("\\p{Han}+", "a漢〇、b") == "[漢〇]");
  CHECK(matches("[a-z&&[^aeiou]]+", "hello") == "[h][ll]");
  CHECK(matches("[\\W]", "a_é-") == "[-]");
  CHECK(matches("a{2}+", "aaaaa") == "[aaaa]");
  CHECK(matches("a{,2}b", "aab") == "[aab]");
  CHECK(matches("(?m:.)", "\n") == "[\n]");
  CHECK(matches("\\h+", "0fg") == "[0f]");
  CHECK(matches("\\s", "\u180E\u00A0") == "[\u00A0]");
  // Classes as `tokenizers` 0.23 was asked for them over all code points.
  CHECK(matches("\\w", "a\u00b2\u00bc-") == "[a][\u00b2][\u00bc]");
  CHECK(matches("[\\w]", "a\u00b2\u00bc-") == "[a]");
  CHECK(matches("\\p{Word}", "\u00b2") == "[\u00b2]");
  CHECK(matches("[[:punct:]]", "a+€.") == "[+][€][.]");
  CHECK(matches("\\p{Punct}", "a+€.") == "[.]");
  CHECK(matches("[[:^punct:]]", "a+€.") == "[a]");
  CHECK(matches("[[:upper:]]", "aAⅧ") == "[A][Ⅷ]");
  CHECK(matches("[[:lower:]]", "aAª") == "[a][ª]");
  CHECK(matches("[[:alpha:]]", "a\u05b01") == "[a][\u05b0]");
  CHECK(matches("[[:space:]]", "\u180e\u0085") == "[\u0085]");
  CHECK(matches("\\p{Blank}", "\ta\u00a0") == "[\t][\u00a0]");
  CHECK(matches("[[:graph:]]", "a \ue000\u0378") == "[a][\ue000]");
  CHECK(matches("[[:print:]]", "a \n") == "[a][ ]");
  // Of Unicode 15 and 16
  CHECK(matches("\\p{Han}", "\U00031350\U0002EBF0") == "[\U00031350][\U0002EBF0]");
  CHECK(matches("\\d", "7\U00011F50") == "[7][\U00011F50]");
  CHECK(matches("\\D", "7\U00011F50a") == "[a]");
  CHECK(matches("\\P{Cn}", "\u0378\U00011F50") == "[\U00011F50]");
  CHECK(matches("[^\\p{C}]", "\u0378\n\U00011F50") == "[\U00011F50]");
  CHECK_THROWS_AS(tokenizer::Regex("(?~a)"), Error);
  CHECK_THROWS_AS(tokenizer::Regex("\\y"), Error);
  CHECK_THROWS_AS(tokenizer::Regex("["), Error);
}

TEST_CASE("a regular expression that takes too long is an error") {
  const auto tokenizer =
      parse(R"({"type":"BPE","vocab":{"a":0},"merges":[]})",
            R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a|aa|aaa)+[bc]"},"behavior":"Isolated",)"
            R"("invert":false},)");
  CHECK_THROWS_AS(tokenizer->encode(std::string(100, 'a')), Error);
}

TEST_CASE("time is linear in the text") {
  std::string vocabulary = "\"?\":0,\"a\":1", merges;
  for (int i = 0; i < 8; ++i) {
    const std::string half(size_t{1} << i, 'a');
    vocabulary += fmt::format(",\"{}\":{}", half + half, i + 2);
    merges += fmt::format("{}\"{} {}\"", i ? "," : "", half, half);
  }
  const std::string bpe =
      "{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{" + vocabulary + "},\"merges\":[" + merges + "]}";
  const auto whole = parse(bpe);
  const auto cut =
      parse(bpe, R"("normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)"
                 R"("trim_offsets":true,"use_regex":true},)");
  const auto start = std::chrono::steady_clock::now();
  for (const std::string unit : {"a", " ", "😀", "\xCC\x81", "\xCC\xA7\xCC\x81", "a\n", "漢", "\xFF"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    CHECK(whole->encode(text).ids.size() > 0);
    CHECK(cut->encode(text).ids.size() > 0);
  }
  // Quadratic work would take minutes.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("vocab.json and merges.txt") {
  const auto folder = std::filesystem::temp_directory_path() / "qgen-tokenizer-test-vocab";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "vocab.json") << R"({"h":0,"i":1,"Ġ":2,"hi":3,"Ġhi":4,"<|endoftext|>":5})";
  std::ofstream(folder / "merges.txt") << "#version: 0.2\nh i\nĠ hi\n";
  CHECK(Tokenizer::exists(folder));
  const auto tokenizer = Tokenizer::load(folder);
  CHECK(shown(tokenizer->encode("hi hi<|endoftext|>").ids) == "3 4 5");
  CHECK(shown(tokenizer->encode(Prompt{{"hi<|endoftext|>", true}})) == "3 5");
  CHECK(tokenizer->is_special(5));
  CHECK(tokenizer->decode(Ids{3, 4, 5}) == "hi hi");
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"added_tokens_decoder":{"6":{"content":"<x>","special":false}},"bos_token":"<|endoftext|>","add_bos_token":true})";
  const auto configured = Tokenizer::load(folder);
  CHECK(shown(configured->encode("hi<x>").ids) == "5 3 6");
  CHECK(configured->vocabulary_size() == 7);
  std::filesystem::remove_all(folder);
  CHECK_FALSE(Tokenizer::exists(folder));
  CHECK_THROWS_AS(Tokenizer::load(folder), Error);
}

// The expected ids and texts: transformers 5.24 and 4.57 (AutoTokenizer, PreTrainedTokenizerFast).
TEST_CASE("tokenizer.json with the files beside it") {
  const auto folder = std::filesystem::temp_directory_path() / "qgen-tokenizer-test-beside";
  const auto write = [&](const char* name, std::string_view text) { std::ofstream(folder / name) << text; };
  // What a text becomes, and what is left of it.
  const auto through = [&](const char* text) {
    const auto tokenizer = Tokenizer::load(folder);
    const Ids ids = tokenizer->encode(text).ids;
    return fmt::format("{} -> '{}'", shown(ids), tokenizer->decode(ids));
  };
  std::filesystem::create_directories(folder);
  write(
      "tokenizer.json",
      fmt::format(
          R"({{"version":"1.0","added_tokens":[{}],"pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,)"
          R"("trim_offsets":false,"use_regex":false}},"decoder":{{"type":"ByteLevel","add_prefix_space":false,)"
          R"("trim_offsets":false,"use_regex":false}},"model":{{"type":"BPE","vocab":{{"h":0,"i":1,"Ġ":2,"hi":3,"x":4}},)"
          R"("merges":["h i"]}}}})",
          added("<t>", 5, false)));
  CHECK(through("hi <t>x") == "3 2 5 4 -> 'hi <t>x'");
  const auto config = [&](const std::string& tokens, const char* more) {
    write("tokenizer_config.json", fmt::format(R"({{"added_tokens_decoder":{{{}}}{}}})", tokens, more));
  };
  const std::string plain =
      R"("5":{"content":"<t>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false})";
  config(plain, "");
  CHECK(through("hi <t>x") == "3 2 5 4 -> 'hi <t>x'");
  // A token whose flags differ takes those of tokenizer_config.json.
  config(R"("5":{"content":"<t>","lstrip":true,"normalized":false,"special":true})", "");
  CHECK(through("hi <t>x") == "3 5 4 -> 'hix'");
  // What has a name or is in a list is special, be it a piece of the vocabulary alone.
  config(plain, R"(,"eos_token":"<t>","pad_token":"x")");
  CHECK(through("hi <t>x") == "3 2 5 4 -> 'hi '");
  config(plain, R"(,"additional_special_tokens":["hi"])");
  CHECK(through("hi <t>x") == "3 2 5 4 -> ' <t>x'");
  config(plain, R"(,"extra_special_tokens":{"image_token":"hi"})");
  CHECK(through("hi <t>x") == "3 2 5 4 -> ' <t>x'");
  // New tokens get the next ids.
  config(plain + R"(,"9":{"content":"hx","special":false,"normalized":false})", "");
  CHECK(through("hihx") == "3 6 -> 'hihx'");
  // The older files count where tokenizer_config.json has no added_tokens_decoder.
  write("added_tokens.json", R"({"hx": 6, "hxx": 7})");
  write("special_tokens_map.json", R"({"eos_token": "hxx"})");
  config(plain, "");
  CHECK(through("hixhi") == "3 4 3 -> 'hixhi'");
  write("tokenizer_config.json", R"({"eos_token": "hi"})");
  CHECK(through("hihxhxx") == "3 6 7 -> 'hihx'");
  std::filesystem::remove_all(folder);
}

// A message of SentencePiece, written by hand.
std::string field(int number, const std::string& bytes) {
  return std::string{char(number << 3 | 2), char(bytes.size())} + bytes;
}
std::string piece(const std::string& text, float score, int type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(1, field(1, text) + std::string{char(2 << 3 | 5)} + bits + std::string{char(3 << 3), char(type)});
}

TEST_CASE("SentencePiece models") {
  const std::string pieces = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("\u2581", -3, 1) +
                             piece("a", -4, 1) + piece("\u2581a", -1, 1) + piece("<", -5, 1) + piece("s", -5, 1) +
                             piece(">", -5, 1) + piece("[u]", 0, 4);
  for (const int type : {1, 2}) {
    CAPTURE(type);
    const std::string trainer = std::string{char(2 << 3 | 2), 2, char(3 << 3), char(type)};
    const auto tokenizer = tokenizer::parse_sentencepiece(pieces + trainer, "tokenizer.model", {});
    CHECK(shown(tokenizer->encode("a  a").ids) == "1 5 5");
    CHECK(shown(tokenizer->encode("a<s>a", {false, true}).ids) == "5 1 5");
    CHECK(shown(tokenizer->encode(Prompt{{"a<s>", false}})) == "5 6 7 8");
    CHECK(shown(tokenizer->encode("a[u]a", {false, true}).ids) == "5 9 4");
    CHECK(shown(tokenizer->encode("axya", {false, true}).ids) == "5 0 4");
    CHECK(tokenizer->decode(Ids{1, 5, 5}) == "a a");
  }
  CHECK_THROWS_AS(tokenizer::parse_sentencepiece("\x0A\x7F", "tokenizer.model", {}), Error);
  CHECK_THROWS_AS(tokenizer::parse_sentencepiece("", "tokenizer.model", {}), Error);
}

TEST_CASE("a byte's token of SentencePiece covers one byte of the text") {
  const std::string model = piece("<unk>", 0, 2) + piece("\u2581", -3, 1) + piece("xy", -1, 1) + piece("<0xC3>", 0, 6) +
                            piece("<0xA9>", 0, 6) + field(2, std::string{char(3 << 3), 2, '\x98', 2, 1});
  const auto tokenizer = tokenizer::parse_sentencepiece(model, "tokenizer.model", {});
  const Encoding encoding = tokenizer->encode("\u00E9xy", {false, true});
  CHECK(shown(encoding.ids) == "1 3 4 2");
  REQUIRE(encoding.offsets.size() == 4);
  for (const size_t byte_token : {1, 2}) CHECK(encoding.offsets[byte_token].end == 2);  // the whole character
  CHECK(encoding.offsets[3].begin == 2);
  CHECK(encoding.offsets[3].end == 4);
}

// Texts and ids that others published for these tokenizers.
void check_vectors(const std::filesystem::path& shared, const std::string& vectors, const Tokenizer& tokenizer) {
  const auto base = shared / "data" / "tokenizer-vectors" / ("ggml-vocab-" + vectors + ".gguf");
  const std::string texts = read_file(base.string() + ".inp");
  std::ifstream ids(base.string() + ".out");
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string line;
  size_t count = 0;
  for (size_t at = 0; at <= texts.size() && std::getline(ids, line); ++count) {
    const size_t end = std::min(texts.find(separator, at), texts.size());
    const std::string text = texts.substr(at, end - at);
    CAPTURE(text);
    while (line.starts_with(' ')) line.erase(0, 1);
    CHECK(shown(tokenizer.encode(text, {false, true}).ids) == line);
    at = end + separator.size();
  }
  CHECK(count >= 46);
}

TEST_CASE("published vectors") {
  const auto shared = shared_folder();
  if (!shared || !std::filesystem::exists(*shared / "data" / "tokenizer-vectors")) {
    test::skipped_without_shared("tokenizer vectors of qwen2, gpt-2 and llama-spm");
    return;
  }
  const auto tokenizers = *shared / "data" / "tokenizers";
  check_vectors(*shared, "qwen2", *Tokenizer::load(tokenizers / "qwen3"));
  check_vectors(*shared, "gpt-2", *Tokenizer::load(tokenizers / "gpt2"));
  check_vectors(*shared, "gpt-2", *tokenizer::load_vocab_and_merges(tokenizers / "gpt2"));
  check_vectors(*shared, "llama-spm", *Tokenizer::load(tokenizers / "llama2"));
  check_vectors(*shared, "llama-spm", *tokenizer::load_sentencepiece(tokenizers / "llama2"));
}

// Ids by SentencePiece 0.2 and, for the tokens that begin a text, the program of the checkpoint.
TEST_CASE("ChatGLM2: texts begin with [gMASK] and sop, and words that begin alike stay whole") {
  const auto shared = shared_folder();
  if (!shared || !std::filesystem::exists(*shared / "data" / "tokenizers" / "chatglm2")) {
    test::skipped_without_shared("ChatGLM2's tokenizer");
    return;
  }
  const auto tokenizer = Tokenizer::load(*shared / "data" / "tokenizers" / "chatglm2");
  CHECK(tokenizer->encode("\u4f60\u597d").ids == Ids{64790, 64792, 36474, 54591});
  const Ids question = {64790, 64792, 790,  30951, 517, 30910, 30939, 30996, 13,    13,   54761,
                        31211, 30917, 2339, 2398,  519, 30987, 13,    13,    55437, 31211};
  CHECK(tokenizer->encode("[Round 1]\n\n\u95ee\uff1asophisticated?\n\n\u7b54\uff1a").ids == question);
  CHECK(tokenizer->encode("[gMASK]sop[Round 1]\n\n\u95ee\uff1asophisticated?\n\n\u7b54\uff1a", {false, true}).ids ==
        question);
  const Ids answer = {64790, 64792, 36474, 54591, 2};
  CHECK(tokenizer->decode(answer, true) == "\u4f60\u597d");
}

TEST_CASE("Qwen3's control tokens and any ids, streamed") {
  const auto shared = shared_folder();
  if (!shared || !std::filesystem::exists(*shared / "data" / "tokenizers" / "qwen3")) {
    test::skipped_without_shared("the tokenizers of Qwen3 and Llama 2");
    return;
  }
  for (const char* name : {"qwen3", "llama2"}) {
    const auto tokenizer = Tokenizer::load(*shared / "data" / "tokenizers" / name);
    uint32_t state = 1;
    for (int round = 0; round < 200; ++round) {
      Ids ids;
      for (int i = 0; i < 60; ++i) {
        state = state * 1664525 + 1013904223;
        // Low ids are single bytes in both vocabularies.
        ids.push_back(TokenId((state >> 8) % (i % 2 ? 300 : uint32_t(tokenizer->vocabulary_size()) + 10)));
      }
      for (const bool skip : {false, true}) {
        StreamDecoder stream(*tokenizer, skip);
        std::string text;
        for (const TokenId id : ids) {
          const std::string next = stream.next(id);
          CHECK(is_utf8(next));
          text += next;
        }
        CHECK(text + stream.finish() == tokenizer->decode(ids, skip));
      }
    }
  }
  const auto tokenizer = Tokenizer::load(*shared / "data" / "tokenizers" / "qwen3");
  CHECK(shown(tokenizer->encode(Prompt{{"<|im_start|><think>", true}})) == "151644 151667");
  for (const TokenId id : tokenizer->encode(Prompt{{"<|im_start|>user<think></tool_call><|im_end|>", false}})) {
    CHECK(id < 151643);
  }
}

}  // namespace
