// Methods whose codes are repacked when a model is loaded, on tensors made here: what each formula gives, and what is
// said of tensors that contradict it.
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "base/numbers.h"
#include "tests/quant/one_module.h"

namespace qgen::test {
namespace {

std::vector<uint32_t> random_words(std::mt19937& random, int64_t count) {
  std::vector<uint32_t> out(static_cast<size_t>(count));
  for (uint32_t& word : out) word = uint32_t(random());
  return out;
}

// The value number i of words that hold them densely.
uint32_t packed(const std::vector<uint32_t>& words, int64_t i, int bits) {
  const int64_t bit = i * bits;
  uint64_t two = words[size_t(bit / 32)];
  if (size_t(bit / 32 + 1) < words.size()) two |= uint64_t{words[size_t(bit / 32 + 1)]} << 32;
  return uint32_t(two >> bit % 32) & ((1u << bits) - 1);
}

TEST_CASE("values of every number of bits are unpacked, at any count") {
  std::mt19937 random(1);
  for (int bits = 1; bits <= 8; ++bits) {
    for (const size_t count : {1, 2, 7, 32, 33, 127, 128, 129, 300}) {
      const std::vector<uint8_t> codes = random_codes(random, count, bits);
      std::vector<std::byte> bytes((count * size_t(bits) + 7) / 8), out(count);
      for (size_t i = 0; i < count * size_t(bits); ++i) {
        if (codes[i / size_t(bits)] >> i % size_t(bits) & 1) bytes[i / 8] |= std::byte(1 << i % 8);
      }
      const int middle = 1 << (bits - 1);
      unpack_bits(bytes, bits, middle, out);
      for (size_t i = 0; i < count; ++i) CHECK(int(int8_t(out[i])) == int(codes[i]) - middle);
    }
  }
}

TEST_CASE("E2M1 is doubled, each code in each place, at any count") {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (const size_t count : {1, 2, 31, 32, 33, 64, 530}) {
    std::vector<std::byte> bytes((count + 1) / 2), out(count);
    const auto code_of = [](size_t i) { return (i + i / 16) % 16; };
    for (size_t i = 0; i < count; ++i) bytes[i / 2] |= std::byte(code_of(i) << 4 * (i % 2));
    unpack_doubled_e2m1(bytes, out);
    for (size_t i = 0; i < count; ++i) {
      const double sign = code_of(i) < 8 ? 1 : -1;
      CHECK(double(int8_t(out[i])) == sign * 2 * kMagnitudes[code_of(i) % 8]);
    }
  }
}

// GPTQ: W[n, k] = (code - zero) * scale, the zero stored less one in version 1.
struct Gptq {
  int64_t rows = 64, cols = 48, group = 16;
  int bits = 8;
  bool version_2 = false;
  std::vector<int32_t> index;
  std::vector<uint32_t> words, zeros;
  std::vector<uint16_t> scales;

  explicit Gptq(uint32_t seed, int bits_ = 8, int64_t cols_ = 48) : cols(cols_), bits(bits_) {
    std::mt19937 random(seed);
    words = random_words(random, cols * bits / 32 * rows);
    zeros = random_words(random, groups() * rows * bits / 32);
    for (int64_t i = 0; i < groups() * rows; ++i)
      scales.push_back(float_to_f16(std::uniform_real_distribution<float>(-0.1f, 0.1f)(random)));
  }
  int64_t groups() const { return (cols + group - 1) / group; }
  Tensors tensors() const {
    Tensors out;
    out["qweight"] = tensor("I32", {cols * bits / 32, rows}, words);
    out["qzeros"] = tensor("I32", {groups(), rows * bits / 32}, zeros);
    out["scales"] = tensor("F16", {groups(), rows}, scales);
    if (!index.empty()) out["g_idx"] = tensor("I32", {cols}, index);
    return out;
  }
  std::string config() const {
    return fmt::format(
        R"("quantization_config":{{"quant_method":"gptq","bits":{},"group_size":{},"checkpoint_format":"{}"}})", bits,
        group, version_2 ? "gptq_v2" : "gptq");
  }
  double expected(int64_t n, int64_t k) const {
    const int64_t in_word = 32 / bits, g = index.empty() ? k / group : index[size_t(k)];
    const uint32_t mask = (1u << bits) - 1;
    if (bits == 3) {  // dense, along K and along N
      std::vector<uint32_t> column, row;
      for (int64_t i = 0; i < cols * 3 / 32; ++i) column.push_back(words[size_t(i * rows + n)]);
      row.assign(zeros.begin() + g * rows * 3 / 32, zeros.begin() + (g + 1) * rows * 3 / 32);
      const uint32_t zero = (packed(row, n, 3) + (version_2 ? 0 : 1)) & 7;
      return (double(packed(column, k, 3)) - double(zero)) * f16_to_float(scales[size_t(g * rows + n)]);
    }
    const uint32_t code = words[size_t(k / in_word * rows + n)] >> k % in_word * bits & mask;
    uint32_t ones = 0;
    for (int i = 0; i < 32; i += bits) ones |= 1u << i;
    const uint32_t word = zeros[size_t(g * rows * bits / 32 + n / in_word)] + (version_2 ? 0 : ones);
    return (double(code) - double(word >> n % in_word * bits & mask)) * f16_to_float(scales[size_t(g * rows + n)]);
  }
  void check() const {
    const Loaded loaded = load(tensors(), rows, cols, config());
    int64_t different = 0;
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t k = 0; k < cols; ++k) different += loaded.w[size_t(n)][size_t(k)] != expected(n, k);
    }
    CHECK(different == 0);
  }
};

