// Published config.json files: each gives the family it is of, or is refused by name.
#include <map>

#include "model/families/table.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

// What becomes of files by their model_type (that of text_config where there is one): the family that describes them.
// Of every other type none does yet.
const std::map<std::string, std::string, std::less<>> kFamilyOfType = {
    {"llama", "llama"},           {"mistral", "mistral"},        {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},           {"qwen3_vl_text", "qwen3_vl"}, {"qwen3_moe", "qwen3_moe"},
    {"qwen3_next", "qwen3_next"}, {"qwen3_5_text", "qwen3_5"},   {"qwen3_5_moe_text", "qwen3_5_moe"},
    {"mixtral", "mixtral"},       {"glm4_moe", "glm4_moe"},      {"minimax_m2", "minimax_m2"}};

std::string type_of(const Json& config) {
  const auto text = config.get("text_config");
  const auto type = (text ? *text : config).get("model_type");
  return type ? std::string(type->as_string()) : "";
}

TEST_CASE("published config.json files are described, or refused by the name of their type") {
  const fs::path shared = shared_folder();
  if (shared.empty()) {
    MESSAGE("skipped: the published config.json files, which are not there (QGEN_SHARED)");
    return;
  }
  size_t described = 0, refused = 0, partial = 0;
  for (const auto& entry : fs::recursive_directory_iterator(shared / "data/configs")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path().string());
    const auto document = JsonDocument::parse(read_file(entry.path()), entry.path().filename().string());
    const std::string type = type_of(document->root());
    const auto expected = kFamilyOfType.find(type);
    Description model;
    ErrorKind kind = ErrorKind::kRuntime;
    const std::string error = error_of([&] { model = describe(document->root()); }, &kind);
    if (expected != kFamilyOfType.end()) {
      CHECK(error == "");
      CHECK(model.family == expected->second);
      CHECK(model.layers.size() > 0);
      ++described;
      continue;
    }
    CHECK(kind == ErrorKind::kModel);
    CHECK(contains(error, entry.path().filename().string()));
    if (type.empty()) {
      CHECK(contains(error, "says no model_type"));
      ++partial;
    } else {
      const auto top = document->root().get("model_type");
      CHECK((contains(error, type) || contains(error, top->as_string())));
      CHECK(contains(error, "not supported"));
      ++refused;
    }
  }
  CHECK(described + refused == 72);
  CHECK(partial == 10);
}

}  // namespace
}  // namespace qgen::test
