// Methods that few files use, on small matrices, and methods that are refused by name.
#include <cmath>
#include <functional>
#include <random>

#include "base/numbers.h"
#include "tests/quant/small_checkpoint.h"

namespace qgen::test {
namespace {

TEST_CASE("Quark's groups are stored transposed, and square matrices are told by their scales") {
  for (const int64_t rows : {3, 4}) {
    std::vector<int8_t> stored;  // (4, rows)
    for (int64_t i = 0; i < 4 * rows; ++i) stored.push_back(int8_t(i - 5));
    std::vector<float> scales;  // (2, rows)
    std::vector<int8_t> zeros;
    for (int64_t i = 0; i < 2 * rows; ++i) {
      scales.push_back(float(i + 1) / 4);
      zeros.push_back(int8_t(2 - i));
    }
    SmallCheckpoint small;
    small.add("x.weight", Dtype::kI8, {4, rows}, stored);
    small.add("x.weight_scale", Dtype::kF32, {2, rows}, scales);
    small.add("x.weight_zero_point", Dtype::kI8, {2, rows}, zeros);
    const std::vector<double> w = loaded_matrix(small, "x", rows, 4);
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < 4; ++k) {
        const size_t group = size_t(k / 2 * rows + n);
        CHECK(w[size_t(n * 4 + k)] == (stored[size_t(k * rows + n)] - zeros[group]) * double(scales[group]));
      }
    }
  }
  SmallCheckpoint small;
  small.add("x.weight", Dtype::kI8, {4, 3}, std::vector<int8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  small.add("x.weight_scale", Dtype::kF32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Checkpoint checkpoint = small.make();
  Binder binder(checkpoint);
  Weight part = slice_rows(binder.matrix("x", 3, 4), 1, 2);
  Weight* const weights[] = {&part};
  repack_weights(weights);
  std::vector<double> row(4);
  dequantize_row(part, 1, row);
  CHECK(row == std::vector<double>{2 * 3, 5 * 3, 8 * 6, 11 * 6});
  SmallCheckpoint odd;
  odd.add("x.weight", Dtype::kI8, {4, 3}, std::vector<int8_t>(12));
  odd.add("x.weight_scale", Dtype::kF32, {2, 3}, std::vector<float>(6, 1));
  odd.add("x.weight_zero_point", Dtype::kI8, {3, 2}, std::vector<int8_t>(6));
  CHECK(
      contains(error_of([&] { loaded_matrix(odd, "x", 3, 4); }), "x.weight_zero_point: not the shape of weight_scale"));
}

TEST_CASE("blocks of rows that config.json declares are no groups of Quark, in square matrices either") {
  SmallCheckpoint small(
      R"({"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"a":{"weights":)"
      R"({"num_bits":8,"type":"int","strategy":"block","block_structure":[2,1]}}}}})");
  std::vector<int8_t> codes;
  for (int i = 0; i < 16; ++i) codes.push_back(int8_t(i));
  small.add("x.weight", Dtype::kI8, {4, 4}, codes);
  small.add("x.weight_scale", Dtype::kF32, {2, 4}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<double> w = loaded_matrix(small, "x", 4, 4);
  for (int n = 0; n < 4; ++n) {
    for (int k = 0; k < 4; ++k) CHECK(w[size_t(n * 4 + k)] == codes[size_t(n * 4 + k)] * double(1 + n / 2 * 4 + k));
  }
}

// Quark's 4 bits as config.json declares them, (16, 16) in groups of 8 or with a scale for each row.
struct QuarkNibbles {
  bool is_signed, interleaved, by_rows;
  std::string config() const {
    return fmt::format(R"({{"quantization_config":{{"quant_method":"quark","export":{{"pack_method":"{}"}},)"
                       R"("global_quant_config":{{"weight":{{"dtype":"{}","qscheme":"{}","group_size":8}}}}}}}})",
                       interleaved ? "reorder" : "order", is_signed ? "int4" : "uint4",
                       by_rows ? "per_channel" : "per_group");
  }
};
constexpr int64_t kNibbleSize = 16;

SmallCheckpoint quark_checkpoint(const QuarkNibbles& nibbles, const std::vector<uint32_t>& words,
                                 const std::vector<uint32_t>& zeros, const std::vector<float>& scales) {
  SmallCheckpoint small(nibbles.config());
  const int64_t groups = nibbles.by_rows ? 1 : 2, n = kNibbleSize;
  small.add("x.weight", Dtype::kI32, {n, 2}, words);
  small.add("x.weight_scale", Dtype::kF32, nibbles.by_rows ? std::vector{n} : std::vector{groups, n}, scales);
  small.add("x.weight_zero_point", Dtype::kI32,
            nibbles.by_rows ? std::vector<int64_t>{2} : std::vector<int64_t>{groups, 2}, zeros);
  return small;
}

// Weights without what config.json says they have would be other weights.
TEST_CASE("zero points and orders of columns that are declared must be there") {
  struct Case {
    std::string config, missing;
  };
  const auto groups = [](const char* first, const char* second) {
    return fmt::format(R"({{"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{{)"
                       R"("a":{{"weights":{{"num_bits":8,"type":"int"{}}}}},"b":{{"weights":{{"num_bits":8{}}}}}}}}})",
                       first, second);
  };
  const auto quark = [](const char* symmetric, const char* layers) {
    return fmt::format(R"({{"quant_method":"quark","global_quant_config":{{"weight":{{"dtype":"int8",)"
                       R"("qscheme":"per_channel","symmetric":{}}}}},"layer_quant_config":{}}})",
                       symmetric, layers);
  };
  const char *const kAsymmetric = R"(,"symmetric":false)", *const kOrdered = R"(,"actorder":"group")";
  const Case cases[] = {{groups(kAsymmetric, kAsymmetric), "weight_zero_point"},
                        {groups(kAsymmetric, ""), ""},
                        {groups(R"(,"symmetric":true)", R"(,"symmetric":true)"), ""},
                        {groups(kOrdered, kOrdered), "weight_g_idx"},
                        {R"({"quant_method":"compressed-tensors","config_groups":{"inputs":{"input_activations":{}},)"
                         R"("a":{"weights":{"num_bits":8,"symmetric":false}}}})",
                         "weight_zero_point"},
                        {groups(R"(,"actorder":"dynamic")", R"(,"actorder":true)"), "weight_g_idx"},
                        {groups(kOrdered, R"(,"actorder":"static")"), ""},
                        {quark("false", "{}"), "weight_zero_point"},
                        {quark("false", "null"), "weight_zero_point"},
                        {quark("true", "{}"), ""},
                        {quark("false", R"({"x":{}})"), ""},
                        {quark("false", R"({},"layer_type_quant_config":{"Linear":{}})"), ""}};
  for (const auto& [quantization, missing] : cases) {
    INFO(quantization);
    for (const bool packed : {false, true}) {
      if (packed && quantization.find("quark") != quantization.npos) continue;
      SmallCheckpoint small(R"({"quantization_config":)" + quantization + "}");
      if (packed) {
        small.add("x.weight_packed", Dtype::kI32, {4, 2}, std::vector<int32_t>(8));
      } else {
        small.add("x.weight", Dtype::kI8, {4, 8}, std::vector<int8_t>(32));
      }
      small.add("x.weight_scale", Dtype::kF32, {4, 2}, std::vector<float>(8, 1));
      const Checkpoint checkpoint = small.make();
      const auto bound = [&](bool trust_tensors) {
        Binder binder(checkpoint, trust_tensors);
        return error_of([&] { binder.matrix("x", 4, 8); });
      };
      const std::string said = bound(false);
      CHECK(said.empty() == missing.empty());
      CHECK((missing.empty() || contains(said, "x." + missing + " is missing")));
      CHECK(bound(true) == "");
    }
    const auto bound = [&](SmallCheckpoint small) {
      const Checkpoint checkpoint = small.make();
      Binder binder(checkpoint);
      return error_of([&] { binder.matrix("x", 4, 8); });
    };
    // Codes of FP8 have neither, in rows or in Quark's groups.
    SmallCheckpoint fp8(R"({"quantization_config":)" + quantization + "}");
    fp8.add("x.weight", Dtype::kF8E4M3, {4, 8}, std::vector<int8_t>(32));
    fp8.add("x.weight_scale", Dtype::kF32, {4, 1}, std::vector<float>(4, 1));
    CHECK(bound(fp8) == "");
    SmallCheckpoint groups_of_fp8(R"({"quantization_config":)" + quantization + "}");
    groups_of_fp8.add("x.weight", Dtype::kF8E4M3, {8, 4}, std::vector<int8_t>(32));
    groups_of_fp8.add("x.weight_scale", Dtype::kF32, {2, 4}, std::vector<float>(8, 1));
    CHECK(bound(groups_of_fp8) == "");
    SmallCheckpoint groups_of_int8(R"({"quantization_config":)" + quantization + "}");
    groups_of_int8.add("x.weight", Dtype::kI8, {8, 4}, std::vector<int8_t>(32));
    groups_of_int8.add("x.weight_scale", Dtype::kF32, {2, 4}, std::vector<float>(8, 1));
    CHECK(bound(groups_of_int8).empty() == missing.empty());
    // Where other modules of compressed-tensors have them, this one says that its own are zeros, or in their order.
    SmallCheckpoint other(R"({"quantization_config":)" + quantization + "}");
    other.add("x.weight", Dtype::kI8, {4, 8}, std::vector<int8_t>(32));
    other.add("x.weight_scale", Dtype::kF32, {4, 2}, std::vector<float>(8, 1));
    other.add("y.weight_zero_point", Dtype::kI8, {4, 2}, std::vector<int8_t>(8));
    other.add("y.weight_g_idx", Dtype::kI32, {8}, std::vector<int32_t>(8));
    CHECK(bound(other).empty() == (missing.empty() || quantization.find("quark") == quantization.npos));
  }
}

TEST_CASE("Quark's 4 bits: with and without signs, both orders, in groups and by rows, square matrices too") {
  std::mt19937 random(3);
  std::vector<uint32_t> words, zeros;
  std::vector<float> scales;
  for (int i = 0; i < 32; ++i) words.push_back(uint32_t(random()));
  for (int i = 0; i < 4; ++i) zeros.push_back(uint32_t(random()));
  for (int i = 0; i < 32; ++i) scales.push_back(float(i + 1) / 8);
  for (const bool is_signed : {false, true}) {
    for (const bool interleaved : {false, true}) {
      for (const bool by_rows : {false, true}) {
        INFO(is_signed, " ", interleaved, " ", by_rows);
        const QuarkNibbles nibbles{is_signed, interleaved, by_rows};
        const size_t groups = by_rows ? 1 : 2;
        const std::vector<uint32_t> some_zeros(zeros.begin(), zeros.begin() + std::ptrdiff_t(2 * groups));
        const std::vector<float> some_scales(scales.begin(), scales.begin() + std::ptrdiff_t(16 * groups));
        const auto at = [&](const std::vector<uint32_t>& from, int64_t row, int64_t i) {
          constexpr int kPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};
          const int place = interleaved ? kPlace[i % 8] : int(i % 8);
          const int value = int(from[size_t(row * 2 + i / 8)] >> (4 * place) & 15);
          return is_signed && value > 7 ? value - 16 : value;
        };
        const auto w = loaded_matrix(quark_checkpoint(nibbles, words, some_zeros, some_scales), "x", 16, 16);
        for (int64_t n = 0; n < 16; ++n) {
          for (int64_t k = 0; k < 16; ++k) {
            const int64_t g = by_rows ? 0 : k / 8;
            const int code = by_rows ? at(words, n, k) : at(words, k, n);
            CHECK(w[size_t(n * 16 + k)] == (code - at(zeros, g, n)) * double(scales[size_t(g * 16 + n)]));
          }
        }
      }
    }
  }
  const QuarkNibbles plain{true, true, false};
  {
    // Signed codes may lack zero points; a last word is filled up; layers that stay as they are say null.
    std::string config = QuarkNibbles{true, true, true}.config();
    config.insert(config.find("\"global_quant_config\""), R"("layer_quant_config":{"*lm_head":{"weight":null}},)");
    SmallCheckpoint small(config);
    small.add<uint32_t>("x.weight", Dtype::kI32, {3, 1}, {0xF, 0x8, 0x7})
        .add<float>("x.weight_scale", Dtype::kF32, {3}, {1, 2, 3});
    CHECK(loaded_matrix(small, "x", 3, 1) == std::vector<double>{-1, -16, 21});
    small.add<uint32_t>("x.weight_zero_point", Dtype::kI32, {1}, {0x1E});  // -2, 0, 1
    CHECK(loaded_matrix(small, "x", 3, 1) == std::vector<double>{1, -16, 18});
  }
  const auto problem = [&](const std::string& config) {
    SmallCheckpoint small(config);
    small.add("x.weight", Dtype::kI32, {16, 2}, words).add("x.weight_scale", Dtype::kF32, {2, 16}, scales);
    return error_of([&] { loaded_matrix(small, "x", 16, 16); });
  };
  CHECK(contains(problem(QuarkNibbles{false, true, false}.config()), "weight_zero_point"));
  CHECK(contains(problem("{}"), "nothing declares whether its 4 bits have signs"));
  std::string config = plain.config();
  config.replace(config.find("reorder"), 7, "shuffle");
  CHECK(contains(problem(config), "'shuffle' is not supported"));
  config = plain.config();
  config.insert(config.find("\"global_quant_config\""),
                R"("layer_quant_config":{"*.up":{"weight":{"dtype":"uint4","qscheme":"per_group","group_size":8}}},)");
  CHECK(contains(problem(config), "beside uint4"));
  config = plain.config();
  config.replace(config.find("int4"), 4, "int8");
  CHECK(contains(problem(config), "config.json declares none"));
  config = QuarkNibbles{true, true, true}.config();
  config.insert(config.find("\"dtype\""), R"("ch_axis":1,)");
  CHECK(contains(problem(config), "scales along axis 1 are not supported"));
}

TEST_CASE("ModelOpt's 4-D scales are blocks") {
  SmallCheckpoint small;
  small.add("x.weight", Dtype::kF8E4M3, {130, 3}, std::vector<uint8_t>(390, 0x38));
  small.add<float>("x.weight_scale", Dtype::kF32, {2, 1, 1, 1}, {2, 3});
  const std::vector<double> w = loaded_matrix(small, "x", 130, 3);
  CHECK(w[127 * 3 + 2] == 2);
  CHECK(w[128 * 3] == 3);
  SmallCheckpoint bad;
  bad.add("x.weight", Dtype::kF8E4M3, {130, 3}, std::vector<uint8_t>(390, 0x38));
  bad.add<float>("x.weight_scale", Dtype::kF32, {2, 2, 1, 1}, {2, 3, 4, 5});
  CHECK(contains(error_of([&] { loaded_matrix(bad, "x", 130, 3); }), "too many dimensions"));
}

TEST_CASE("stacks of experts: a scale for all, for columns, and by ModelOpt's names") {
  constexpr int64_t kCount = 2, kRows = 3, kCols = 4;
  std::vector<uint8_t> codes;  // E4M3 from 1 to 1.875 and on
  for (int i = 0; i < kCount * kRows * kCols; ++i) codes.push_back(uint8_t(0x38 + i));
  std::vector<float> columns;
  for (int i = 0; i < kCount * kCols; ++i) columns.push_back(float(i + 1));
  struct Scales {
    const char* name;
    std::vector<int64_t> shape;
    std::vector<float> values;
    std::function<float(int64_t e, int64_t k)> at;
  };
  const Scales all[] = {
      {"x_scale_inv", {}, {3}, [](int64_t, int64_t) { return 3.0f; }},
      {"x_scale", {1}, {3}, [](int64_t, int64_t) { return 3.0f; }},
      {"x_weight_scale", {2, 1, 1}, {3, 5}, [](int64_t e, int64_t) { return e == 0 ? 3.0f : 5.0f; }},
      {"x_scale", {kCount, 1, kCols}, columns, [](int64_t e, int64_t k) { return float(e * kCols + k + 1); }}};
  for (const Scales& scales : all) {
    INFO(scales.name, " of ", scales.shape.size(), " dimensions");
    SmallCheckpoint small;
    small.add("x", Dtype::kF8E4M3, {kCount, kRows, kCols}, codes);
    small.add(scales.name, Dtype::kF32, scales.shape, scales.values);
    const Checkpoint checkpoint = small.make();
    Binder binder(checkpoint);
    const std::vector<Weight> weights = binder.stack("x", kCount, kRows, kCols);
    std::vector<double> row(kCols);
    for (int64_t e = 0; e < kCount; ++e) {
      for (int64_t n = 0; n < kRows; ++n) {
        dequantize_row(weights[size_t(e)], n, row);
        for (int64_t k = 0; k < kCols; ++k) {
          const float code = e4m3_to_float(codes[size_t((e * kRows + n) * kCols + k)]);
          CHECK(row[size_t(k)] == double(code) * double(scales.at(e, k)));
        }
      }
    }
  }
}

TEST_CASE("packs of compressed-tensors with gaps between words are refused, not taken for more bits") {
  for (const int bits : {8, 7}) {
    SmallCheckpoint small(fmt::format(R"({{"quantization_config":{{"quant_method":"compressed-tensors","format":)"
                                      R"("pack-quantized","config_groups":{{"a":{{"weights":{{"num_bits":{}}}}}}}}}}})",
                                      bits));
    small.add("x.weight_packed", Dtype::kI32, {2, 8}, std::vector<int32_t>(16, 5));
    small.add<float>("x.weight_scale", Dtype::kF32, {2, 1}, {1, 1});
    const std::string error = error_of([&] { loaded_matrix(small, "x", 2, 32); });
    CHECK(contains(error, "codes of 7 bits with gaps between words") == (bits == 7));
  }
}

TEST_CASE("ModelOpt's 4 bits: two rows in a byte, two's complement") {
  constexpr int64_t kRows = 6, kCols = 8, kGroups = 2;
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < kRows / 2 * kCols; ++i) bytes.push_back(uint8_t(i * 29 + 3));
  std::vector<float> scales;
  for (int64_t i = 0; i < kRows * kGroups; ++i) scales.push_back(float(i + 1) / 8);
  SmallCheckpoint small;
  small.add("x.weight", Dtype::kU8, {kRows / 2, kCols}, bytes);
  small.add("x.weight_scale", Dtype::kF32, {kRows, kGroups}, scales);
  small.add<float>("x.weight_scale_2", Dtype::kF32, {}, {3});  // of products in FP8
  const std::vector<double> w = loaded_matrix(small, "x", kRows, kCols);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t k = 0; k < kCols; ++k) {
      const int nibble = bytes[size_t(n / 2 * kCols + k)] >> (n % 2 * 4) & 15;
      const int code = nibble < 8 ? nibble : nibble - 16;
      CHECK(w[size_t(n * kCols + k)] == code * double(scales[size_t(n * kGroups + k / 4)]));
    }
  }
  SmallCheckpoint bad;
  bad.add("x.weight", Dtype::kU8, {kRows / 2, kCols}, bytes);
  bad.add("x.weight_scale", Dtype::kF32, {kRows, 3}, std::vector<float>(18, 1));
  CHECK(contains(error_of([&] { loaded_matrix(bad, "x", kRows, kCols); }), "x.weight_scale: its shape [6, 3]"));
}