TEST_CASE("GPTQ: both versions, all bits, partial groups and activation order") {
  for (const int bits : {8, 4, 2}) {
    for (const bool version_2 : {false, true}) {
      INFO(bits, " bits, version ", version_2 ? 2 : 1);
      Gptq gptq(uint32_t(bits), bits);
      gptq.version_2 = version_2;
      gptq.check();
      gptq.index.resize(size_t(gptq.cols));
      for (int64_t k = 0; k < gptq.cols; ++k) gptq.index[size_t(k)] = int32_t(k * 7 % 48 / 16);
      gptq.check();
    }
  }
  for (const bool version_2 : {false, true}) {
    Gptq three(3, 3, 64);  // whole words along K
    three.version_2 = version_2;
    three.check();
    CHECK(load(three.tensors(), 64, 64, three.config()).method == "3 bits, held as 8, group 16 asymmetric");
    for (int64_t k = 0; k < three.cols; ++k) three.index.push_back(int32_t(k * 7 % 64 / 16));
    three.check();
  }
  Gptq gptq(3);
  CHECK(load(gptq.tensors(), 64, 48, gptq.config()).method == "int8 group 16 asymmetric");
  gptq.zeros[1] = 0xFFFFFFFF;  // zero points of 0, which were borrowed from a neighbour
  gptq.check();
  // Middle values are no zero points.
  std::fill(gptq.zeros.begin(), gptq.zeros.end(), 0x7F7F7F7F);
  gptq.check();
  CHECK(load(gptq.tensors(), 64, 48, gptq.config()).method == "int8 group 16");
  Gptq four(4, 4);
  std::fill(four.zeros.begin(), four.zeros.end(), 0x77777777);
  four.check();
  CHECK(load(four.tensors(), 64, 48, four.config()).method == "4 bits, held as 8, group 16");
}

TEST_CASE("GPTQ: AutoRound's own layouts are of the second version, whatever kernel their name has") {
  for (const auto& [backend, version_2] : {std::pair("auto_round:exllamav2", true),
                                           {"autoround:exllamav2", true},
                                           {"auto_round:triton", true},
                                           {"auto_round", true},
                                           {"auto_round:gptqmodel", true},
                                           {"auto_round:gptq:exllamav2", false},
                                           {"auto_round:auto_gptq", false}}) {
    INFO(backend);
    Gptq gptq(5, 4);
    gptq.version_2 = version_2;
    const Loaded loaded =
        load(gptq.tensors(), 64, 48,
             fmt::format(R"("quantization_config":{{"quant_method":"intel/auto-round","bits":4,"group_size":16,)"
                         R"("backend":"{}"}})",
                         backend));
    CHECK(loaded.w[5][7] == gptq.expected(5, 7));
    CHECK(loaded.w[63][40] == gptq.expected(63, 40));
  }
}

TEST_CASE("GPTQ: rows in squares and rows that are left over") {
  for (const int bits : {8, 4}) {
    for (const bool ordered : {false, true}) {
      INFO(bits, " bits, ordered ", ordered);
      Gptq gptq(uint32_t(bits), bits, 320);
      if (ordered) {
        for (int64_t k = 0; k < gptq.cols; ++k) gptq.index.push_back(int32_t(k * 7 % 320 / 16));
      }
      gptq.check();
      const Files files(gptq.tensors(), gptq.config());
      Binder binder(*files.checkpoint);
      const Weight whole = binder.matrix("m", 64, 320);
      Weight part = slice_rows(whole, 3, 58);
      Weight* const weights[] = {&part};
      repack_weights(weights);
      std::vector<double> row(320);
      int64_t different = 0;
      for (int64_t n = 0; n < part.rows; ++n) {
        dequantize_row(part, n, row);
        for (int64_t k = 0; k < 320; ++k) different += row[size_t(k)] != gptq.expected(3 + n, k);
      }
      CHECK(different == 0);
    }
  }
}

