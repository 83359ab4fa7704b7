// The kernels of linear layers against plain double arithmetic, for every instruction set this machine has.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include <sys/mman.h>

#include "base/numbers.h"
#include "cpu/linear.h"
#include "tests/cpu/test_targets.h"
#include "tests/random_weight.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

// A layer, and the input of it for up to `most` tokens in the forms that it wants.
struct TestLayer {
  TestLayer(const Weight& weight, const IsaTarget& kernels, Activations activations, int64_t most)
      : target(kernels),
        kernel(weight, kernels, activations),
        input(std::vector<const cpu::LinearKernel*>{&kernel}, most, 1),
        scratch(cpu::scratch_bytes(kernel.cols(), kernel.matrix().grid_cols)) {
    kernel.load(weight);
    input.lay_out(arena);
    arena.allocate("test");
    input.lay_out(arena);
  }
  void prepare(int64_t row, int64_t tokens) { input.prepare(target, input.row(row), row, tokens, choice); }
  // Rows [begin, end) of W times the first `tokens`; rows of y are those of all of W apart.
  void multiply(int64_t tokens, int64_t begin, int64_t end, std::vector<float>& y) {
    kernel.multiply(input.view(0, input.row(0), tokens, choice), choice, begin, end, y.data() + begin, kernel.rows(),
                    scratch.get());
  }
  const IsaTarget& target;
  Kernels choice = Kernels::kByCount;
  cpu::LinearKernel kernel;
  cpu::InputForms input;
  cpu::Arena arena;
  Scratch scratch;
};

// Normwise error of y = W x for `tokens` tokens, computed as the engine does it in two row ranges.
double multiply_error(const IsaTarget& target, const Weight& weight, int64_t tokens, std::mt19937& random,
                      Activations activations = Activations::k16Bit, float mean = 0,
                      Kernels choice = Kernels::kByCount) {
  TestLayer layer(weight, target, activations, tokens);
  layer.choice = choice;
  const std::vector<float> bias = normal(random, size_t(weight.rows));
  std::vector<float> x = normal(random, size_t(tokens * weight.cols));
  for (float& value : x) value += mean;
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(x.data() + t * weight.cols, weight.cols, layer.input.row(t));
    layer.prepare(t, tokens);
  }
  std::vector<float> y(size_t(tokens * weight.rows), NAN);
  const int64_t middle = std::min(weight.rows, weight.rows > 256 ? weight.rows - 7 : target.panel_rows);
  layer.multiply(tokens, 0, middle, y);
  if (middle < weight.rows) layer.multiply(tokens, middle, weight.rows, y);
#if defined(__x86_64__)
  if (cpu::kEmulatedAmxTarget.supported()) CHECK(cpu::emulated_tiles_released());
#endif

  std::vector<float> expected(y.size());
  std::vector<double> row(size_t(weight.cols));
  for (int64_t n = 0; n < weight.rows; ++n) {
    dequantize_row(weight, n, row);
    for (int64_t t = 0; t < tokens; ++t) {
      y[size_t(t * weight.rows + n)] += bias[size_t(n)];
      double sum = bias[size_t(n)];
      for (int64_t k = 0; k < weight.cols; ++k) sum += row[size_t(k)] * x[size_t(t * weight.cols + k)];
      expected[size_t(t * weight.rows + n)] = float(sum);
    }
  }
  return normwise_error(y, expected);
}

// What a form of the activations may cost, with a margin of three. Zero points as large as the codes cancel most of a
// sum and leave its error, hence more for integers.
double tolerance(cpu::Form form) {
  switch (form) {
    case cpu::Form::kF32: return 5e-6;
    case cpu::Form::kInt16:
    case cpu::Form::kInt8HiLo: return 1e-4;
    case cpu::Form::kBf16Pair: return 3e-5;
    case cpu::Form::kBf16: return 4e-3;
    case cpu::Form::kInt8: return 2e-2;
  }
  return 0;
}

