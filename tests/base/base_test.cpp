// Number formats against their published values, UTF-8, and JSON beyond the standard.
#include <cmath>

#include "base/checked.h"
#include "base/json.h"
#include "base/numbers.h"
#include "base/units.h"
#include "base/utf8.h"
#include "chat/reasoning.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("number formats: published values") {
  CHECK(e4m3_to_float(0x01) == 0.001953125f);
  CHECK(e4m3_to_float(0x07) == 0.013671875f);
  CHECK(e4m3_to_float(0x08) == 0.015625f);
  CHECK(e4m3_to_float(0x38) == 1);
  CHECK(e4m3_to_float(0x40) == 2);
  CHECK(e4m3_to_float(0x7E) == 448);
  CHECK(e4m3_to_float(0xB8) == -1);
  CHECK(std::isnan(e4m3_to_float(0x7F)));
  CHECK(std::isnan(e4m3_to_float(0xFF)));
  CHECK(std::signbit(e4m3_to_float(0x80)));
  CHECK(e5m2_to_float(0x01) == 0x1p-16f);
  CHECK(e5m2_to_float(0x3C) == 1);
  CHECK(e5m2_to_float(0x7B) == 57344);
  CHECK(std::isinf(e5m2_to_float(0x7C)));
  CHECK(std::isnan(e5m2_to_float(0x7D)));
  CHECK(e8m0_to_float(127) == 1);
  CHECK(e8m0_to_float(128) == 2);
  CHECK(e8m0_to_float(0) == 0x1p-127f);
  CHECK(std::isnan(e8m0_to_float(255)));
  CHECK(f16_to_float(0x0001) == 0x1p-24f);
  CHECK(f16_to_float(0x03FF) == 1023 * 0x1p-24f);
  CHECK(f16_to_float(0x0400) == 0x1p-14f);
}

TEST_CASE("number formats: rounding is to nearest, ties to even, and exact values come back") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float half = f16_to_float(uint16_t(bits)), brain = bf16_to_float(uint16_t(bits));
    if (!std::isnan(half)) CHECK(float_to_f16(half) == bits);
    if (!std::isnan(brain)) CHECK(float_to_bf16(brain) == bits);
  }
  CHECK(std::isnan(f16_to_float(float_to_f16(NAN))));
  CHECK(std::isnan(bf16_to_float(float_to_bf16(NAN))));
  CHECK(float_to_bf16(1 + 0x1p-8f) == float_to_bf16(1.0f));
  CHECK(float_to_bf16(1 + 3 * 0x1p-8f) == float_to_bf16(1 + 0x1p-6f));
  CHECK(float_to_f16(1 + 0x1p-11f) == float_to_f16(1.0f));
  CHECK(float_to_f16(1 + 3 * 0x1p-11f) == float_to_f16(1 + 0x1p-9f));
  CHECK(float_to_f16(0x1p-25f) == 0);
  CHECK(float_to_f16(0x1.8p-24f) == 2);
  CHECK(float_to_f16(65519.0f) == 0x7BFF);
  CHECK(float_to_f16(65520.0f) == 0x7C00);
}