TEST_CASE("GPTQ: what quantize_config.json says counts where config.json says nothing") {
  Gptq gptq(7);
  gptq.group = 10;  // whose last group is short: the shapes alone do not tell it
  gptq.scales.resize(size_t(gptq.groups() * gptq.rows), float_to_f16(0.5f));
  gptq.zeros.resize(size_t(gptq.groups() * gptq.rows / 4), 0x01020304);
  for (const bool version_2 : {false, true}) {
    gptq.version_2 = version_2;
    for (const char* config : {"", R"("quantization_config":{"quant_method":"gptq","bits":8,"group_size":10})"}) {
      Files files(gptq.tensors(), config);
      // ModelOpt's file that says nothing of weights hides nothing.
      files.folder.write("hf_quant_config.json", R"({"producer":{}})");
      files.folder.write("quantize_config.json",
                         fmt::format(R"({{"bits":8,"group_size":10,"desc_act":false,"checkpoint_format":"{}"}})",
                                     version_2 ? "gptq_v2" : "gptq"));
      Binder binder(*files.checkpoint);
      Weight weight = binder.matrix("m", 64, 48);
      Weight* const weights[] = {&weight};
      repack_weights(weights);
      std::vector<double> row(48);
      dequantize_row(weight, 3, row);
      for (int64_t k = 0; k < 48; ++k) CHECK(row[size_t(k)] == gptq.expected(3, k));
    }
  }
}

TEST_CASE("quantize_config.json of other methods declares nothing") {
  for (const char* other : {R"({"format":"onnx"})", R"({"bits":16})", R"({"bits":8,"quant_method":"awq"})", "{}"}) {
    Files files({}, "");
    files.folder.write("quantize_config.json", other);
    CHECK(read_side_file(ModelFiles(files.folder.path())) == nullptr);
  }
}

// Fused matrices are cut before they are repacked.
TEST_CASE("parts of matrices that are repacked are repacked as parts of the whole") {
  for (const int bits : {8, 4, 2}) {
    for (const bool symmetric : {false, true}) {
      for (const bool ordered : {false, true}) {
        INFO(bits, " bits, symmetric ", symmetric, " ordered ", ordered);
        Gptq gptq(uint32_t(bits), bits);
        gptq.version_2 = true;
        uint32_t middles = 0;
        for (int bit = bits - 1; bit < 32; bit += bits) middles |= 1u << bit;
        if (symmetric) std::fill(gptq.zeros.begin(), gptq.zeros.end(), middles);
        if (ordered) {
          gptq.index.resize(size_t(gptq.cols));
          for (int64_t k = 0; k < gptq.cols; ++k) gptq.index[size_t(k)] = int32_t(k * 7 % 48 / 16);
        }
        const Files files(gptq.tensors(), gptq.config());
        Binder binder(*files.checkpoint);
        const Weight whole = binder.matrix("m", 64, 48);
        Weight first = slice_rows(whole, 0, 32), second = slice_rows(whole, 32, 32), all = slice_rows(whole, 0, 64);
        Weight part = slice_rows(second, 5, 20);
        Weight* const weights[] = {&first, &second, &all, &part};
        repack_weights(weights);
        scan_weights(weights);
        std::vector<double> row(48);
        const auto check = [&](const Weight& weight, int64_t first_row) {
          int64_t different = 0;
          for (int64_t n = 0; n < weight.rows; ++n) {
            dequantize_row(weight, n, row);
            for (int64_t k = 0; k < 48; ++k) different += row[size_t(k)] != gptq.expected(first_row + n, k);
          }
          CHECK(different == 0);
        };
        check(first, 0);
        check(second, 32);
        check(all, 0);
        check(part, 37);
      }
    }
  }
}

