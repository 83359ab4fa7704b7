// The safetensors container: what the reference implementation accepts is read, what it rejects is rejected
// with the file, the tensor, and what was expected and found.
#include <cstring>

#include <fmt/format.h>

#include "checkpoint/safetensors.h"
#include "tests/memory_use.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

Safetensors parse(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "m.safetensors");
}
std::string parse_error(const std::string& file) {
  ErrorKind kind = ErrorKind::kRuntime;
  const std::string message = error_of([&] { parse(file); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  CHECK(contains(message, "m.safetensors"));
  return message;
}
std::string with_length(uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), 8) + rest;
}
const std::string kTwoFloats = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST_CASE("safetensors: what the format allows is read") {
  const std::string plain_file = safetensors_file(kTwoFloats, std::string(8, '\1'));  // what the views point into
  const auto plain = parse(plain_file);
  REQUIRE(plain.tensors.size() == 1);
  CHECK(plain.tensors[0].name == "a");
  CHECK(plain.tensors[0].shape_text() == "[2]");
  CHECK(plain.tensors[0].bytes.size() == 8);

  CHECK(parse(safetensors_file("{}", "")).tensors.empty());
  CHECK(parse(safetensors_file("  " + kTwoFloats, std::string(8, 0))).tensors.size() == 1);
  CHECK(parse(safetensors_file(kTwoFloats + "   ", std::string(8, 0))).tensors.size() == 1);
  const auto scalar = parse(safetensors_file(R"({"s":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}})", "ab"));
  CHECK(scalar.tensors[0].elements() == 1);
  const auto empty = parse(safetensors_file(R"({"e":{"dtype":"I64","shape":[0,3],"data_offsets":[0,0]}})", ""));
  CHECK(empty.tensors[0].elements() == 0);
  // Any order in the header, the order of the data in the result; free text as metadata.
  const std::string two_file =
      safetensors_file(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"__metadata__":{"format":"pt"},)"
                       R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
                       "xy");
  const auto two = parse(two_file);
  REQUIRE(two.tensors.size() == 2);
  CHECK(two.tensors[0].name == "a");
  CHECK(two.tensors[1].bytes[0] == std::byte{'y'});
  CHECK(two.metadata.at("format") == "pt");
  for (const char* dtype : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) {
    CHECK(parse(safetensors_file(fmt::format(R"({{"a":{{"dtype":"{}","shape":[3],"data_offsets":[0,3]}}}})", dtype),
                                 "xyz"))
              .tensors.size() == 1);
  }
  CHECK(parse(safetensors_file(R"({"a":{"dtype":"F4","shape":[6],"data_offsets":[0,3]}})", "xyz"))
            .tensors[0]
            .elements() == 6);
}

