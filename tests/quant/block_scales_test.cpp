// Codes of E2M1 and FP8 with scales for blocks of columns (MX, NVFP4), in the layouts of several libraries; torchao's
// int4; and kinds of a method that are not known.
#include <cmath>
#include <random>

#include <fmt/format.h>

#include "base/numbers.h"
#include "tests/quant/one_module.h"
#include "tests/random_weight.h"

namespace qgen::test {
namespace {

// E2M1: the first code of two in the lower half of a byte.
double e2m1(const std::vector<uint8_t>& bytes, int64_t i) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const int code = bytes[size_t(i / 2)] >> (i % 2 * 4) & 15;
  return code & 8 ? -kValues[code & 7] : kValues[code];
}

TEST_CASE("torchao: scales in tiles of 128 x 4, codes of FP8 and E2M1") {
  constexpr int64_t kRows = 200, kCols = 32 * 6, kAcross = 2;
  std::mt19937 random(5);
  const std::vector<uint8_t> exponents = random_codes(random, kRows * 6, 7);
  std::vector<uint8_t> tiles(2 * kAcross * 512, 0xFF);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < 6; ++c)
      tiles[size_t((r / 128 * kAcross + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4)] =
          exponents[size_t(r * 6 + c)];
  }
  Tensors torchao;
  torchao["_weight_scale"] = tensor("F8_E8M0", {32 * 2, 16 * kAcross}, tiles);
  for (const std::string type : {"F8_E4M3", "F8_E5M2", "U8"}) {
    const bool fp4 = type == "U8";
    std::vector<uint8_t> codes = random_codes(random, fp4 ? kRows * kCols / 2 : kRows * kCols, 8);
    for (uint8_t& code : codes) code = !fp4 && (code & 0x7C) == 0x7C ? 0x21 : code;  // no NaN
    torchao["_weight_qdata"] = tensor(type, {kRows, fp4 ? kCols / 2 : kCols}, codes);
    const Loaded loaded = load(torchao, kRows, kCols);
    CHECK(loaded.method == (fp4                 ? "fp4, held as 8, group 32"
                            : type == "F8_E4M3" ? "fp8 group 32"
                                                : "fp8-e5m2 group 32"));
    CHECK(loaded.planned == loaded.method);
    for (int64_t n = 0; n < kRows; ++n) {
      for (int64_t k = 0; k < kCols; ++k) {
        const int64_t i = n * kCols + k;
        const double code = fp4                 ? e2m1(codes, i)
                            : type == "F8_E4M3" ? e4m3_to_float(codes[size_t(i)])
                                                : e5m2_to_float(codes[size_t(i)]);
        CHECK(loaded.w[size_t(n)][size_t(k)] == code * std::ldexp(1.0, exponents[size_t(n * 6 + k / 32)] - 127));
      }
    }
  }
  std::vector<uint8_t> fnuz = random_codes(random, kRows * kCols, 7);
  torchao["_weight_qdata"] = tensor("F8_E4M3FNUZ", {kRows, kCols}, fnuz);
  const Loaded widened = load(torchao, kRows, kCols);  // FNUZ numbers are half of the others'
  CHECK(widened.w[3][40] ==
        doctest::Approx(e4m3_to_float(fnuz[3 * kCols + 40]) * std::ldexp(0.5, exponents[3 * 6 + 1] - 127)));
  torchao["_weight_scale"].shape = {16 * kAcross, 32 * 2};
  CHECK(contains(problem(torchao, kRows, kCols), "m._weight_scale: wrong shape (expected [200, 6] or [64, 32] for"));
}