TEST_CASE("UTF-8: maximal invalid parts become one U+FFFD each") {
  CHECK(is_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82"));
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5", "\xFF"})
    CHECK_FALSE(is_utf8(bad));
  const std::string r = "\xEF\xBF\xBD";
  CHECK(replace_invalid_utf8("a\xF0\x9F\x99z") == "a" + r + "z");
  CHECK(replace_invalid_utf8("\xE2\x82") == r);
  CHECK(replace_invalid_utf8("\xED\xA0\x80") == r + r + r);
  CHECK(replace_invalid_utf8("\xC3\xC3\xA9") == r + "\xC3\xA9");
  CHECK(json_quote("a\"\\\n\x01\xFF") == "\"a\\\"\\\\\\n\\u0001" + r + "\"");
}

TEST_CASE("sizes that overflow are errors") {
  CHECK(checked_product("x", {3, 5, 7}) == 105);
  CHECK(checked_product("x", {}) == 1);
  CHECK(checked_product("x", {SIZE_MAX, 1, 0}) == 0);
  CHECK(checked_sum("x", {SIZE_MAX - 1, 1}) == SIZE_MAX);
  CHECK(checked_aligned("x", 65, 64) == 128);
  CHECK(checked_aligned("x", 64, 64) == 64);
  ErrorKind kind = ErrorKind::kRuntime;
  CHECK(error_of(
            [] {
              checked_product("the cache", {size_t{1} << 32, size_t{1} << 32});
            },
            &kind) == "the cache: its size overflows");
  CHECK(kind == ErrorKind::kMemory);
  CHECK(error_of([] { checked_sum("x", {SIZE_MAX, 1}, ErrorKind::kModel); }, &kind) != "");
  CHECK(kind == ErrorKind::kModel);
  CHECK(error_of([] { checked_aligned("x", SIZE_MAX, 64); }) != "");
}

TEST_CASE("JSON: non-finite numbers, integers, and errors that name file and key") {
  const auto document =
      JsonDocument::parse(R"({"a":[1,2.0,Infinity,-Infinity,NaN,1e999],"b":{"c":null},"s":"Infinity"})", "f.json");
  const Json root = document->root();
  const auto a = root.at("a").elements();
  CHECK(a[0].as_integer() == 1);
  CHECK(a[1].as_integer() == 2);
  CHECK(std::isinf(a[2].as_number()));
  CHECK(a[3].as_number() < 0);
  CHECK(std::isnan(a[4].as_number()));
  CHECK(std::isinf(a[5].as_number()));
  CHECK(root.at("s").as_string() == "Infinity");
  CHECK(!root.at("b").get("c"));
  CHECK(root.at("b").find("c")->is_null());
  CHECK(contains(error_of([&] { root.at("b").at("d"); }), "f.json: b.d: missing"));
  CHECK(contains(error_of([&] { a[2].as_integer(); }), "f.json: a[2]: inf is out of range"));
  CHECK(contains(error_of([&] { root.at("s").as_number(); }), "f.json: s: expected a number, found a string"));
  CHECK(contains(error_of([] { JsonDocument::parse("{\"a\":1,\"a\":1}", "f"); }), "occurs twice"));
  CHECK(contains(error_of([] { JsonDocument::parse("{\"a\":", "f"); }), "f: not valid JSON"));
  CHECK(contains(error_of([] { JsonDocument::parse("\"\xFF\"", "f"); }), "UTF-8"));
  CHECK(contains(error_of([] { JsonDocument::parse(std::string(100000, '['), "f"); }), "not valid JSON"));
}

TEST_CASE("sizes have three digits, also where rounding makes the next one") {
  constexpr double kMi = 1024.0 * 1024;
  CHECK(format_bytes(480 * 1024) == "480 KiB");
  CHECK(format_bytes(9.994 * kMi) == "9.99 MiB");
  CHECK(format_bytes(9.996 * kMi) == "10.0 MiB");
  CHECK(format_bytes(99.96 * kMi) == "100 MiB");
  CHECK(format_bytes(999.6 * kMi) == "0.98 GiB");
  CHECK(format_bytes(999) == "999 B");
}

TEST_CASE("reasoning is split from the answer, whatever the pieces") {
  const std::string text = "<think>\nhm, a < b\n</think>\n\nYes <b>.";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    ReasoningSplitter splitter(false);
    std::string thinking, answer;
    const auto take = [&](const std::vector<ReasoningPiece>& pieces) {
      for (const auto& p : pieces) (p.thinking ? thinking : answer) += p.text;
    };
    for (size_t i = 0; i < text.size(); i += piece) take(splitter.push(text.substr(i, piece)));
    take(splitter.finish());
    CHECK(thinking == "hm, a < b\n");
    CHECK(answer == "Yes <b>.");
  }
  ReasoningSplitter open(true);
  CHECK(open.push("so")[0].thinking);
  CHECK(open.push("</think>").empty());
  CHECK_FALSE(open.push(" Yes")[0].thinking);
  CHECK(ends_in_thinking("<|assistant|><think>\n"));
  CHECK_FALSE(ends_in_thinking("<think>\n\n</think>\n\n"));
  CHECK_FALSE(ends_in_thinking("hello"));
}

}  // namespace
}  // namespace qgen::test
