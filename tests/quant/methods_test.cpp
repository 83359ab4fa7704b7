// Methods whose codes are repacked when a model is loaded, on tensors made here: what each formula gives, and what is
// said of tensors that contradict it.
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "base/numbers.h"
#include "checkpoint/checkpoint.h"
#include "quant/binder.h"
#include "quant/repack.h"
#include "tests/random_weight.h"
#include "tests/support.h"
#include "tests/tensors.h"

namespace qgen::test {
namespace {

template <typename T>
Tensor tensor(std::string dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {std::move(dtype), std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

// A checkpoint with nothing but the tensors of module "m".
struct Files {
  TemporaryFolder folder;
  std::optional<Checkpoint> checkpoint;

  Files(const Tensors& tensors, const std::string& quantization) {
    Tensors named;
    for (const auto& [name, one] : tensors) named["m." + name] = one;
    folder.write("model.safetensors", write_tensors(named));
    folder.write("config.json", "{" + quantization + "}");
    checkpoint.emplace(open_checkpoint(locate_model(folder.path().string())));
  }
};

struct Loaded {
  std::vector<std::vector<double>> w;  // (N, K)
  std::string planned, method;
};

Loaded load(const Tensors& tensors, int64_t rows, int64_t cols, const std::string& quantization = "") {
  const Files files(tensors, quantization);
  Binder binder(*files.checkpoint);
  Weight weight = binder.matrix("m", rows, cols);
  const std::string everything[] = {""};
  binder.finish(everything, {}, "test");
  Loaded out;
  out.planned = method_name(weight);
  const size_t bytes = weight.bytes();
  Weight* const weights[] = {&weight};
  repack_weights(weights);
  CHECK(weight.bytes() <= bytes);
  scan_weights(weights);
  out.method = method_name(weight);
  for (int64_t n = 0; n < rows; ++n) {
    out.w.emplace_back(size_t(cols));
    dequantize_row(weight, n, out.w.back());
  }
  return out;
}

std::string problem(const Tensors& tensors, int64_t rows, int64_t cols, const std::string& quantization = "") {
  ErrorKind kind = ErrorKind::kModel;
  const std::string message = error_of([&] { load(tensors, rows, cols, quantization); }, &kind);
  CHECK(kind == ErrorKind::kModel);
  return message;
}

std::vector<uint8_t> random_codes(std::mt19937& random, size_t count, int bits) {
  std::vector<uint8_t> out(count);
  for (uint8_t& code : out) code = uint8_t(random() >> 8 & ((1u << bits) - 1));
  return out;
}

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