TEST_CASE("kinds of a method that are not known are refused, whatever their tensors look like") {
  Tensors plain;
  plain["weight"] = tensor("I8", {2, 2}, std::vector<int8_t>{1, 2, 3, 4});
  plain["weight_scale"] = tensor("F32", {2, 1}, std::vector<float>{1, 2});
  const auto quantization = [](std::string_view keys) { return fmt::format(R"("quantization_config":{{{}}})", keys); };
  const auto refused = [&](std::string_view keys, std::string_view why) {
    INFO(keys);
    CHECK(contains(problem(plain, 2, 2, quantization(keys)), why));
  };
  refused(R"("quant_method":"modelopt","quant_algo":"NVFP5")", "ModelOpt's 'NVFP5' is not supported");
  refused(R"("quant_algo":"MIXED_PRECISION","quantized_layers":{"m":{"quant_algo":"NVFP4_SVDQUANT"}})",
          "ModelOpt's 'NVFP4_SVDQUANT' is not supported");
  refused(R"("quant_method":"compressed-tensors","format":"rotated-quantized")",
          "the layout 'rotated-quantized' is not known");
  refused(R"("quant_method":"compressed-tensors","config_groups":{"g":{"format":"odd"}})",
          "the layout 'odd' is not known");
  for (const char* keys :
       {R"("quant_method":"modelopt","quant_algo":"w8a16")", R"("quant_method":"modelopt","quant_algo":null)",
        R"("quant_algo":"MIXED_PRECISION","quantized_layers":{"m":{"quant_algo":"W8A16"}})",
        R"("quant_algo":"mixed_precision","quantized_layers":{"mtp.0":{"quant_algo":"NVFP5"}})",
        R"("quant_method":"modelopt","quant_algo":"NO_QUANT")", R"("quant_method":"modelopt","quant_algo":"int8_wo")",
        R"("quant_method":"compressed-tensors","format":"mixed-precision")"}) {
    INFO(keys);
    CHECK(load(plain, 2, 2, quantization(keys)).method == "int8 channel");
  }
}

TEST_CASE("torchao: int4 in the plain layout, and layouts of one device") {
  constexpr int64_t kRows = 5, kCols = 24, kGroup = 8;
  std::mt19937 random(6);
  const std::vector<uint8_t> codes = random_codes(random, kRows * kCols / 2, 8);
  const std::vector<float> scales = normal(random, 3 * kRows), zeros = normal(random, 3 * kRows);
  Tensors torchao;
  torchao["_weight_qdata"] = tensor("I8", {kRows, kCols / 2}, codes);
  torchao["_weight_scale"] = tensor("F32", {3, kRows}, scales);
  torchao["_weight_zero_point"] = tensor("F32", {3, kRows}, zeros);
  const Loaded loaded = load(torchao, kRows, kCols);
  CHECK(loaded.method == "4 bits, held as 8, group 8 asymmetric");
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t k = 0; k < kCols; ++k) {
      const int nibble = codes[size_t((n * kCols + k) / 2)] >> (k % 2 * 4) & 15;
      const auto group = size_t(k / kGroup * kRows + n);
      const volatile float product = float(nibble < 8 ? nibble : nibble - 16) * scales[group];
      const volatile float expected = product + zeros[group];
      CHECK(loaded.w[size_t(n)][size_t(k)] == double(expected));
    }
  }
  torchao["_weight_zero_point"] = tensor("F32", {kRows, 3}, zeros);
  CHECK(contains(problem(torchao, kRows, kCols), "m._weight_zero_point: wrong shape (expected [3, 5], found [5, 3])"));
  torchao.erase("_weight_zero_point");
  CHECK(contains(problem(torchao, kRows, kCols), "m._weight_zero_point is missing"));
  torchao["_weight_scale"].shape = {kRows, 3};
  CHECK(contains(problem(torchao, kRows, kCols), "m._weight_scale: wrong shape (expected [groups, 5], found [5, 3])"));
  torchao["_weight_qdata"] = tensor("I32", {kRows, kCols / 8}, std::vector<int32_t>(size_t(kRows * kCols / 8)));
  CHECK(contains(problem(torchao, kRows, kCols), "torchao's int4 in the layout plain_int32"));
  Tensors tiled;
  tiled["_weight_qdata"] = torchao["_weight_qdata"];
  tiled["_weight_scale_and_zero"] = tensor("F32", {3, kRows, 2}, std::vector<float>(3 * kRows * 2));
  CHECK(contains(problem(tiled, kRows, kCols), "the tile_packed_to_4d (torchao's int4 for one kind of GPU) layout"));
  torchao["_weight_qdata"] = tensor("I8", {kRows, 10}, std::vector<uint8_t>(kRows * 10));
  torchao["_weight_scale"] = torchao["_weight_zero_point"] = tensor("F32", {1, kRows}, std::vector<float>(kRows));
  CHECK(contains(problem(torchao, kRows, 21), "m._weight_qdata: rows of 21 columns are no whole bytes"));
}