TEST_CASE("GPTQ: what contradicts itself is named") {
  const Gptq gptq(5);
  const auto with = [&](auto&& change) {
    Tensors tensors = gptq.tensors();
    change(tensors);
    return problem(tensors, 64, 48, gptq.config());
  };
  CHECK(with([](Tensors&) {}) == "");
  CHECK(contains(with([](Tensors& t) {
                   t["qweight"].shape = {48, 16};
                 }),
                 "m.qweight: wrong type or shape (expected I32 [12, 64]"));
  CHECK(contains(with([](Tensors& t) { t["qweight"].dtype = "F32"; }), "found F32 [12, 64]"));
  CHECK(contains(with([](Tensors& t) {
                   t["scales"].shape = {64, 3};
                 }),
                 "m.scales: wrong shape (expected [groups, 64]"));
  CHECK(contains(with([](Tensors& t) {
                   t["scales"] = tensor<uint16_t>("F16", {5, 64}, std::vector<uint16_t>(320));
                 }),
                 "5 groups, which are none of the 48 columns"));
  CHECK(contains(with([](Tensors& t) { t["scales"].dtype = "I16"; }), "type I16 cannot be read here"));
  CHECK(contains(with([](Tensors& t) {
                   t["qzeros"].shape = {16, 3};
                 }),
                 "m.qzeros: wrong shape (expected [3, 16], found [16, 3])"));
  CHECK(contains(with([](Tensors& t) { t["g_idx"] = tensor("I32", {47}, std::vector<int32_t>(47)); }),
                 "m.g_idx: wrong shape (expected [48], found [47])"));
  CHECK(contains(with([](Tensors& t) { t["g_idx"] = tensor("I32", {48}, std::vector<int32_t>(48, 3)); }),
                 "group 3 is out of range (expected 0 to 2)"));
  CHECK(contains(with([](Tensors& t) { t["g_idx"] = tensor("I32", {48}, std::vector<int32_t>(48)); }),
                 "group 0 has the wrong number of columns (expected 16, found 48)"));
  CHECK(contains(with([](Tensors& t) { t.erase("qzeros"); }), "m.qweight"));
  // Without its index a file in activation order would be read as one that is not.
  Tensors tensors = gptq.tensors();
  tensors.erase("g_idx");
  for (const bool ordered : {false, true}) {
    const std::string config = fmt::format(R"("quantization_config":{{"quant_method":"gptq","bits":8,"group_size":16,)"
                                           R"("sym":false,"desc_act":{}}})",
                                           ordered);
    const std::string found = problem(tensors, 64, 48, config);
    CHECK(contains(found, "tensor m.g_idx is missing, config.json declares it") == ordered);
    CHECK(found.empty() != ordered);
    const Files files(tensors, config);
    Binder trusting(*files.checkpoint, true);
    CHECK(error_of([&] { trusting.matrix("m", 64, 48); }) == "");
  }
  CHECK(contains(with([](Tensors& t) { t["scales"].data[1] = 0x7C, t["scales"].data[0] = 0; }), "holds inf"));
}

TEST_CASE("AWQ: eight columns of a word in their order") {
  constexpr int64_t kRows = 16, kCols = 24, kGroup = 8, kGroups = 3;
  constexpr int kPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of columns 0, 1, ... of a word
  std::mt19937 random(11);
  const std::vector<uint32_t> words = random_words(random, kCols * kRows / 8);
  const std::vector<uint32_t> zeros = random_words(random, kGroups * kRows / 8);
  std::vector<uint16_t> scales;
  for (int64_t i = 0; i < kGroups * kRows; ++i)
    scales.push_back(float_to_f16(std::uniform_real_distribution<float>(0.01f, 0.1f)(random)));
  Tensors tensors;
  tensors["qweight"] = tensor("I32", {kCols, kRows / 8}, words);
  tensors["qzeros"] = tensor("I32", {kGroups, kRows / 8}, zeros);
  tensors["scales"] = tensor("F16", {kGroups, kRows}, scales);
  const Loaded loaded = load(tensors, kRows, kCols);
  CHECK(loaded.method == "4 bits, held as 8, group 8 asymmetric");
  int64_t different = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t k = 0; k < kCols; ++k) {
      const int64_t g = k / kGroup, shift = 4 * kPlace[n % 8];
      const int code = int(words[size_t(k * 2 + n / 8)] >> shift & 15),
                zero = int(zeros[size_t(g * 2 + n / 8)] >> shift & 15);
      different += loaded.w[size_t(n)][size_t(k)] != double(code - zero) * f16_to_float(scales[size_t(g * kRows + n)]);
    }
  }
  CHECK(different == 0);
  tensors["qzeros"] = tensor("I32", {kGroups, kRows / 8}, std::vector<uint32_t>(6, 0x88888888));
  CHECK(load(tensors, kRows, kCols).method == "4 bits, held as 8, group 8");
  tensors["qzeros"].shape = {2, 3};
  CHECK(contains(problem(tensors, kRows, kCols), "m.qzeros: wrong shape (expected [3, 2], found [2, 3])"));
}

