// Every component against what `tokenizers` made of the same files: tools/tokenizer_oracle.py wrote
// tests/golden-tokenizer.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "tokenizer/loaders.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace qgen;

const std::filesystem::path kGolden = std::filesystem::path(QGEN_SOURCE_DIR) / "tests" / "golden-tokenizer";

std::unique_ptr<JsonDocument> open(const std::string& name) {
  return JsonDocument::parse(read_file(kGolden / name), name);
}

std::vector<TokenId> ids_of(const Json& json) {
  std::vector<TokenId> ids;
  for (const Json& id : json.elements()) ids.push_back(TokenId(id.as_integer()));
  return ids;
}

std::string shown(const std::vector<TokenId>& ids) { return fmt::format("{}", fmt::join(ids, " ")); }

std::string replaced(std::string text, const std::string& from, std::string_view to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST_CASE("every component agrees with tokenizers") {
  std::map<std::string, std::string> models;
  const auto models_file = open("models.json");
  for (const auto& [name, json] : models_file->root().members()) models[std::string(name)] = json.as_string();
  const auto charsmap_file = open("charsmap.json");
  const std::string_view charsmap = charsmap_file->root().as_string();
  std::vector<std::string> texts;
  const auto texts_file = open("texts.json");
  for (const Json& text : texts_file->root().elements()) texts.emplace_back(text.as_string());

  size_t cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("case-")) continue;
    CAPTURE(name);
    ++cases;
    const auto document = open(name);
    const Json root = document->root();
    std::string model = models.at(std::string(root.at("model").as_string()));
    for (const Json& flag : root.at("flags").elements()) {
      const std::string key(flag.as_string());
      model = replaced(model, "\"" + key + "\":false", "\"" + key + "\":true");
    }
    std::string file(root.at("tokenizer").as_string());
    file.back() = ',';
    file += "\"model\":" + model + "}";
    const auto tokenizer = tokenizer::parse_tokenizer_json(replaced(file, "@CHARSMAP@", charsmap), name);

    for (const char* kind : {"ids", "plain"}) {
      EncodeOptions options;
      options.add_special_tokens = std::string_view(kind) == "ids";
      const auto expected = root.at(kind).elements();
      for (size_t i = 0; i < expected.size(); ++i) {
        if (expected[i].is_null()) continue;
        CAPTURE(texts[i]);
        const Encoding encoding = tokenizer->encode(texts[i], options);
        CHECK(shown(encoding.ids) == shown(ids_of(expected[i])));
        REQUIRE(encoding.offsets.size() == encoding.ids.size());
        for (const TokenOffset& offset : encoding.offsets) {
          CHECK(offset.begin <= offset.end);
          CHECK(offset.end <= texts[i].size());
        }
      }
    }
    for (const Json& decoded : root.at("decoded").elements()) {
      const auto parts = decoded.elements();
      const auto ids = ids_of(parts[0]);
      const bool skip = parts[1].as_bool();
      CAPTURE(shown(ids));
      CHECK(tokenizer->decode(ids, skip) == parts[2].as_string());
      StreamDecoder stream(*tokenizer, skip);
      std::string text;
      for (const TokenId id : ids) text += stream.next(id);
      CHECK(text + stream.finish() == parts[2].as_string());
    }
  }
  CHECK(cases > 50);
}

}  // namespace