TEST_CASE("NVFP4 of ModelOpt and compressed-tensors, MXFP4 of compressed-tensors and gpt-oss") {
  constexpr int64_t kRows = 4, kCols = 64;
  std::mt19937 random(9);
  const std::vector<uint8_t> codes = random_codes(random, kRows * kCols / 2, 8);
  std::vector<uint8_t> e4m3 = random_codes(random, kRows * kCols / 16, 7);
  for (uint8_t& scale : e4m3) scale = scale == 0x7F ? 1 : scale;
  const std::vector<uint8_t> exponents = random_codes(random, kRows * kCols / 32, 7);
  const std::vector<float> global = {0.0123f};
  const auto check = [&](const Tensors& tensors, std::string_view method, auto&& scale_of) {
    const Loaded loaded = load(tensors, kRows, kCols);
    CHECK(loaded.method == method);
    CHECK(loaded.planned == method);
    for (int64_t n = 0; n < kRows; ++n) {
      for (int64_t k = 0; k < kCols; ++k) {
        const double expected = e2m1(codes, n * kCols + k) * scale_of(n, k);
        CHECK(loaded.w[size_t(n)][size_t(k)] == doctest::Approx(expected).epsilon(1e-15));
        CHECK(float(loaded.w[size_t(n)][size_t(k)]) == float(expected));
      }
    }
  };
  const auto e4m3_of = [&](int64_t n, int64_t k) { return double(e4m3_to_float(e4m3[size_t(n * 4 + k / 16)])); };
  const auto exponent_of = [&](int64_t n, int64_t k) {
    return std::ldexp(1.0, exponents[size_t(n * 2 + k / 32)] - 127);
  };
  Tensors modelopt;
  modelopt["weight"] = tensor("U8", {kRows, kCols / 2}, codes);
  modelopt["weight_scale"] = tensor("F8_E4M3", {kRows, kCols / 16}, e4m3);
  modelopt["weight_scale_2"] = tensor("F32", {}, global);
  modelopt["input_scale"] = tensor("F32", {}, global);
  check(modelopt, "fp4, held as 8, group 16", [&](int64_t n, int64_t k) { return e4m3_of(n, k) * double(global[0]); });
  std::vector<uint8_t> wide(e4m3.begin(), e4m3.begin() + kRows * kCols / 32);
  modelopt["weight_scale"] = tensor("F8_E4M3", {kRows, kCols / 32}, wide);
  check(modelopt, "fp4, held as 8, group 32",
        [&](int64_t n, int64_t k) { return double(e4m3_to_float(wide[size_t(n * 2 + k / 32)])) * double(global[0]); });
  modelopt["weight_scale"] = tensor("F8_E4M3", {kRows, kCols / 16}, e4m3);
  Tensors compressed;
  compressed["weight_packed"] = modelopt["weight"];
  compressed["weight_scale"] = modelopt["weight_scale"];
  compressed["weight_global_scale"] = tensor("F32", {1}, global);
  compressed["input_global_scale"] = tensor("F32", {1}, global);
  check(compressed, "fp4, held as 8, group 16",
        [&](int64_t n, int64_t k) { return e4m3_of(n, k) / double(global[0]); });
  Tensors mx;
  mx["weight_packed"] = modelopt["weight"];
  mx["weight_scale"] = tensor("U8", {kRows, kCols / 32}, exponents);
  check(mx, "fp4, held as 8, group 32", exponent_of);
  Tensors gpt_oss;
  gpt_oss["weight_blocks"] = tensor("U8", {kRows, kCols / 32, 16}, codes);
  gpt_oss["weight_scales"] = tensor("U8", {kRows, kCols / 32}, exponents);
  check(gpt_oss, "fp4, held as 8, group 32", exponent_of);

  Tensors torchao;  // rows of scales as they are
  torchao["_weight_qdata"] = modelopt["weight"];
  torchao["_weight_scale"] = modelopt["weight_scale"];
  check(torchao, "fp4, held as 8, group 16", e4m3_of);
  torchao["_weight_per_tensor_scale"] = tensor("F32", {}, global);
  torchao["_weight_act_per_tensor_scale"] = tensor("F32", {}, global);
  check(torchao, "fp4, held as 8, group 16", [&](int64_t n, int64_t k) { return e4m3_of(n, k) * double(global[0]); });
  torchao["_weight_scale"].shape = {kRows / 2, kCols / 8};
  CHECK(contains(problem(torchao, kRows, kCols), "m._weight_scale: wrong shape (expected [4, 4] or [32, 16]"));

  // A stack of two experts of two rows, whose halves are gate and up.
  Tensors stack;
  stack["_blocks"] = tensor("U8", {2, 2, kCols / 32, 16}, codes);
  stack["_scales"] = tensor("U8", {2, 2, kCols / 32}, exponents);
  TemporaryFolder folder;
  Tensors named;
  for (const auto& [name, one] : stack) named["m" + name] = one;
  folder.write("model.safetensors", write_tensors(named));
  folder.write("config.json", "{}");
  const Checkpoint checkpoint = open_checkpoint(locate_model(folder.path().string()));
  std::vector<Weight> parts;
  {
    Binder binder(checkpoint);
    CHECK(binder.has_stack("m"));
    for (const Weight& expert : binder.stack("m", 2, 2, kCols)) {
      parts.push_back(slice_rows(expert, 0, 1));
      parts.push_back(slice_rows(expert, 1, 1));
    }
  }
  for (int64_t n = 0; n < kRows; ++n) {
    Weight* const weights[] = {&parts[size_t(n)]};
    repack_weights(weights);
    std::vector<double> row(kCols);
    dequantize_row(parts[size_t(n)], 0, row);
    for (int64_t k = 0; k < kCols; ++k) CHECK(row[size_t(k)] == e2m1(codes, n * kCols + k) * exponent_of(n, k));
  }

  // One expert of four rows, gates and ups in turn; and a copy of such a slice.
  Tensors alternating;
  alternating["m_blocks"] = tensor("U8", {1, kRows, kCols / 32, 16}, codes);
  alternating["m_scales"] = tensor("U8", {1, kRows, kCols / 32}, exponents);
  folder.write("model.safetensors", write_tensors(alternating));
  const Checkpoint other = open_checkpoint(locate_model(folder.path().string()));
  Binder binder(other);
  for (const Weight& expert : binder.stack("m", 1, kRows, kCols)) {
    for (const int64_t first : {0, 1}) {
      const Weight half = slice_rows(expert, first, kRows / 2, 2);
      Weight copy = slice_rows(half, 0, kRows / 2), last = slice_rows(half, 1, 1);
      Weight* const weights[] = {&copy, &last};
      repack_weights(weights);
      std::vector<double> row(kCols);
      for (int64_t n = 0; n < kRows / 2; ++n) {
        const int64_t from = first + 2 * n;
        dequantize_row(copy, n, row);
        for (int64_t k = 0; k < kCols; ++k)
          CHECK(row[size_t(k)] == e2m1(codes, from * kCols + k) * exponent_of(from, k));
      }
      const std::vector<double> expected = row;
      dequantize_row(last, 0, row);
      CHECK(row == expected);
      CHECK(contains(error_of([&] { slice_rows(copy, 0, 1, 2); }), "rows that alternate are not supported"));
    }
  }

  const auto with = [&](Tensors tensors, auto&& change) {
    change(tensors);
    return problem(tensors, kRows, kCols);
  };
  CHECK(contains(with(gpt_oss, [](Tensors& t) { t["weight_scales"].dtype = "I8"; }),
                 "m.weight_scales: wrong type (expected U8 or F8_E8M0, found I8)"));
  CHECK(contains(with(gpt_oss, [](Tensors& t) { t["weight_blocks"].dtype = "I8"; }),
                 "m.weight_blocks: wrong type (expected U8, found I8)"));
  CHECK(contains(with(gpt_oss, [](Tensors& t) { t.erase("weight_scales"); }), "m.weight_scales is missing"));
  CHECK(contains(with(gpt_oss, [](Tensors& t) { t.erase("weight_blocks"); }), "m.weight_blocks is missing"));
  CHECK(contains(with(modelopt,
                      [](Tensors& t) {
                        t["weight_scale"].shape = {2, 8};
                      }),
                 "m.weight_scale: wrong shape (expected [4, 4], found [2, 8])"));
  CHECK(contains(
      with(compressed, [](Tensors& t) { t["weight_global_scale"] = tensor("F32", {1}, std::vector<float>{0}); }),
      "m.weight_global_scale: holds 0"));
  // A tensor's scale that is declared must be there.
  compressed.erase("weight_global_scale");
  const char* const declared = R"("quantization_config":{"quant_method":"compressed-tensors"})";
  CHECK(contains(problem(compressed, kRows, kCols, declared), "m.weight_global_scale is missing"));
  CHECK(contains(with(modelopt,
                      [&](Tensors& t) {
                        t["weight_scale_2"] = tensor("F32", {2}, std::vector<float>{1, 2});
                      }),
                 "expected one F32, found F32 [2]"));
  CHECK(contains(with(modelopt,
                      [&](Tensors& t) {
                        std::vector<uint8_t> bad = e4m3;
                        bad[3] = 0x7F;
                        t["weight_scale"] = tensor("F8_E4M3", {kRows, kCols / 16}, bad);
                      }),
                 "m.weight_scale: holds nan"));
}

}  // namespace
}  // namespace qgen::test