TEST_CASE("W x for every code, grid, size and number of tokens") {
  struct Shape {
    int64_t rows, cols, group_rows, group_cols;
  };
  const Shape shapes[] = {{37, 100, 37, 100},   {70, 172, 1, 172}, {33, 64, 1, 32},     {20, 172, 1, 43},
                          {130, 300, 128, 128}, {64, 96, 16, 24},  {5, 7, 2, 3},        {1, 1, 1, 1},
                          {40, 1024, 1, 64},    {35, 130, 12, 20}, {3, 513, 128, 128},  {48, 256, 1, 256},
                          {33, 700, 1, 100},    {17, 200, 1, 16},  {130, 300, 128, 32}, {130, 300, 64, 96}};
  for (const IsaTarget* target : kernel_targets()) {
    for (const int64_t tokens : {1, 2, 13, 26, 260}) {
      double worst = 0;
      for (const Codes codes : {Codes::kF32, Codes::kF16, Codes::kBf16, Codes::kI8, Codes::kE4M3, Codes::kE5M2}) {
        const bool plain = codes == Codes::kF32 || codes == Codes::kF16 || codes == Codes::kBf16;
        for (const Shape& shape : shapes) {
          for (const bool zero_points : {false, true}) {
            if (zero_points && plain) continue;
            INFO(std::string(target->name), " ", codes_name(codes), " ", shape.rows, "x", shape.cols, " groups ",
                 shape.group_rows, "x", shape.group_cols, " tokens ", tokens, " zero points ", zero_points);
            std::mt19937 random(uint32_t(shape.rows * 1000 + shape.cols + tokens));
            const Weight weight = random_weight(random, codes, shape.rows, shape.cols, shape.group_rows,
                                                plain ? 0 : shape.group_cols, zero_points);
            const double error = multiply_error(*target, weight, tokens, random);
            CHECK(error < tolerance(target->kernels[size_t(codes)].at(tokens).form));
            worst = std::max(worst, error);
            if (codes != Codes::kI8) continue;
            CHECK(multiply_error(*target, weight, tokens, random, Activations::kF32) < tolerance(cpu::Form::kF32));
            // Zero points as large as the codes cancel most of the sum and leave the error of 8 bits.
            CHECK(multiply_error(*target, weight, tokens, random, Activations::k8Bit) <
                  tolerance(cpu::Form::kInt8) * (zero_points ? 3 : 1));
          }
        }
      }
      MESSAGE(std::string(target->name), ", ", tokens, " tokens: largest error ", worst);
    }
  }
}

// The scales of a weight in another type; `bytes` holds them.
void store_scales(Weight& weight, ScaleType type, std::vector<std::byte>& bytes) {
  bytes.resize(weight.scale.bytes());
  for (int64_t i = 0; i < weight.scale.rows * weight.scale.cols; ++i) {
    const float value = weight.scale.value(i / weight.scale.cols, i % weight.scale.cols);
    const uint16_t f16 = float_to_f16(value), bf16 = float_to_bf16(value);
    const uint8_t e8m0 = uint8_t(110 + i % 12);
    const int64_t size = scale_bytes(type);
    const void* from = type == ScaleType::kF32    ? static_cast<const void*>(&value)
                       : type == ScaleType::kF16  ? static_cast<const void*>(&f16)
                       : type == ScaleType::kBf16 ? static_cast<const void*>(&bf16)
                                                  : static_cast<const void*>(&e8m0);
    std::memcpy(bytes.data() + i * size, from, size_t(size));
  }
  weight.scale.type = type;
  weight.scale.data = bytes.data();
  weight.scale.col_pitch = scale_bytes(type);
  weight.scale.row_pitch = weight.scale.cols * weight.scale.col_pitch;
}