TEST_CASE("AWQ: pieces, rows of half a square and parts that begin within one") {
  constexpr int kPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};
  std::mt19937 random(12);
  for (const int64_t rows : {264, 280}) {
    for (const int64_t cols : {64, 90, 144}) {
      INFO(rows, " x ", cols);
      const std::vector<uint32_t> words = random_words(random, cols * rows / 8);
      Tensors tensors;
      tensors["qweight"] = tensor("I32", {cols, rows / 8}, words);
      tensors["qzeros"] = tensor("I32", {1, rows / 8}, std::vector<uint32_t>(size_t(rows / 8), 0x88888888));
      tensors["scales"] = tensor("F16", {1, rows}, std::vector<uint16_t>(size_t(rows), float_to_f16(1)));
      const Files files(tensors, "");
      Binder binder(*files.checkpoint);
      const Weight whole = binder.matrix("m", rows, cols);
      for (const auto& [first, count] : {std::pair{int64_t{0}, rows}, {5, 150}, {130, rows - 130}}) {
        Weight part = slice_rows(whole, first, count);
        Weight* const weights[] = {&part};
        repack_weights(weights);
        std::vector<double> row(static_cast<size_t>(cols));
        int64_t different = 0;
        for (int64_t n = 0; n < count; ++n) {
          dequantize_row(part, n, row);
          for (int64_t k = 0; k < cols; ++k) {
            const int64_t at = first + n;
            const int code = int(words[size_t(k * (rows / 8) + at / 8)] >> (4 * kPlace[at % 8]) & 15);
            different += row[size_t(k)] != double(code - 8);
          }
        }
        CHECK(different == 0);
      }
    }
  }
}

TEST_CASE("pack-quantized: zero points along the rows, odd widths, activation order") {
  for (const int bits : {8, 7, 6, 5, 4, 3, 2}) {
    for (const bool asymmetric : {false, true}) {
      for (const bool ordered : {false, true}) {
        INFO(bits, " bits", asymmetric ? ", asymmetric" : "", ordered ? ", in activation order" : "");
        constexpr int64_t kRows = 9, kCols = 42, kGroup = 14, kGroups = 3;
        const int64_t pitch = (kCols * bits + 31) / 32, zero_rows = (kRows * bits + 31) / 32;
        std::mt19937 random{uint32_t(bits)};
        const std::vector<uint32_t> words = random_words(random, kRows * pitch),
                                    zeros = random_words(random, zero_rows * kGroups);
        std::vector<float> scales(kRows * kGroups);
        for (float& scale : scales) scale = std::uniform_real_distribution<float>(0.01f, 0.1f)(random);
        std::vector<int32_t> index(kCols);
        for (int32_t k = 0; k < kCols; ++k) index[size_t(k)] = ordered ? k % kGroups : k / int32_t(kGroup);
        Tensors tensors;
        tensors["weight_packed"] = tensor("I32", {kRows, pitch}, words);
        tensors["weight_scale"] = tensor("F32", {kRows, kGroups}, scales);
        tensors["weight_shape"] = tensor("I64", {2}, std::vector<int64_t>{kRows, kCols});
        if (asymmetric) tensors["weight_zero_point"] = tensor("I32", {zero_rows, kGroups}, zeros);
        if (ordered) tensors["weight_g_idx"] = tensor("I32", {kCols}, index);
        const Loaded loaded = load(tensors, kRows, kCols);
        const double middle = 1 << (bits - 1);
        int64_t different = 0;
        std::vector<uint32_t> zeros_of[kGroups];
        for (size_t i = 0; i < zeros.size(); ++i) zeros_of[i % kGroups].push_back(zeros[i]);
        for (int64_t n = 0; n < kRows; ++n) {
          const std::vector<uint32_t> row(words.begin() + n * pitch, words.begin() + (n + 1) * pitch);
          for (int64_t k = 0; k < kCols; ++k) {
            const int64_t g = index[size_t(k)];
            const double code = packed(row, k, bits) - middle;
            const double zero = asymmetric ? packed(zeros_of[g], n, bits) - middle : 0;
            different += loaded.w[size_t(n)][size_t(k)] != (code - zero) * scales[size_t(n * kGroups + g)];
          }
        }
        CHECK(different == 0);
        tensors["weight_packed"].shape = {pitch, kRows};
        CHECK(contains(problem(tensors, kRows, kCols), "m.weight_packed: wrong shape"));
        tensors["weight_packed"].shape = {kRows, pitch};
        tensors["weight_scale"].shape = {kGroups, kRows};
        CHECK(contains(problem(tensors, kRows, kCols), "is not a grid of blocks"));
      }
    }
  }
}