// "8-bit Numerical Formats for Deep Neural Networks" (Noune et al. 2022): exponents one less than in OCP's formats.
TEST_CASE("FNUZ codes are read exactly, the largest included") {
  for (const bool e4m3 : {true, false}) {
    const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 8 : 16;
    std::vector<uint8_t> codes;
    for (int code = 0; code < 256; ++code) codes.push_back(uint8_t(code == 0x80 ? 0 : code));
    SmallCheckpoint small;
    small.add("x.weight", e4m3 ? Dtype::kF8E4M3Fnuz : Dtype::kF8E5M2Fnuz, {4, 64}, codes);
    small.add<float>("x.weight_scale", Dtype::kF32, {4, 1}, {1, 1, 1, 1});
    const std::vector<double> w = loaded_matrix(small, "x", 4, 64);
    for (int code = 0; code < 256; ++code) {
      if (code == 0x80) continue;
      const int exponent = (code & 0x7F) >> mantissa_bits;
      const double fraction = double(code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits);
      const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
      CHECK(w[size_t(code)] == (code & 0x80 ? -size : size));
    }
    CHECK(w[0x7F] == (e4m3 ? 240 : 57344));
    codes[0] = 0x80;
    SmallCheckpoint bad;
    bad.add("x.weight", e4m3 ? Dtype::kF8E4M3Fnuz : Dtype::kF8E5M2Fnuz, {4, 64}, codes);
    bad.add<float>("x.weight_scale", Dtype::kF32, {4, 1}, {1, 1, 1, 1});
    CHECK(contains(error_of([&] { loaded_matrix(bad, "x", 4, 64); }), "holds NaN"));
  }
}