// A copy of bytes right before a page that must not be read.
class GuardedCopy {
 public:
  explicit GuardedCopy(std::span<const std::byte> bytes) : size_(bytes.size() / kPage * kPage + 2 * kPage) {
    begin_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(begin_ != MAP_FAILED);
    std::byte* const guard = begin_ + size_ - kPage;
    REQUIRE(mprotect(guard, kPage, PROT_NONE) == 0);
    bytes_ = {guard - bytes.size(), bytes.size()};
    std::ranges::copy(bytes, guard - bytes.size());
  }
  ~GuardedCopy() { munmap(begin_, size_); }
  GuardedCopy(const GuardedCopy&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static constexpr size_t kPage = 4096;
  size_t size_;
  std::byte* begin_;
  std::span<const std::byte> bytes_;
};

// On Zen 4 FP8 goes eight rows side by side at any length, elsewhere on AMD's processors where x takes more bytes than
// kFp8Alone in common.inc, as BF16 and INT8 do; the last rows go alone.
TEST_CASE("one and a few tokens times rows that go side by side") {
  struct Shape {
    Codes codes;
    int64_t rows, cols, group_rows, group_cols;
    ScaleType scales = ScaleType::kF32;
  };
  const Shape shapes[] = {{Codes::kE4M3, 19, 8960, 1, 128, ScaleType::kBf16},
                          {Codes::kE4M3, 11, 6400, 1, 32, ScaleType::kE8M0},
                          {Codes::kE4M3, 27, 6400, 128, 128},
                          {Codes::kE4M3, 10, 6250, 1, 6250},
                          {Codes::kE4M3, 18, 9000, 1, 72},
                          {Codes::kE4M3, 12, 17408, 4, 128},
                          {Codes::kE4M3, 29, 512, 128, 128},
                          {Codes::kE4M3, 21, 200, 1, 200},
                          {Codes::kE4M3, 35, 1000, 3, 96, ScaleType::kF16},
                          {Codes::kBf16, 19, 6250, 1, 0},
                          {Codes::kBf16, 26, 9728, 1, 0},
                          {Codes::kI8, 19, 12416, 1, 12416},
                          {Codes::kI8, 10, 12345, 2, 12345},
                          {Codes::kI8, 18, 12544, 1, 256},
                          {Codes::kI8, 11, 250, 1, 32},
                          {Codes::kI8, 9, 672, 1, 16},
                          {Codes::kI8, 12, 13000, 128, 1000}};
  for (const IsaTarget* target : kernel_targets()) {
    for (const Shape& shape : shapes) {
      for (const bool zero_points : {false, true}) {
        if (zero_points && shape.codes != Codes::kI8) continue;
        INFO(std::string(target->name), " ", codes_name(shape.codes), " ", shape.rows, "x", shape.cols, " groups ",
             shape.group_rows, "x", shape.group_cols, " zero points ", zero_points);
        std::mt19937 random(uint32_t(shape.cols));
        Weight whole =
            random_weight(random, shape.codes, shape.rows, shape.cols, shape.group_rows, shape.group_cols, zero_points);
        std::vector<std::byte> bytes;
        if (shape.scales != ScaleType::kF32) store_scales(whole, shape.scales, bytes);
        Weight weight = slice_rows(whole, 2, shape.rows - 2);
        const GuardedCopy codes(weight.data);
        weight.data = codes.bytes();
        for (const int64_t tokens : {1, 2, 5, 8, 9})
          CHECK(multiply_error(*target, weight, tokens, random) <
                tolerance(target->kernels[size_t(shape.codes)].at(tokens).form));

        TestLayer layer(weight, *target, Activations::k16Bit, 1);
        std::ranges::copy(normal(random, size_t(shape.cols)), layer.input.row(0));
        layer.prepare(0, 1);
        std::vector<float> together(size_t(weight.rows)), alone(size_t(weight.rows));
        layer.multiply(1, 0, weight.rows, together);
        for (int64_t n = 0; n < weight.rows; ++n) layer.multiply(1, n, n + 1, alone);
        CHECK(together == alone);
      }
    }
  }
}

// MXFP8: groups of 32 with powers of two, which some kernels add to the exponents of codes as they are decoded where
// all leave room for that, however small those of groups of zeros are.
TEST_CASE("W x for every code of FP8 and powers of two of every size") {
  constexpr int64_t kRows = 75, kCols = 4288, kGroup = 32, kGroups = kCols / kGroup;
  enum Kind { kUsual, kTiny, kNoPowers, kKinds };
  for (const IsaTarget* target : kernel_targets()) {
    for (int kind = kUsual; kind < kKinds; ++kind) {
      INFO(std::string(target->name), " ", kind);
      std::mt19937 random(5);
      Weight weight = random_weight(random, Codes::kE4M3, kRows, kCols, 1, kGroup, false);
      std::vector<std::byte> powers;
      std::vector<float> scales;
      for (int64_t i = 0; i < kRows * kGroups; ++i) {
        const int64_t row = i / kGroups;
        const bool zeros = random() % 5 == 0;
        for (size_t k = 0; k < size_t(kGroup); ++k) {
          const size_t at = size_t(i * kGroup) + k;
          const size_t code = zeros || random() % 3 == 0 ? 0 : random() % 127;
          weight.owned[at] = std::byte(code | (random() % 2 * 0x80));
        }
        powers.push_back(std::byte(kind == kTiny && row % 8 == 1 ? i % 10
                                   : kind == kUsual && zeros     ? i % 3
                                   : row % 8 == 2                ? 10 + row
                                                                 : 100 + i % 20));
        scales.push_back(std::ldexp(1.25f, int(powers.back()) - 127));
      }
      weight.data = weight.owned;
      if (kind == kNoPowers) {
        set_values(weight.scale, std::move(scales));
      } else {
        weight.scale.type = ScaleType::kE8M0;
        weight.scale.data = powers.data();
        weight.scale.col_pitch = 1;
        weight.scale.row_pitch = kGroups;
      }
      std::vector<double> row(size_t(kCols), 0);
      for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 9, 20}) {
        TestLayer layer(weight, *target, Activations::k16Bit, tokens);
        layer.choice = Kernels::kGenerate;
        const std::vector<float> x = normal(random, size_t(tokens * kCols));
        for (int64_t t = 0; t < tokens; ++t) {
          std::copy_n(x.data() + t * kCols, kCols, layer.input.row(t));
          layer.prepare(t, tokens);
        }
        std::vector<float> together(size_t(tokens * kRows)), parts(together.size());
        layer.multiply(tokens, 0, kRows, together);
        for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 8}, {8, 48}, {48, 49}, {49, kRows}})
          layer.multiply(tokens, begin, end, parts);
        CHECK(together == parts);
        double worst = 0;  // beside the products' sizes, as those of a row are its scales'
        for (int64_t n = 0; n < kRows; ++n) {
          dequantize_row(weight, n, row);
          for (int64_t t = 0; t < tokens; ++t) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < kCols; ++k) {
              const double product = row[size_t(k)] * x[size_t(t * kCols + k)];
              sum += product;
              size += std::abs(product);
            }
            worst = std::max(worst, std::abs(together[size_t(t * kRows + n)] - sum) / size);
          }
        }
        CHECK(worst < tolerance(target->kernels[size_t(Codes::kE4M3)].generated().form));
      }
    }
  }
}