TEST_CASE("MLX: every number of bits, scales of either sign, and the modes without biases") {
  std::mt19937 random(8);
  constexpr int64_t kRows = 5, kCols = 96, kGroup = 32, kGroups = 3;
  for (const int bits : {8, 6, 5, 4, 3, 2, 1}) {
    INFO(bits, " bits");
    const int64_t pitch = kCols * bits / 32;
    const std::vector<uint32_t> words = random_words(random, kRows * pitch);
    std::vector<float> scales(kRows * kGroups), biases(scales.size());
    for (float& value : scales) value = std::uniform_real_distribution<float>(-0.1f, 0.1f)(random);
    for (float& value : biases) value = std::uniform_real_distribution<float>(-10, 10)(random);
    Tensors tensors;
    tensors["weight"] = tensor("U32", {kRows, pitch}, words);
    tensors["scales"] = tensor("F32", {kRows, kGroups}, scales);
    tensors["biases"] = tensor("F32", {kRows, kGroups}, biases);
    const Loaded loaded = load(tensors, kRows, kCols);
    int64_t different = 0;
    for (int64_t n = 0; n < kRows; ++n) {
      const std::vector<uint32_t> row(words.begin() + n * pitch, words.begin() + (n + 1) * pitch);
      for (int64_t k = 0; k < kCols; ++k) {
        const size_t g = size_t(n * kGroups + k / kGroup);
        const volatile float product = scales[g] * float(packed(row, k, bits));
        different += loaded.w[size_t(n)][size_t(k)] != double(product + biases[g]);
      }
    }
    CHECK(different == 0);
    CHECK(loaded.method == (bits == 8
                                ? "int8 group 32 asymmetric"
                                : fmt::format("{} bit{}, held as 8, group 32 asymmetric", bits, bits == 1 ? "" : "s")));
    tensors["biases"] = tensor("F32", {kRows, 1}, std::vector<float>(kRows));
    CHECK(contains(problem(tensors, kRows, kCols), "m.biases: not the shape of its scales (expected 3 groups"));
    tensors.erase("biases");
    CHECK(contains(problem(tensors, kRows, kCols), "F32 without m.biases"));
    tensors["scales"] = tensor("F32", {kRows, 5}, std::vector<float>(kRows * 5));
    CHECK(contains(problem(tensors, kRows, kCols), "m.scales: wrong shape"));
  }
  std::vector<uint8_t> exponents(kRows * kGroups);
  for (uint8_t& exponent : exponents) exponent = uint8_t(120 + random() % 8);
  Tensors tensors;
  std::vector<uint32_t> words = random_words(random, kRows * kCols / 4);
  for (uint32_t& word : words) word &= 0x7E7E7E7Eu;
  tensors["weight"] = tensor("U32", {kRows, kCols / 4}, words);
  tensors["scales"] = tensor("U8", {kRows, kGroups}, exponents);
  Loaded loaded = load(tensors, kRows, kCols);
  CHECK(loaded.method == "fp8 group 32");
  CHECK(loaded.w[1][35] == double(e4m3_to_float(uint8_t(words[24 + 8] >> 24))) * e8m0_to_float(exponents[4]));
  words = random_words(random, kRows * kCols / 8);
  tensors["weight"] = tensor("U32", {kRows, kCols / 8}, words);
  loaded = load(tensors, kRows, kCols);
  CHECK(loaded.method == "fp4, held as 8, group 32");
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int64_t k = 0; k < kCols; ++k) {
    const uint32_t code = words[size_t(kCols / 8 + k / 8)] >> k % 8 * 4 & 15;
    const double magnitude = kMagnitudes[code & 7] * e8m0_to_float(exponents[size_t(kGroups + k / kGroup)]);
    CHECK(loaded.w[1][size_t(k)] == (code & 8 ? -magnitude : magnitude));
  }
  // nvfp4: E4M3 scales for 16 columns.
  constexpr int64_t kSmall = 16, kScales = kCols / kSmall;
  std::vector<uint8_t> scales(kRows * kScales);
  for (uint8_t& scale : scales) scale = uint8_t(0x20 + random() % 0x40);
  tensors["scales"] = tensor("U8", {kRows, kScales}, scales);
  loaded = load(tensors, kRows, kCols);
  CHECK(loaded.method == "fp4, held as 8, group 16");
  for (int64_t k = 0; k < kCols; ++k) {
    const uint32_t code = words[size_t(kCols / 8 + k / 8)] >> k % 8 * 4 & 15;
    const double magnitude = kMagnitudes[code & 7] * e4m3_to_float(scales[size_t(kScales + k / kSmall)]);
    CHECK(loaded.w[1][size_t(k)] == (code & 8 ? -magnitude : magnitude));
  }
  tensors["scales"] = tensor("U8", {kRows, 2}, std::vector<uint8_t>(kRows * 2));
  CHECK(contains(problem(tensors, kRows, kCols), "m.scales: groups of 48 columns (expected 32, or 16 of 4 bits)"));
}

