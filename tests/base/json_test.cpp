// JSON documents: memory in proportion to their text, paths in errors, values as they were written, integers of any
// size.
#include <fmt/format.h>

#include "base/json.h"
#include "tests/memory_use.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

// `depth` objects in each other, each under a key of so many bytes.
std::string nested(size_t depth, size_t key_bytes, const std::string& innermost) {
  std::string out;
  for (size_t i = 0; i < depth; ++i) out += "{\"" + std::string(key_bytes, char('a' + i % 26)) + "\":";
  return out + innermost + std::string(depth, '}');
}

size_t count_values(const Json& json) {
  size_t count = 1;
  if (json.is_object()) {
    for (const auto& [key, value] : json.members()) count += count_values(value);
  } else if (json.is_array()) {
    for (const Json& element : json.elements()) count += count_values(element);
  }
  return count;
}

TEST_CASE("JSON: memory in proportion to the text, however it is nested") {
  constexpr size_t kMostGrowth = 48;  // bytes for each of the text, plus what the allocator rounds up
  constexpr size_t kSlack = 4 << 20;
  std::string members, elements = "[0";
  for (int i = 0; i < 400000; ++i) members += fmt::format("{}\"{}\":{{}}", i == 0 ? "{" : ",", i);
  for (int i = 0; i < 1000000; ++i) elements += ",0";
  const std::string name(200000, 'n');
  for (const auto& [what, text] :
       {std::pair<std::string, std::string>{"long keys in each other", nested(900, 8000, "1")},
        {"a long key over many values", "{\"" + name + "\":" + elements + "]}"},
        {"many members", members + "}"},
        {"an error at the bottom", nested(900, 8000, "{\"a\":1,\"a\":1}")}}) {
    CAPTURE(what);
    std::string message;
    const size_t grown = peak_growth([&, &source = text] {
      message = error_of([&] { count_values(JsonDocument::parse(source, "f.json")->root()); });
    });
    CHECK(grown < kMostGrowth * text.size() + kSlack);
    CHECK(contains(message, "occurs twice") == contains(what, "error"));
    CHECK(message.size() < 10000);
  }
}

TEST_CASE("JSON: paths of errors") {
  const auto document =
      JsonDocument::parse(R"({"a":{"b":[0,{"c":[[1]],"":2}]},"x\ny":{"z":"s"},"same":[{"v":1},{"v":1}]})", "f.json");
  const Json root = document->root();
  const auto path_of = [](const Json& json) { return json.path(); };
  CHECK(path_of(root) == "f.json");
  const auto inner = root.at("a").at("b").elements()[1];
  CHECK(path_of(inner.at("c").elements()[0].elements()[0]) == "f.json: a.b[1].c[0][0]");
  CHECK(path_of(inner.at("")) == "f.json: a.b[1].");
  // Equal values are told apart, and a key that is no line of text is quoted.
  CHECK(path_of(root.at("same").elements()[1].at("v")) == "f.json: same[1].v");
  CHECK(path_of(root.at("x\ny").at("z")) == "f.json: \"x\\ny\".z");
  CHECK(error_of([&] { root.at("q"); }) == "f.json: q: missing");
  CHECK(error_of([&] { inner.at("q"); }) == "f.json: a.b[1].q: missing");
  CHECK(contains(error_of([] { JsonDocument::parse(R"({"a":[1,{"b":1,"b":2}]})", "f"); }),
                 R"(f: the key "a[1].b" occurs twice)"));
  const auto deep = JsonDocument::parse(nested(900, 300, "1"), "f.json");
  Json bottom = deep->root();
  while (bottom.is_object()) bottom = bottom.members()[0].second;
  CHECK(bottom.path().size() < 2000);
  CHECK(contains(bottom.path(), "…"));
}

