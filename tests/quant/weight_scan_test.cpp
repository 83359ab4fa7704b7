// Weights where they lie: NaN and Inf codes are counted while they are loaded, and vectors that have them are refused.
#include <algorithm>
#include <cmath>

#include "base/numbers.h"
#include "quant/weight.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("NaN and Inf codes are counted wherever they stand, and no others are") {
  std::vector<std::byte> bytes(1 + 3 * 256 + 5);
  const auto count = [&](Codes codes, size_t begin) {
    Weight weight;
    weight.codes = codes;
    weight.data = std::span(bytes).subspan(begin);
    Weight* const weights[] = {&weight};
    scan_weights(weights);
    return weight.nan_codes;
  };
  const auto expected = [&](Codes codes, size_t begin) {
    return std::count_if(bytes.begin() + ptrdiff_t(begin), bytes.end(), [&](std::byte b) {
      return !std::isfinite(codes == Codes::kE4M3 ? e4m3_to_float(uint8_t(b)) : e5m2_to_float(uint8_t(b)));
    });
  };
  for (const Codes codes : {Codes::kE4M3, Codes::kE5M2}) {
    for (const size_t begin : {0, 1}) {
      // Every code as the only one of its kind, in a full block, then at the very end.
      for (int code = 0; code < 256; ++code) {
        std::fill(bytes.begin(), bytes.end(), std::byte(0x7B));
        bytes[300] = std::byte(code);
        CHECK(count(codes, begin) == expected(codes, begin));
        bytes.back() = std::byte(code);
        CHECK(count(codes, begin) == expected(codes, begin));
      }
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7);
      CHECK(count(codes, begin) == expected(codes, begin));
    }
  }
}

TEST_CASE("vectors with NaN or infinity are refused by name, but not minus infinity") {
  const auto read = [](float value) {
    const float values[] = {1, value, 2};
    Vector vector;
    vector.name = "model.norm.weight";
    vector.size = 3;
    vector.bytes = std::as_bytes(std::span(values));
    vector.add = 1;
    return vector.values();
  };
  CHECK(read(0.5F) == std::vector<float>{2, 1.5F, 3});
  CHECK(read(-INFINITY)[1] == -INFINITY);
  CHECK(contains(error_of([&] { read(NAN); }), "model.norm.weight: holds nan"));
  CHECK(contains(error_of([&] { read(INFINITY); }), "model.norm.weight: holds inf"));
}

}  // namespace
}  // namespace qgen::test