TEST_CASE("scales are exponents where all codes have room for them") {
  constexpr int64_t kRows = 3, kCols = 64 * 10, kGroup = 32, kGroups = kCols / kGroup;
  // One code and one scale (E8M0) that differ from the others.
  const auto fits = [](uint8_t code, uint8_t power, bool transposed = false, ScaleType type = ScaleType::kE8M0) {
    std::mt19937 random(1);
    Weight weight = random_weight(random, Codes::kE4M3, kRows, kCols, 1, kGroup, false);
    std::vector<std::byte> powers(size_t(kRows * kGroups), std::byte{120});
    constexpr int64_t kRow = 1, kOf = 13;
    std::fill_n(weight.owned.begin() + kRow * kCols + kOf * kGroup, kGroup, std::byte{0x80});
    weight.owned[size_t(kRow * kCols + kOf * kGroup + 9)] = std::byte{code};
    powers[size_t(transposed ? kOf * kRows + kRow : kRow * kGroups + kOf)] = std::byte{power};
    if (type == ScaleType::kE8M0) {
      weight.scale.type = type;
      weight.scale.data = powers.data();
      weight.scale.col_pitch = transposed ? kRows : 1;
      weight.scale.row_pitch = transposed ? 1 : kGroups;
    }
    const bool found = cpu::has_exponent_scales(weight);
    for (const IsaTarget* target : kernel_targets()) {
      cpu::LinearKernel kernel(weight, *target, Activations::k16Bit);
      kernel.load(weight);
      CHECK(kernel.matrix().exponent_scales == (found && kernel.kernels().generated().form == cpu::Form::kBf16Pair));
    }
    return found;
  };
  for (const bool transposed : {false, true}) {
    CHECK(fits(1, 120, transposed));
    CHECK(fits(1, 10, transposed));  // 2^-126
    CHECK(!fits(1, 9, transposed));
    CHECK(!fits(0x81, 0, transposed));
    CHECK(fits(0, 9, transposed));
    CHECK(fits(0x80, 0, transposed));
    CHECK(fits(0x7E, 246, transposed));  // 448 * 2^119
    CHECK(!fits(0x7E, 247, transposed));
    CHECK(fits(0x7E, 200, transposed));
    CHECK(!fits(0, 255, transposed));
  }
  CHECK(!fits(1, 120, false, ScaleType::kF32));
}

