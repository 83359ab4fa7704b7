// The tokenizers of GGUF files: byte-level, SentencePiece, Gemma 4's.
#include <cmath>

#include "base/config_tokens.h"
#include "chat/template.h"
#include "model/gguf_model.h"
#include "tests/model/gguf_support.h"
#include "tests/support.h"
#include "tokenizer/tokenizer.h"

namespace qgen::test {
namespace {

ModelFiles files_of(const TemporaryFolder& folder, const GgufFile& file) {
  return model_files(locate_model(folder.write("t.gguf", file.bytes()).string()));
}

GgufFile byte_level() {
  GgufFile file;
  file.text("general.architecture", "llama");
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", "llama-bpe");
  file.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                         {"h", "i", "Ġ", "hi", "Ġhi", "<s>", "<|eot_id|>", "<think>", "", "1", "11", "111"});
  file.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32, {1, 1, 1, 1, 1, 3, 3, 4, 1, 1, 1, 1});
  file.list<std::string>("tokenizer.ggml.merges", GgufFile::Type::kString, {"h i", "Ġ hi", "1 1", "11 1"});
  file.u32("tokenizer.ggml.bos_token_id", 5);
  file.u32("tokenizer.ggml.eos_token_id", 6);
  file.u32("tokenizer.ggml.padding_token_id", UINT32_MAX);
  return file;
}

TEST_CASE("gguf: byte-level tokenizers, their template and end tokens") {
  const TemporaryFolder folder;
  using Ids = std::vector<TokenId>;
  {
    GgufFile file = byte_level();
    file.text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
    file.f32("general.sampling.temp", 0.6);
    const ModelFiles files = files_of(folder, file);
    const auto tokenizer = Tokenizer::load(files);
    CHECK(tokenizer->encode("hi hi1111<think>").ids == Ids{5, 3, 4, 11, 9, 7});
    CHECK(tokenizer->encode("<s>", {false, true}).ids == Ids{5});
    CHECK(tokenizer->decode(Ids{5, 3, 4, 7}) == "hi hi<think>");
    CHECK(tokenizer->vocabulary_size() == 12);
    CHECK(read_config_tokens(files).names == SpecialTokens{{"bos_token", "<s>"}, {"eos_token", "<|eot_id|>"}});
    CHECK(ChatTemplate::load(files)->render({{"user", "hi", {}}}, {}).size() > 0);
    CHECK(files.read("generation_config.json") == R"({"do_sample":true,"temperature":0.6})");
    CHECK(contains(error_of([&] { files.read("tokenizer.model"); }), "holds no tokenizer.model"));
    file.flag("tokenizer.ggml.add_bos_token", false);
    file.flag("tokenizer.ggml.add_eos_token", true);
    CHECK(Tokenizer::load(files_of(folder, file))->encode("hi").ids == Ids{3, 6});
    const std::string bytes = file.bytes();
    CHECK(gguf_end_tokens(Gguf::parse(std::as_bytes(std::span(bytes)), "t.gguf")) == std::vector<int64_t>{6});
  }
  const auto error = [&](const std::string& key, auto&& add) {
    GgufFile file = byte_level();
    file.replace(key);
    add(file);
    return error_of([&] { Tokenizer::load(files_of(folder, file)); });
  };
  const auto nothing = [](GgufFile&) {};
  const std::string pre = "tokenizer.ggml.pre";
  CHECK(contains(error(pre, nothing), "key tokenizer.ggml.pre: missing"));
  CHECK(contains(error(pre, [&](GgufFile& f) { f.text(pre, "bloom"); }), "'bloom' is not supported"));
  CHECK(contains(error(pre, [&](GgufFile& f) { f.text(pre, "default"); }), "'default' is not supported"));
  for (const char* known : {"a.x-4.0",     "gigachat",     "mellum",         "trillion",   "granite-docling",
                            "kormo",       "megrez",       "solar-open",     "midm-2.0",   "kanana2",
                            "joyai-llm",   "minerva-7b",   "tiny_aya",       "minicpm5",   "gpt-2",
                            "mpt",         "olmo",         "smollm",         "starcoder",  "refact",
                            "llama3",      "llama-v3",     "smaug-bpe",      "qwen2",      "deepseek-r1-qwen",
                            "tekken",      "phi-2",        "command-r",      "dbrx",       "glm4",
                            "chatglm-bpe", "gpt-4o",       "stablelm2",      "seed-coder", "hunyuan-dense",
                            "pixtral",     "lfm2",         "falcon3",        "falcon-h1",  "llama4",
                            "minimax-m2",  "qwen35",       "deepseek-v3",    "exaone4",    "glm5",
                            "hunyuan",     "deepseek-llm", "deepseek-coder", "kimi-k2",    "exaone",
                            "mellum2",     "bailingmoe2",  "jais-2",         "afmoe",      "hy_v4",
                            "laguna"}) {
    INFO(known);
    CHECK(error(pre, [&](GgufFile& f) { f.text(pre, known); }) == "");
  }
  CHECK(contains(error("tokenizer.ggml.model", [](GgufFile& f) { f.text("tokenizer.ggml.model", "bert"); }),
                 "'bert' is not supported"));
  CHECK(contains(error("tokenizer.ggml.model", nothing), "no tokenizer"));
  CHECK(contains(error("tokenizer.ggml.tokens", nothing), "key tokenizer.ggml.tokens: missing"));
  CHECK(contains(error("tokenizer.ggml.merges", nothing), "key tokenizer.ggml.merges: missing"));
  CHECK(contains(error("tokenizer.ggml.bos_token_id", [](GgufFile& f) { f.u32("tokenizer.ggml.bos_token_id", 12); }),
                 "out of range (expected 0 to 11, found 12)"));
  CHECK(contains(error("tokenizer.ggml.token_type",
                       [](GgufFile& f) { f.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32, {1}); }),
                 "expected 12 types, found 1"));
  CHECK(contains(error("tokenizer.ggml.tokens",
                       [](GgufFile& f) {
                         f.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                                             std::vector<std::string>(12, "same"));
                       }),
                 "t.gguf: its keys as tokenizer.json"));
  CHECK(contains(
      error("tokenizer.ggml.tokens",
            [](GgufFile& f) { f.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString, {"\xFF"}); }),
      "element 0: not UTF-8"));
}