TEST_CASE("JSON: values as they are written") {
  const std::string text =
      "\xEF\xBB\xBF {\"a\" : [1.50, \"\\u00e9,]}\\\"\", {\"k\":1e5}] ,\"id\":123456789012345678901234567890,\n"
      "\"o\":{ \"x\" : [ ] } , \"nan\":NaN,\"t\":true}\n";
  const auto document = JsonDocument::parse(text, "f.json");
  const Json root = document->root();
  const auto a = root.at("a").elements();
  CHECK(a[0].written_in(text) == "1.50");
  CHECK(a[1].written_in(text) == "\"\\u00e9,]}\\\"\"");
  CHECK(a[2].written_in(text) == "{\"k\":1e5}");
  CHECK(a[2].at("k").written_in(text) == "1e5");
  CHECK(root.at("a").written_in(text) == "[1.50, \"\\u00e9,]}\\\"\", {\"k\":1e5}]");
  CHECK(root.at("id").written_in(text) == "123456789012345678901234567890");
  CHECK(root.at("o").written_in(text) == "{ \"x\" : [ ] }");
  CHECK(root.at("o").at("x").written_in(text) == "[ ]");
  CHECK(root.at("nan").written_in(text) == "NaN");
  CHECK(root.at("t").written_in(text) == "true");
  CHECK(root.written_in(text).ends_with("\"t\":true}"));
}

TEST_CASE("JSON: errors say where") {
  std::string nested(5000, '[');
  nested += ',';
  nested.append(5000, ']');
  const std::pair<std::string, const char*> cases[] = {
      {"{\"a\":1,}", "at line 1, byte 8 ("},
      {"{\n \"a\": 1\n \"b\": 2}", "at line 3, byte 2 ("},
      {"[1,\n,2]", "at line 2, byte 1 ("},
      {"{\"a\":tru}", "at line 1, byte 6 ("},
      {"{\"a\":1}\n}", "at line 2, byte 1 ("},
      {"[\n{\"a\":[1,2}]", "at line 2, byte 10 ("},
      {"{'a':1}", "at line 1, byte 2 ("},
      {"[NaN,\n 18446744073709551616, Infinity,\n x]", "at line 3, byte 2 ("},
      {"[NaN, x]", "at line 1 ("},
      {"[1,\n\"a\\qb\"\n,1]", "at line 2, byte 1 ("},
      {"[1,\nnul\n]", "at line 2, byte 1 ("},
      {"[1,\n01\n]", "at line 2, byte 1 ("},
      {"[\"open", "not valid JSON ("},
      {"1 2", "not valid JSON ("},
      {"hello", "not valid JSON ("},
      {"", "not valid JSON ("},
      {std::string(100000, '['), "not valid JSON"},
      {nested, "not valid JSON"}};
  for (const auto& [text, expected] : cases) {
    INFO(text.substr(0, 100));
    CHECK(contains(error_of([&] { JsonDocument::parse(text, "f"); }), expected));
  }
}

TEST_CASE("JSON: integers of any size") {
  const std::string text =
      R"([18446744073709551615, 9223372036854775808, -9223372036854775808, 18446744073709551616, -9223372036854775809,
          2.0, 2.5, -1, "1", 00, 1e19])";
  CHECK(contains(error_of([&] { JsonDocument::parse(text, "f"); }), "not valid JSON"));
  std::string valid = text;
  valid.replace(valid.find(", 00"), 4, "");
  const auto document = JsonDocument::parse(valid, "f");
  const auto numbers = document->root().elements();
  CHECK(numbers[0].as_unsigned() == UINT64_MAX);
  CHECK(numbers[1].as_unsigned() == uint64_t{1} << 63);
  CHECK(numbers[0].integer_text() == "18446744073709551615");
  CHECK(numbers[2].as_integer() == INT64_MIN);
  CHECK(numbers[3].integer_text() == "18446744073709551616");
  CHECK(numbers[3].as_number() == 0x1p64);
  CHECK(numbers[4].integer_text() == "-9223372036854775809");
  CHECK(numbers[4].is_number());
  CHECK_FALSE(numbers[4].is_string());
  CHECK_FALSE(numbers[4].is_integer());
  CHECK(numbers[5].as_unsigned() == 2);
  CHECK(numbers[5].integer_text().empty());
  CHECK(numbers[9].integer_text().empty());
  for (const size_t i : {2, 3, 4, 6, 7}) {
    CAPTURE(i);
    CHECK(contains(error_of([&] { numbers[i].as_unsigned(); }), "expected an integer from 0 to 18446744073709551615"));
  }
  CHECK(contains(error_of([&] { numbers[8].as_unsigned(); }), "expected an integer, found a string"));
  CHECK(contains(error_of([&] { numbers[3].as_integer(); }), "out of range"));
}

}  // namespace
}  // namespace qgen::test