TEST_CASE("HQQ: both axes, groups across rows, fewer bits") {
  std::mt19937 random(9);
  constexpr int64_t kRows = 12, kCols = 20, kElements = kRows * kCols;
  for (const int bits : {8, 4, 3, 2, 1}) {
    for (const int64_t size : {10, 20, 60, 16, 240}) {
      for (const int axis : {0, 1}) {
        INFO(bits, " bits, groups of ", size, ", axis ", axis);
        const int64_t groups = kElements / size, width = axis == 1 ? size : groups;
        // A unit has an element of each part of the matrix, the first in its highest bits: a byte, or of 3 bits a word
        // with ten of them.
        const bool words = bits == 3;
        const int64_t units = words ? (kElements / width + 9) / 10 * width : kElements * bits / 8;
        if (units % width != 0) continue;  // rows of groups are packed together
        const std::vector<uint8_t> bytes = random_codes(random, size_t(units), 8);
        const std::vector<uint32_t> packed = random_words(random, units);
        const auto code_of = [&](int64_t i) {
          const int64_t part = i / units;
          return words ? int(packed[size_t(i % units)] >> (27 - 3 * part) & 7)
                       : bytes[size_t(i % units)] >> (8 - bits * (part + 1)) & ((1 << bits) - 1);
        };
        std::vector<float> scales(static_cast<size_t>(groups)), zeros(scales.size());
        for (float& value : scales) value = std::uniform_real_distribution<float>(0.01f, 0.1f)(random);
        for (float& value : zeros) value = std::uniform_real_distribution<float>(0, 255)(random);
        const std::vector<int64_t> shape =
            axis == 1 ? std::vector<int64_t>{groups, 1} : std::vector<int64_t>{1, groups};
        Tensors tensors;
        tensors["W_q"] =
            words ? tensor("I32", {units / width, width}, packed) : tensor("U8", {units / width, width}, bytes);
        tensors["scale"] = tensor("F32", shape, scales);
        tensors["zero"] = tensor("F32", shape, zeros);
        tensors["nbits"] = tensor("I32", {}, std::vector<int32_t>{bits});
        tensors["axis"] = tensor("I32", {}, std::vector<int32_t>{axis});
        const Loaded loaded = load(tensors, kRows, kCols);
        int64_t different = 0;
        for (int64_t i = 0; i < kElements; ++i) {
          const auto group = size_t(axis == 1 || groups == 1 ? i / size : i % groups);
          const volatile float shifted = float(code_of(i)) - zeros[group];
          const volatile float expected = shifted * scales[group];
          different += loaded.w[size_t(i / kCols)][size_t(i % kCols)] != double(expected);
        }
        CHECK(different == 0);
      }
    }
  }
  Tensors tensors;
  tensors["W_q"] = tensor("U8", {4, 60}, std::vector<uint8_t>(240));
  tensors["scale"] = tensor("F32", {4, 1}, std::vector<float>(4, 1));
  tensors["zero"] = tensor("F32", {1, 4}, std::vector<float>(4));
  CHECK(contains(problem(tensors, kRows, kCols), "m.zero: not the shape of its scale"));
  tensors["zero"] = tensor("F32", {4, 1}, std::vector<float>(4));
  CHECK(problem(tensors, kRows, kCols) == "");
  tensors["W_q"] = tensor("U8", {4, 50}, std::vector<uint8_t>(200));
  CHECK(contains(problem(tensors, kRows, kCols), "m.W_q: wrong size"));
  tensors["W_q"] = tensor("U8", {2, 60}, std::vector<uint8_t>(120));
  tensors["nbits"] = tensor("I64", {}, std::vector<int64_t>{4});
  CHECK(problem(tensors, kRows, kCols) == "");
  tensors["nbits"] = tensor("I64", {}, std::vector<int64_t>{3});
  CHECK(contains(problem(tensors, kRows, kCols), "holds codes of 4 bits (expected 3, as nbits says)"));
  tensors.erase("nbits");
  tensors["axis"] = tensor("I32", {}, std::vector<int32_t>{0});
  CHECK(contains(problem(tensors, kRows, kCols), "m.W_q: the shape of its scale is that of axis 1 (expected 0"));
  tensors.erase("axis");
  tensors["W_q"].shape = {60, 2};
  CHECK(contains(problem(tensors, kRows, kCols), "m.W_q: its shape [60, 2] does not fit that of its scale, [4, 1]"));
  tensors["W_q"] = tensor("I32", {2, 60}, std::vector<int32_t>(120));
  CHECK(contains(problem(tensors, kRows, kCols), "m.W_q: wrong size"));
  tensors["W_q"] = tensor("U8", {4, 60}, std::vector<uint8_t>(240));
  tensors["scale"] = tensor("F32", {2, 2}, std::vector<float>(4, 1));
  CHECK(contains(problem(tensors, kRows, kCols), "m.scale: wrong shape"));
  tensors["scale"] = tensor("U8", {4, 1}, std::vector<uint8_t>(4, 1));
  CHECK(contains(problem(tensors, kRows, kCols), "m.scale: wrong type"));
}