TEST_CASE("gguf: SentencePiece pieces") {
  const TemporaryFolder folder;
  using Ids = std::vector<TokenId>;
  GgufFile file;
  file.text("general.architecture", "llama");
  file.text("tokenizer.ggml.model", "llama");
  file.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                         {"<unk>", "<s>", "</s>", "<0x0A>", "▁", "h", "i", "hi", "▁hi", "  ", "<|im_end|>"});
  const std::vector<float> scores = {0, 0, 0, 0, -4, -5, -6, -2, -1, -1000, 0};
  file.list("tokenizer.ggml.scores", GgufFile::Type::kF32, scores);
  file.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32, {2, 3, 3, 6, 1, 1, 1, 1, 1, 4, 3});
  file.u32("tokenizer.ggml.bos_token_id", 1);
  file.u32("tokenizer.ggml.eos_token_id", 2);
  CHECK(Tokenizer::load(files_of(folder, file))->encode("hi hi\n").ids == Ids{1, 8, 8, 3});
  CHECK(Tokenizer::load(files_of(folder, file))->encode("hi  hi").ids == Ids{1, 8, 9, 8});
  CHECK(Tokenizer::load(files_of(folder, file))->decode(Ids{1, 8, 9, 8, 10}) == "hi   hi");
  file.flag("tokenizer.ggml.add_space_prefix", false);
  file.flag("tokenizer.ggml.add_bos_token", false);
  CHECK(Tokenizer::load(files_of(folder, file))->encode("hi hi<|im_end|>").ids == Ids{7, 8, 10});
  file.replace("tokenizer.ggml.scores");
  CHECK(contains(error_of([&] { Tokenizer::load(files_of(folder, file)); }), "expected 11 scores, found 0"));
  file.list<float>("tokenizer.ggml.scores", GgufFile::Type::kF32, std::vector<float>(11, NAN));
  CHECK(contains(error_of([&] { Tokenizer::load(files_of(folder, file)); }),
                 "t.gguf: its keys as tokenizer.model: piece 0"));
}

TEST_CASE("gguf: white space behind the special tokens of Phi-3 goes, and its turns end") {
  const TemporaryFolder folder;
  using Ids = std::vector<TokenId>;
  GgufFile file;
  file.text("general.architecture", "phi3");
  file.text("tokenizer.ggml.model", "llama");
  file.list<std::string>(
      "tokenizer.ggml.tokens", GgufFile::Type::kString,
      {"<unk>", "<s>", "</s>", "<0x0A>", "▁", "h", "i", "hi", "▁hi", "<|endoftext|>", "<|user|>", "<|end|>"});
  file.list<float>("tokenizer.ggml.scores", GgufFile::Type::kF32, {0, 0, 0, 0, -4, -5, -6, -2, -1, 0, 0, 0});
  file.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32, {2, 3, 3, 6, 1, 1, 1, 1, 1, 3, 3, 3});
  file.u32("tokenizer.ggml.eos_token_id", 9);
  file.flag("tokenizer.ggml.add_space_prefix", false);
  const char* const kText = "<|user|>\nhi<|end|> \n<|endoftext|>\n";
  CHECK(Tokenizer::load(files_of(folder, file))->encode(kText).ids == Ids{10, 3, 7, 11, 4, 3, 9, 3});
  file.text("general.name", "Phi3 Mini 4K");
  CHECK(Tokenizer::load(files_of(folder, file))->encode(kText).ids == Ids{10, 7, 11, 9, 3});
  const auto ends = [&] {
    const std::string bytes = file.bytes();
    return gguf_end_tokens(Gguf::parse(std::as_bytes(std::span(bytes)), "t.gguf"));
  };
  CHECK(ends() == std::vector<int64_t>{2, 9, 11});
  file.list<int32_t>("tokenizer.ggml.eos_token_ids", GgufFile::Type::kI32, {9, 10});
  CHECK(ends() == std::vector<int64_t>{2, 9, 10, 11});
  // In gpt-oss a message ends so, not a turn.
  file.replace("tokenizer.ggml.tokens");
  file.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                         {"a", "b", "c", "d", "e", "f", "g", "h", "i", "<|return|>", "<|call|>", "<|end|>"});
  CHECK(ends() == std::vector<int64_t>{9, 10});
}