TEST_CASE("W x for shifted codes with minimums") {
  struct Shape {
    int64_t rows, cols, group_rows, group_cols;
  };
  const Shape shapes[] = {{33, 64, 1, 32},   {20, 172, 1, 43},   {70, 172, 1, 172},   {40, 1024, 1, 64},
                          {5, 7, 2, 3},      {48, 256, 1, 16},   {9, 2200, 1, 16},    {9, 2100, 1, 32},
                          {33, 700, 1, 100}, {37, 100, 37, 100}, {130, 300, 128, 128}};
  for (const IsaTarget* target : kernel_targets()) {
    for (const Activations activations : {Activations::k16Bit, Activations::kF32, Activations::k8Bit}) {
      for (const int64_t tokens : {1, 2, 13, 26, 260}) {
        for (const Shape& shape : shapes) {
          INFO(std::string(target->name), " ", activations_name(activations), " ", shape.rows, "x", shape.cols,
               " groups ", shape.group_rows, "x", shape.group_cols, " tokens ", tokens);
          std::mt19937 random(uint32_t(shape.rows * 1000 + shape.cols + tokens));
          const Weight weight =
              random_affine_weight(random, shape.rows, shape.cols, shape.group_rows, shape.group_cols);
          CHECK(multiply_error(*target, weight, tokens, random, activations) <
                (activations == Activations::k8Bit    ? 2 * tolerance(cpu::Form::kInt8)
                 : activations == Activations::k16Bit ? tolerance(cpu::Form::kInt8HiLo)
                                                      : tolerance(cpu::Form::kF32)));
        }
      }
    }
  }
}

TEST_CASE("W x for scale groups down the columns") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const int64_t tokens : {1, 2, 13, 26, 260}) {
      for (const auto& [rows, cols, period] :
           {std::array<int64_t, 3>{40, 100, 10}, {36, 7, 36}, {60, 200, 1}, {72, 515, 24}, {330, 64, 3}, {1, 1, 1}}) {
        for (const ScaleType type : {ScaleType::kF32, ScaleType::kF16, ScaleType::kBf16}) {
          INFO(std::string(target->name), " ", rows, "x", cols, " period ", period, " tokens ", tokens);
          std::mt19937 random(uint32_t(rows * 1000 + cols + tokens));
          const Weight weight = random_column_groups(random, rows, cols, period, type);
          CHECK(multiply_error(*target, weight, tokens, random) < tolerance(cpu::Form::kF32));
          if (rows < 40) continue;
          const Weight part = slice_rows(weight, 7, 31);
          CHECK(multiply_error(*target, part, tokens, random) < tolerance(cpu::Form::kF32));
          std::vector<double> row(size_t(cols), NAN), expected(size_t(cols), NAN);
          dequantize_row(part, 30, row);
          dequantize_row(weight, 37, expected);
          CHECK(row == expected);
        }
      }
      // Grids that are no floats side by side.
      std::mt19937 random(7);
      Weight weight = random_column_groups(random, 24, 50, 8, ScaleType::kF32);
      std::vector<std::byte> codes(size_t(8 * 50));
      for (std::byte& code : codes) code = std::byte(random() % 200);
      set_values(weight.zero_point, ScaleType::kU8, std::move(codes));
      CHECK(multiply_error(*target, weight, tokens, random) < tolerance(cpu::Form::kF32));
    }
  }
}

TEST_CASE("W x for scales and minimums of two levels") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const Activations activations : {Activations::k16Bit, Activations::kF32, Activations::k8Bit}) {
      for (const int64_t tokens : {1, 2, 7, 30, 260}) {
        for (const auto& [rows, cols, group] :
             {std::array<int64_t, 3>{5, 256, 32}, {37, 256, 16}, {19, 2304, 32}, {20, 1792, 16}}) {
          for (const bool minimums : {false, true}) {
            INFO(std::string(target->name), " ", activations_name(activations), " ", rows, "x", cols, " groups of ",
                 group, " tokens ", tokens, " minimums ", minimums);
            std::mt19937 random(uint32_t(rows * 1000 + cols + tokens));
            const Weight weight = random_two_levels(random, rows, cols, group, minimums);
            CHECK(multiply_error(*target, weight, tokens, random, activations) <
                  (activations == Activations::k8Bit    ? 2 * tolerance(cpu::Form::kInt8)
                   : activations == Activations::k16Bit ? tolerance(cpu::Form::kInt8HiLo)
                                                        : tolerance(cpu::Form::kF32)));
          }
        }
      }
    }
  }
}