TEST_CASE("bitsandbytes, torchao and quanto: codes with scales of their own names") {
  std::vector<int8_t> codes(4 * 6);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = int8_t(int(i) * 11 - 128);
  const std::vector<float> row_scales{0.3f, 1.7f, 123.456f, 0.011f};
  Tensors bnb;
  bnb["weight"] = tensor("I8", {4, 6}, codes);
  bnb["SCB"] = tensor("F32", {4}, row_scales);
  bnb["weight_format"] = tensor("U8", {}, std::vector<uint8_t>{0});
  Loaded loaded = load(bnb, 4, 6);
  for (size_t i = 0; i < codes.size(); ++i) {
    const volatile float product = float(codes[i]) * row_scales[i / 6];
    const volatile float expected = product * 7.874015718698502e-3f;
    CHECK(loaded.w[i / 6][i % 6] == double(expected));
  }
  CHECK(loaded.method == "int8 channel");
  bnb["weight_format"] = tensor("U8", {}, std::vector<uint8_t>{2});
  CHECK(contains(problem(bnb, 4, 6), "layout 2 of a GPU"));
  bnb["SCB"] = tensor("F32", {1, 4}, row_scales);
  CHECK(contains(problem(bnb, 4, 6), "m.SCB: wrong shape (expected [4], found [1, 4])"));

  Tensors fnuz;  // widened first, then zero points follow
  fnuz["_weight_qdata"] = tensor("F8_E4M3FNUZ", {1, 2}, std::vector<uint8_t>{0x40, 0x38});
  fnuz["_weight_scale"] = tensor("F32", {1, 1}, std::vector<float>{2});
  fnuz["_weight_zero_point"] = tensor("I32", {1, 1}, std::vector<int32_t>{0});
  CHECK(load(fnuz, 1, 2).w[0] == std::vector<double>{2, 1});
  for (const std::string type : {"I8", "I32", "I64"}) {
    Tensors torchao;
    torchao["_weight_qdata"] = tensor("I8", {4, 6}, codes);
    torchao["_weight_scale"] = tensor("F32", {4, 1}, row_scales);
    torchao["_weight_zero_point"] = type == "I8"    ? tensor("I8", {4, 1}, std::vector<int8_t>{0, 5, -7, 0})
                                    : type == "I32" ? tensor("I32", {4, 1}, std::vector<int32_t>{0, 5, -7, 0})
                                                    : tensor("I64", {4, 1}, std::vector<int64_t>{0, 5, -7, 0});
    CHECK(load(torchao, 4, 6).w[1][2] == (codes[8] - 5) * double(row_scales[1]));
    CHECK(load(torchao, 4, 6).method == "int8 channel asymmetric");
    torchao["_weight_zero_point"].data.assign(torchao["_weight_zero_point"].data.size(), '\0');
    CHECK(load(torchao, 4, 6).method == "int8 channel");
    torchao["_weight_zero_point"].shape = {1, 4};
    CHECK(contains(problem(torchao, 4, 6), "m._weight_zero_point"));
    torchao.erase("_weight_zero_point");
    torchao["_weight_act_quant_scale"] = tensor("F32", {1}, std::vector<float>(1));
    CHECK(load(torchao, 4, 6).method == "int8 channel");
    torchao["_weight_other_scale"] = tensor("F32", {6}, std::vector<float>(6));
    CHECK(contains(problem(torchao, 4, 6), "m._weight_other_scale: a quantization parameter that nothing"));
  }
  Tensors quanto;
  quanto["weight._data"] = tensor("I8", {4, 6}, codes);
  quanto["weight._scale"] = tensor("F32", {4, 1}, row_scales);
  quanto["input_scale"] = tensor("F32", {}, std::vector<float>{1});
  CHECK(load(quanto, 4, 6).w[3][5] == codes[23] * double(row_scales[3]));
  quanto["weight._data"].dtype = "U8";
  CHECK(contains(problem(quanto, 4, 6), "m.weight._data: wrong type"));
}

}  // namespace
}  // namespace qgen::test