TEST_CASE("gguf: Gemma 4's pieces are merged in the whole text, spaces and all") {
  const TemporaryFolder folder;
  using Ids = std::vector<TokenId>;
  GgufFile file;
  file.text("general.architecture", "gemma4");
  file.text("tokenizer.ggml.model", "gemma4");
  file.list<std::string>("tokenizer.ggml.tokens", GgufFile::Type::kString,
                         {"<pad>", "<eos>", "<bos>", "<unk>", "<0xC3>", "<0xA9>", "\n", "\n\n", "▁", "h", "i", "hi",
                          "▁hi", "i▁", "<turn|>", "<|channel>"});
  file.list<int32_t>("tokenizer.ggml.token_type", GgufFile::Type::kI32,
                     {3, 3, 3, 2, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 3, 4});
  file.list<std::string>("tokenizer.ggml.merges", GgufFile::Type::kString, {"h i", "\n \n", "▁ hi", "i ▁"});
  file.u32("tokenizer.ggml.bos_token_id", 2);
  file.u32("tokenizer.ggml.eos_token_id", 1);
  file.flag("tokenizer.ggml.add_bos_token", false);  // some files say so, and llama.cpp overrides it
  file.flag("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = Tokenizer::load(files_of(folder, file));
  CHECK(tokenizer->encode("hi hi\n\n\ni h").ids == Ids{2, 11, 12, 7, 6, 13, 9});
  CHECK(tokenizer->encode("é<|channel>").ids == Ids{2, 4, 5, 15});
  CHECK(tokenizer->decode(Ids{2, 11, 12, 4, 5, 7}) == "hi hié\n\n");
  const std::string bytes = file.bytes();
  CHECK(gguf_end_tokens(Gguf::parse(std::as_bytes(std::span(bytes)), "t.gguf")) == std::vector<int64_t>{1, 14});
}

TEST_CASE("gguf: published vocabularies and the tokenizers of the fixtures") {
  const fs::path shared = shared_folder();
  if (shared.empty()) {
    skipped_without_shared("GGUF fixtures and the tokenizer vectors of gpt-2 and llama-spm");
    return;
  }
  for (const char* name : {"gguf-q8_0-stories", "gguf-q8_0-stories-split", "gguf-q8_0-qwen3"}) {
    INFO(name);
    const fs::path folder = shared / "fixtures" / name;
    const auto tokenizer = Tokenizer::load(model_files(locate_model(folder.string())));
    const auto expected = JsonDocument::parse(read_file(folder / "expected/expected.json"), "expected.json");
    std::vector<TokenId> ids;
    for (const Json& id : expected->root().at("text_ids").elements()) ids.push_back(TokenId(id.as_integer()));
    CHECK(tokenizer->encode(expected->root().at("text").as_string()).ids == ids);
  }
  const fs::path vectors = shared / "data/tokenizer-vectors";
  for (const char* name : {"gpt-2", "llama-spm"}) {
    INFO(name);
    const std::string stem = fmt::format("ggml-vocab-{}.gguf", name);
    const auto tokenizer = Tokenizer::load(model_files(locate_model((vectors / stem).string())));
    const std::string texts = read_file(vectors / (stem + ".inp")), out = read_file(vectors / (stem + ".out"));
    constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
    size_t count = 0, line = 0;
    for (size_t at = 0; line < out.size(); ++count) {
      const size_t end = std::min(texts.find(kSeparator, at), texts.size());
      const size_t line_end = std::min(out.find('\n', line), out.size());
      const auto ids = tokenizer->encode(std::string_view(texts).substr(at, end - at), {false, true}).ids;
      std::string shown;
      for (const TokenId id : ids) shown += fmt::format(" {}", id);
      std::string expected = out.substr(line, line_end - line);
      while (!expected.empty() && expected.back() == ' ') expected.pop_back();
      CHECK(shown == (expected.empty() || expected.front() == ' ' ? expected : " " + expected));
      at = std::min(end + kSeparator.size(), texts.size());
      line = line_end + 1;
    }
    CHECK(count >= 46);
  }
}

}  // namespace
}  // namespace qgen::test