TEST_CASE("W x for weights in blocks of Q8_0") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const Activations activations : {Activations::k16Bit, Activations::kF32, Activations::k8Bit}) {
      for (const int64_t tokens : {1, 2, 3, 4, 6, 7, 8, 9, 30, 530}) {
        for (const auto& [rows, cols] : {std::array<int64_t, 2>{5, 32}, {37, 96}, {64, 1024}, {48, 160}, {64, 64}}) {
          INFO(std::string(target->name), " ", activations_name(activations), " ", rows, "x", cols, " tokens ", tokens);
          std::mt19937 random(uint32_t(rows * 1000 + cols + tokens));
          const Weight weight = random_blocks(random, rows, cols);
          CHECK(multiply_error(*target, weight, tokens, random, activations) <
                (activations == Activations::k8Bit    ? tolerance(cpu::Form::kInt8)
                 : activations == Activations::k16Bit ? tolerance(cpu::Form::kInt8HiLo)
                                                      : tolerance(cpu::Form::kF32)));
        }
      }
    }
  }
}

TEST_CASE("long rows do not overflow the integer products") {
  for (const IsaTarget* target : kernel_targets()) {
    constexpr Activations activations = Activations::k16Bit;
    INFO(std::string(target->name));
    std::mt19937 random(1);
    for (const int64_t cols : {65536, 66000}) {
      Weight weight = random_weight(random, Codes::kI8, 3, cols, 1, cols, false);
      std::fill(weight.owned.begin(), weight.owned.end(), std::byte{0x7F});
      for (const int64_t tokens : {1, 7}) {
        TestLayer layer(weight, *target, activations, tokens);
        for (int64_t t = 0; t < tokens; ++t) {
          std::fill_n(layer.input.row(t), cols, 1.0f);
          layer.prepare(t, tokens);
        }
        std::vector<float> y(size_t(tokens * 3));
        layer.multiply(tokens, 0, 3, y);
        for (size_t i = 0; i < y.size(); ++i)
          CHECK(y[i] == doctest::Approx(127.0 * double(cols) * weight.scale.at(int64_t(i % 3), 0)).epsilon(2e-3));
      }
    }
  }
}

TEST_CASE("NaN and Inf activations give NaN or Inf results, in their own row only") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const auto& [codes, group] : {std::pair<Codes, int64_t>{Codes::kI8, 20},
                                       {Codes::kI8, 32},
                                       {Codes::kI8, 64},
                                       {Codes::kE4M3, 64},
                                       {Codes::kE4M3, 20},
                                       {Codes::kE4M3, 32},
                                       {Codes::kBf16, 0},
                                       {Codes::kF32, 0}}) {
      for (const auto& [tokens, activations] : {std::pair<int64_t, Activations>{1, Activations::k16Bit},
                                                {3, Activations::k16Bit},
                                                {9, Activations::k16Bit},
                                                {260, Activations::k16Bit},
                                                {260, Activations::k8Bit}}) {
        INFO(std::string(target->name), " ", std::string(codes_name(codes)), " ", tokens);
        std::mt19937 random(9);
        // 64 columns in groups of 20: the last tile ends in the middle of a vector, at the end of the row.
        const Weight weight = random_weight(random, codes, 5, 64, 1, group, false);
        TestLayer layer(weight, *target, activations, tokens + 1);
        std::fill_n(layer.input.row(tokens), 64, INFINITY);  // what an earlier, longer call left behind
        std::vector<float> y(size_t(tokens * 5));
        for (const float first : {1.0f, NAN}) {
          for (int64_t t = 0; t < tokens; ++t) {
            std::fill_n(layer.input.row(t), 64, 0.5f);
            if (t == 0) layer.input.row(t)[7] = first;
            layer.prepare(t, tokens);
          }
          layer.multiply(tokens, 0, 5, y);
          for (size_t i = 0; i < y.size(); ++i) CHECK(std::isfinite(y[i]) == (i >= 5 || std::isfinite(first)));
        }
      }
    }
  }
}

// The sum of all inputs, by which unsigned codes are corrected, is then hundreds of times what is to come out.
TEST_CASE("inputs with a mean") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const int64_t cols : {512, 2048, 9728}) {
      for (const int64_t tokens : {1, 2, 13}) {
        INFO(std::string(target->name), " ", cols, " tokens ", tokens);
        std::mt19937 random(uint32_t(cols + tokens));
        Weight weight = random_weight(random, Codes::kI8, 33, cols, 1, cols, false);
        for (size_t i = 0; i < weight.owned.size(); ++i) weight.owned[i] = std::byte(i % 2 == 0 ? 1 : 0xFF);
        // Rounding such inputs to 16 bits costs 1e-3.
        CHECK(multiply_error(*target, weight, tokens, random, Activations::k16Bit, 100) < 2e-3);
      }
    }
  }
}