std::string refusal(const std::string& quantization, bool trust_tensors = false) {
  ErrorKind kind = ErrorKind::kModel;
  const Checkpoint checkpoint = SmallCheckpoint(R"({"quantization_config":)" + quantization + "}").make();
  const std::string message = error_of([&] { Binder(checkpoint, trust_tensors); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  return message;
}

TEST_CASE("an unknown quant_method is refused unless the tensors are trusted") {
  const std::string unknown = refusal(R"({"quant_method":"qqq9"})");
  CHECK(contains(unknown, "config.json: quantization_config.quant_method: 'qqq9' is not known"));
  CHECK(contains(unknown, "--trust-tensors"));
  CHECK(refusal(R"({"quant_method":"qqq9"})", true) == "");
  for (const char* known : {"fp8", "FP8", "compressed-tensors", "modelopt", "quark", "fbgemm_fp8", "w8a8_int8"})
    CHECK(refusal(fmt::format(R"({{"quant_method":"{}"}})", known)) == "");
}

TEST_CASE("layouts of GPTQ that are not known are refused unless the tensors are trusted") {
  const char* const unknown = R"({"quant_method":"gptq","checkpoint_format":"gptq_p"})";
  CHECK(contains(refusal(unknown), "checkpoint_format: the layout 'gptq_p' is not known (supported: gptq, gptq_v2)"));
  CHECK(refusal(unknown, true) == "");
  for (const char* known : {"gptq", "gptq_v2", "GPTQ", "GPTQ_V2"})
    CHECK(refusal(fmt::format(R"({{"quant_method":"gptq","format":"{}"}})", known)) == "");
}

TEST_CASE("scales of columns, which those of rows look like, are refused") {
  for (const char* layers :
       {R"("global_quant_config":{"weight":{"dtype":"int8","qscheme":"per_channel","ch_axis":1}})",
        R"("layer_quant_config":{"*.o_proj":{"weight":{"dtype":"fp8_e4m3","qscheme":"per_channel","ch_axis":1}}})"}) {
    CHECK(contains(refusal(fmt::format(R"({{"quant_method":"quark",{}}})", layers)), "scales along axis 1"));
  }
  CHECK(contains(refusal(R"({"quant_method":"fp8","weight_scale_semantics":"inverse"})"), "divided by their scales"));
}

TEST_CASE("rotations that may not be part of the weights are refused unless the tensors are trusted") {
  for (const char* rotated :
       {R"({"quant_method":"auto-round","rotation_config":{"algorithm":"hadamard","allow_online_rotation":true}})",
        R"({"quant_method":"gptq","rotation":"hadamard"})"}) {
    CHECK(contains(refusal(rotated), "rotations while running"));
    CHECK(refusal(rotated, true) == "");
  }
  for (const char* plain : {R"({"quant_method":"auto-round","rotation_config":{}})",
                            R"({"quant_method":"gptq","rotation":null})", R"({"quant_method":"gptq","rotation":""})"})
    CHECK(refusal(plain) == "");
  const auto transform = [](const char* location) {
    return refusal(fmt::format(R"({{"quant_method":"compressed-tensors","transform_config":{{"config_groups":{{"R1":{{)"
                               R"("type":"hadamard","apply":[{{"targets":["Linear"],"location":"weight_output"}},)"
                               R"({{"targets":["Linear"],"location":"{}"}}]}}}}}}}})",
                               location));
  };
  CHECK(transform("weight_input") == "");
  for (const char* running : {"input", "output", "q_attn", "k_cache"})
    CHECK(contains(transform(running), "rotations while running"));
}

TEST_CASE("layouts that no tensor tells are refused by name, trusted or not") {
  const std::pair<const char*, const char*> refused[] = {
      {R"({"quant_method":"eetq"})", "EETQ interleaves"},
      {R"({"quant_method":"exl3"})", "EXL3"},
      {R"({"quant_method":"aqlm"})", "AQLM"},
      {R"({"quant_method":"bitblas"})", "BitBLAS"},
      {R"({"quant_method":"gptq","checkpoint_format":"marlin"})", "'marlin' is not supported"},
      {R"({"quant_method":"gptq","checkpoint_format":"bitblas"})", "'bitblas' is not supported"},
      {R"({"quant_method":"compressed-tensors","format":"marlin-24"})", "'marlin-24' is not supported"},
      {R"({"quant_method":"compressed-tensors","format":"sparse-24-bitmask"})", "'sparse-24-bitmask' is not supported"},
      {R"({"quant_method":"gptq","is_marlin_format":true})", "Marlin"},
      {R"({"quant_method":"quark","algo_config":[{"name":"rotation","r3":true}]})", "rotations while running"},
      {R"({"quant_method":"quark","algo_config":[{"online_config":{"online_rotation_layers":["a"]}}]})",
       "rotations while running"}};
  for (const auto& [quantization, expected] : refused) {
    for (const bool trust : {false, true}) CHECK(contains(refusal(quantization, trust), expected));
  }
  CHECK(contains(refusal(R"({"quant_method":"eetq"})"), "Q8_0"));  // the hint
}

TEST_CASE("tensors of codebooks are refused by name") {
  for (const auto& [suffix, name] : {std::pair{"trellis", "EXL3"}, {"codebooks", "AQLM"}, {"Qidxs", "QuIP#"}}) {
    SmallCheckpoint small;
    small.add<uint8_t>(fmt::format("x.{}", suffix), Dtype::kU8, {1}, {0});
    CHECK(contains(error_of([&] { loaded_matrix(small, "x", 1, 1); }), name));
  }
}

}  // namespace
}  // namespace qgen::test