TEST_CASE("safetensors: sizes that lie") {
  CHECK(contains(parse_error(""), "expected at least 8 bytes, found 0"));
  CHECK(contains(parse_error("1234567"), "found 7"));
  CHECK(contains(parse_error(with_length(100'000'001, "{}")), "expected at most 100000000 bytes, found 100000001"));
  CHECK(contains(parse_error(with_length(UINT64_MAX, "{}")), "header too large"));
  CHECK(contains(parse_error("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"));
  CHECK(contains(parse_error(with_length(3, "{}")), "truncated header (expected 3 bytes, found 2)"));
  CHECK(contains(parse_error(safetensors_file(kTwoFloats, "1234567")),
                 "tensor \"a\" ends beyond the file (expected 8 bytes of data, found 7)"));
  CHECK(contains(parse_error(safetensors_file(kTwoFloats, "123456789")),
                 "trailing data after the last tensor (expected 8 bytes of data, found 9)"));
  CHECK(contains(parse_error(safetensors_file("{}", "x")), "trailing data"));
}

TEST_CASE("safetensors: headers that are no header") {
  CHECK(contains(parse_error(safetensors_file("", "")), "JSON"));
  CHECK(contains(parse_error(safetensors_file("{", "")), "not valid JSON"));
  CHECK(contains(parse_error(safetensors_file("[]", "")), "not a JSON object"));
  CHECK(contains(parse_error(safetensors_file("{\"\xFF\":1}", "")), "UTF-8"));
  CHECK(contains(parse_error(safetensors_file(R"({"a":5})", "")), "not an object"));
  CHECK(contains(parse_error(safetensors_file(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "12345678")),
                 "dtype is missing"));
  CHECK(contains(parse_error(safetensors_file(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", "12345678")),
                 "shape is missing"));
  CHECK(contains(parse_error(safetensors_file(R"({"a":{"dtype":"F32","shape":[2]}})", "12345678")),
                 "data_offsets is missing"));
  CHECK(contains(parse_error(safetensors_file(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", "12345678")),
                 "unknown dtype \"F31\""));
  CHECK(contains(
      parse_error(safetensors_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", "12345678")),
      "unknown key \"x\""));
  CHECK(contains(parse_error(safetensors_file(R"({"__metadata__":{"a":1}})", "")), "expected a string"));
  // Two readers that keep different copies of a key would see different models.
  const std::string twice =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  CHECK(contains(parse_error(safetensors_file(twice, "x")), "occurs twice"));
  CHECK(contains(parse_error(safetensors_file(R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x")),
                 "NUL"));
}

TEST_CASE("safetensors: tensors that do not fit") {
  const auto two = [](const std::string& a, const std::string& b) {
    return fmt::format(
        R"({{"a":{{"dtype":"U8","shape":[2],"data_offsets":{}}},"b":{{"dtype":"U8","shape":[2],"data_offsets":{}}}}})",
        a, b);
  };
  CHECK(contains(parse_error(safetensors_file(two("[0,2]", "[3,5]"), "12345")),
                 "tensor \"b\": its data leaves a hole (expected to begin at 2, found 3)"));
  CHECK(contains(parse_error(safetensors_file(two("[1,3]", "[3,5]"), "12345")),
                 "tensor \"a\": its data leaves a hole (expected to begin at 0, found 1)"));
  CHECK(contains(parse_error(safetensors_file(two("[0,2]", "[1,3]"), "123")),
                 "tensor \"b\": its data overlaps another tensor's"));
  CHECK(contains(parse_error(safetensors_file(two("[0,2]", "[0,2]"), "12")), "overlaps"));
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return fmt::format(R"({{"a":{{"dtype":"F32","shape":{},"data_offsets":{}}}}})", shape, offsets);
  };
  CHECK(contains(parse_error(safetensors_file(one("[2]", "[8,0]"), "12345678")), "run backwards"));
  CHECK(contains(parse_error(safetensors_file(one("[3]", "[0,8]"), "12345678")),
                 "data size does not fit F32 [3] (expected 12 bytes, found 8)"));
  CHECK(contains(parse_error(safetensors_file(one("[4611686018427387904,4]", "[0,8]"), "12345678")), "overflows"));
  CHECK(contains(parse_error(safetensors_file(one("[9223372036854775807]", "[0,8]"), "12345678")), "overflows"));
  CHECK(contains(parse_error(safetensors_file(one("[-1]", "[0,8]"), "12345678")), "out of range"));
  CHECK(contains(parse_error(safetensors_file(one("[2.5]", "[0,8]"), "12345678")), "expected an integer"));
  CHECK(contains(parse_error(safetensors_file(one("[2]", "[0]"), "12345678")),
                 "data_offsets (expected 2 numbers, found 1)"));
  CHECK(contains(parse_error(safetensors_file(one("[2]", "[-8,0]"), "12345678")), "out of range"));
  CHECK(
      contains(parse_error(safetensors_file(one("[1,1,1,1,1,1,1,1,2]", "[0,8]"), "12345678")), "too many dimensions"));
  CHECK(contains(parse_error(safetensors_file(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "1")),
                 "not a whole number of bytes"));
  CHECK(contains(parse_error(safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":[]})", "1")),
                 "not an object"));
}

TEST_CASE("safetensors: memory in proportion to the header") {
  std::string dimensions, tensors;
  for (int i = 0; i < 100'000; ++i) dimensions += i == 0 ? "1" : ",1";
  for (int i = 0; i < 20'000; ++i)
    tensors += fmt::format("{}\"{}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", i == 0 ? "" : ",", i);
  const std::string name(200'000, 'n');
  const auto entry = [&](const std::string& shape, const std::string& offsets) {
    return "{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}}";
  };
  for (const auto& [header, problem] :
       {std::pair<std::string, std::string>{entry(dimensions, "0,1"), "too many dimensions"},
        {entry("1", dimensions), "data_offsets (expected 2 numbers, found 100000)"},
        {"{" + tensors + "}", ""}}) {
    CAPTURE(problem);
    const std::string file = safetensors_file(header, problem.empty() ? "" : "x");
    std::string message;
    const size_t grown = peak_growth([&] { message = error_of([&] { parse(file); }); });
    CHECK(contains(message, problem));
    CHECK(message.size() < 1000);
    CHECK(grown < 32 * file.size() + (4 << 20));
  }
}

}  // namespace
}  // namespace qgen::test