TEST_CASE("inputs near zero") {
  for (const IsaTarget* target : kernel_targets()) {
    std::mt19937 random(6);
    const Weight weight = random_weight(random, Codes::kI8, 5, 70, 1, 70, false);
    for (const Activations activations : {Activations::k16Bit, Activations::k8Bit}) {
      for (const auto& [tokens, size] :
           {std::pair<int64_t, float>{1, 5e-35f}, {13, 5e-35f}, {1, 4e-41f}, {13, 1e-29f}}) {
        INFO(std::string(target->name), " ", activations_name(activations), " ", tokens, " ", size);
        TestLayer layer(weight, *target, activations, tokens);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t k = 0; k < 70; ++k) layer.input.row(t)[k] = k % 2 == 0 ? size : -size;
          layer.prepare(t, tokens);
        }
        std::vector<float> y(size_t(tokens * 5), NAN);
        layer.multiply(tokens, 0, 5, y);
        for (const float value : y) CHECK(std::abs(value) <= 70 * 128 * size * 2);
      }
    }
  }
}

TEST_CASE("columns in the order of their groups") {
  for (const IsaTarget* target : kernel_targets()) {
    INFO(std::string(target->name));
    std::mt19937 random(5);
    Weight weight = random_weight(random, Codes::kI8, 24, 64, 1, 16, true);
    weight.ordered = true;
    weight.column_order.resize(64);
    for (int32_t k = 0; k < 64; ++k) weight.column_order[size_t(k)] = k * 37 % 64;
    for (const int64_t tokens : {1, 9}) CHECK(multiply_error(*target, weight, tokens, random) < 1e-4);
  }
}

// A grid of each type that kernels read where it lies, and slices of matrices whose groups do not begin with them.
TEST_CASE("scale grids in their types, and slices of rows") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const int64_t tokens : {1, 3, 20}) {
      std::mt19937 random(static_cast<uint32_t>(tokens));
      for (const ScaleType type : {ScaleType::kF32, ScaleType::kF16, ScaleType::kBf16, ScaleType::kE8M0}) {
        INFO(std::string(target->name), " type ", int(type), " tokens ", tokens);
        Weight weight = random_weight(random, Codes::kI8, 37, 160, 1, 32, false);
        std::vector<std::byte> bytes;
        store_scales(weight, type, bytes);
        CHECK(multiply_error(*target, weight, tokens, random) < 1e-4);
      }
      for (const auto& [group_rows, group_cols] : {std::pair<int64_t, int64_t>{1, 32}, {128, 128}, {300, 256}}) {
        const Weight whole = random_weight(random, Codes::kE4M3, 300, 256, group_rows, group_cols, false);
        const Weight part = slice_rows(whole, 70, 130);
        CHECK(multiply_error(*target, part, tokens, random) < 1e-2);
        std::vector<double> row(256), expected(256);
        dequantize_row(part, 129, row);
        dequantize_row(whole, 199, expected);
        CHECK(row == expected);
      }
    }
  }
}

TEST_CASE("some tokens of FP8, BF16 and INT8, for groups that end anywhere") {
  struct Shape {
    int64_t rows, cols, group_cols;
  };
  const Shape shapes[] = {{70, 96, 32}, {37, 160, 32}, {9, 2880, 32}, {9, 4480, 64}, {40, 600, 192}, {40, 300, 96}};
  for (const IsaTarget* target : kernel_targets()) {
    for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 40, 127}) {
      for (const Codes codes : {Codes::kE4M3, Codes::kBf16, Codes::kI8}) {
        for (const Shape& shape : shapes) {
          INFO(std::string(target->name), " ", codes_name(codes), " ", shape.rows, "x", shape.cols, " groups of ",
               shape.group_cols, " tokens ", tokens);
          std::mt19937 random(uint32_t(shape.cols + tokens));
          const Weight weight = random_weight(random, codes, shape.rows, shape.cols, 1,
                                              codes == Codes::kBf16 ? 0 : shape.group_cols, codes == Codes::kI8);
          CHECK(multiply_error(*target, weight, tokens, random) <
                tolerance(target->kernels[size_t(codes)].at(tokens).form));
        }
      }
    }
  }
}

// More rows than panels pass before the next columns of x, more columns than pass with them, and both with a rest.
TEST_CASE("panels that share columns of x") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const auto& [codes, group_cols] : {std::pair<Codes, int64_t>{Codes::kI8, 64},
                                            {Codes::kI8, 4260},
                                            {Codes::kE4M3, 128},
                                            {Codes::kE4M3, 4260},
                                            {Codes::kBf16, 0}}) {
      for (const Activations activations : {Activations::k16Bit, Activations::k8Bit}) {
        if (codes != Codes::kI8 && activations == Activations::k8Bit) continue;
        INFO(std::string(target->name), " ", codes_name(codes), " groups of ", group_cols);
        std::mt19937 random(17);
        const Weight weight = random_weight(random, codes, 300, 4260, 1, group_cols, codes == Codes::kI8);
        CHECK(multiply_error(*target, weight, 200, random, activations) <
              (activations == Activations::k8Bit ? 3 * tolerance(cpu::Form::kInt8)
                                                 : tolerance(target->kernels[size_t(codes)].at(200).form)));
      }
    }
  }
}

// With kernels for several sequences a token's products must be the same whatever runs beside it, and whatever rows.
TEST_CASE("products of a token do not depend on the others") {
  constexpr int64_t kRows = 150;
  for (const IsaTarget* target : kernel_targets()) {
    for (const Kernels choice : {Kernels::kPrompt, Kernels::kGenerate}) {
      struct Shape {
        Codes codes;
        int64_t cols, group_rows, group_cols;  // no group_rows: blocks of Q8_0
        bool zero_points = false;
      };
      for (const Shape& shape : {Shape{Codes::kI8, 1024, 1, 1024},
                                 {Codes::kI8, 600, 1, 600},
                                 {Codes::kI8, 1024, 1, 128, true},
                                 {Codes::kI8, 1000, 1, 32, true},
                                 {Codes::kI8, 992, 1, 16, true},
                                 {Codes::kI8, 300, 1, 43},
                                 {Codes::kI8, 1024, 0, 32},
                                 {Codes::kI8, 96, 0, 32},
                                 {Codes::kI8, 32, 0, 32},
                                 {Codes::kE4M3, 1024, 1, 128},
                                 {Codes::kE4M3, 1024, 1, 32},
                                 {Codes::kE4M3, 1000, 1, 1000},
                                 {Codes::kE4M3, 1024, 64, 128},
                                 {Codes::kBf16, 600, 1, 0},
                                 {Codes::kF32, 1024, 1, 0}}) {
        INFO(std::string(target->name), " ", std::string(codes_name(shape.codes)), " ", shape.cols, " groups ",
             shape.group_rows, "x", shape.group_cols, " choice ", int(choice));
        std::mt19937 random(3);
        const Weight weight = shape.group_rows == 0
                                  ? random_blocks(random, kRows, shape.cols)
                                  : random_weight(random, shape.codes, kRows, shape.cols, shape.group_rows,
                                                  shape.group_cols, shape.zero_points);
        const auto x = normal(random, size_t(40 * shape.cols));
        std::vector<float> all;
        for (const int64_t tokens : {40, 1, 2, 3, 4, 5, 7, 13, 37}) {
          TestLayer layer(weight, *target, Activations::k16Bit, tokens);
          layer.choice = choice;
          for (int64_t t = 0; t < tokens; ++t) {
            std::copy_n(x.data() + t * shape.cols, shape.cols, layer.input.row(t));
            layer.prepare(t, tokens);
          }
          std::vector<float> y(size_t(tokens * kRows));
          layer.multiply(tokens, 0, kRows, y);
          if (all.empty()) all = y;
          CHECK(std::equal(y.begin(), y.end(), all.begin()));
          std::ranges::fill(y, NAN);
          for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 3}, {3, 4}, {4, 40}, {40, 144}, {144, kRows}})
            layer.multiply(tokens, begin, end, y);
          CHECK(std::equal(y.begin(), y.end(), all.begin()));
        }
        for (const int64_t tokens : {1, 6, 8, 33})
          CHECK(multiply_error(*target, weight, tokens, random, Activations::k16Bit, 0, choice) <
                tolerance(choice == Kernels::kPrompt ? target->kernels[size_t(shape.codes)].gemm.form
                                                     : target->kernels[size_t(shape.codes)].generated().form));
      }
    }
  }
}

}  // namespace
}  // namespace qgen::test
