// The kernels of matrix products, through what chooses among them, against plain double arithmetic.
#include "tests/kernels/layer_shapes.h"

namespace qgen::test {
namespace {

// How a layer is run.
struct Way {
  Activations activations = Activations::k16Bit;
  bool gemm = false;  // with the library, where it takes the layer
  Kernels choice = Kernels::kByCount;
};

using test::lay_out;  // which the one below calls
DeviceMemory lay_out(gpu::Device& device, LinearDispatch& runner, int tokens, int64_t widest, int64_t rows, Way way) {
  const int64_t most = round_up(tokens, kLibraryGemmTokens), floats = most * round_up(rows, kPad);
  DeviceMemory memory =
      lay_out(device, runner, {tokens, widest, most * round_up(widest, kPad), floats, floats, false}, way.activations);
  if (way.gemm) runner.start(device);
  return memory;
}

// Of y = W norm(x) + bias through the kernel that the runner chooses.
double layer_error(Layers& layers, int tokens, Way way, bool add, bool with_norm, std::mt19937& random,
                   std::string* library = nullptr) {
  const Weight& weight = layers.weight(0);
  Rows x(random, tokens, weight.cols, 3), y(random, round_up(tokens, kLibraryGemmTokens), weight.rows, 1);
  const Rows before = y;
  const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values);
  LinearDispatch runner;
  const DeviceMemory work = lay_out(layers.device(), runner, tokens, weight.cols, weight.rows, way);
  LinearInput input;
  input.x = x_there.data();
  input.stride = x.stride;
  input.cols = int(weight.cols);
  if (with_norm) input.norm = layers.device_norm(1e-5);
  input.norm_peak = layers.norm_peak();
  const DeviceProjection projection{layers.matrix(0), {}, {.add = add}, y_there.data(), y.stride};
  runner.run(layers.stream(), {&projection, 1}, input, tokens, way.choice);
  y.values = y_there.read();
  if (library != nullptr) *library = runner.library();
  Difference difference;
  // Of many products some: doubles take their time.
  const int64_t compared = std::clamp<int64_t>(100'000'000 / (weight.rows * weight.cols), 4, 200);
  for (int64_t t = 0; t < tokens; t += 1 + tokens / compared) {
    std::vector<double> row(x.row(t), x.row(t) + x.cols);
    if (with_norm) row = normed_row(x, t, layers.norm(), 1e-5);
    const std::vector<double> expected = product(weight, row);
    for (int64_t n = 0; n < weight.rows; ++n) {
      difference.add(y.at(t, n), expected[size_t(n)] + layers.bias(0)[size_t(n)] + (add ? before.at(t, n) : 0));
    }
  }
  return difference.error();
}

TEST_CASE("kernels: smoke, products of one, a few and many tokens") {
  for (const Shape& s : {Shape{Codes::kE4M3, 150, 320, 128, 128},
                         {Codes::kI8, 50, 128, 1, 128},
                         {Codes::kI8, 18, 160, 1, 32},
                         {Codes::kE5M2, 33, 128, 1, 64},
                         {Codes::kBf16, 40, 96, 1, 0},
                         {Codes::kF32, 9, 40, 1, 0}}) {
    std::mt19937 random(4);
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, s.codes, s.rows, s.cols, s.group_rows, s.group_cols, s.zero_points));
    Layers layers(std::move(weights));
    for (const int tokens : {1, 8, 40, library_gemm_limits().fewest_tokens + 16}) {
      INFO(text(s, tokens));
      const bool few = tokens <= LinearDispatch::kMostGemvTokens;
      const double tolerance = s.codes == Codes::kBf16 ? few ? 1.5e-5 : 4e-3 : few ? 2e-6 : 5e-4;
      CHECK(layer_error(layers, tokens, {Activations::k16Bit, !few}, false, true, random) < tolerance);
    }
  }
}

TEST_CASE("kernels: layers of every code and grid, for one, a few and many tokens") {
  for (const Shape& s : shapes()) {
    std::mt19937 random(uint32_t(s.rows * 1000 + s.cols));
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, s.codes, s.rows, s.cols, s.group_rows, s.group_cols, s.zero_points));
    Layers layers(std::move(weights));
    for (const int tokens : {1, 2, 3, 4, 5, 8, 11, 45, 130}) {
      if (tokens > 40 && s.cols > 1000) continue;
      INFO(text(s, tokens));
      const bool many = tokens > LinearDispatch::kMostGemvTokens;
      // Inputs of many tokens have 11 bits, 8 with weights in BF16.
      const bool rounded = many && grid_kind(layers.matrix(0)) != GridKind::kAny;
      // Inputs of a few have 22 bits, 16 with weights in BF16. A warp adds up every 16th product of 16 columns, and
      // tensor cores cut off each sum, by 2^-23 of it at most, always toward zero.
      const bool bf16 = s.codes == Codes::kBf16;
      const double cut_off = double(s.cols) / (kInputSlices * 16) * 0x1p-23;
      const double tolerance = rounded         ? (bf16            ? 4e-3
                                                  : s.zero_points ? 1.5e-3
                                                                  : 5e-4)
                               : bf16          ? 1.5e-5
                               : s.zero_points ? 3e-6
                                               : 1e-6 + cut_off;
      CHECK(layer_error(layers, tokens, {}, tokens % 2 == 0, tokens != 4, random) < tolerance);
      if (tokens < 100) CHECK(layer_error(layers, tokens, {Activations::kF32}, tokens % 2 == 1, true, random) < 3e-6);
    }
  }
}

TEST_CASE("kernels: scale groups down the columns") {
  struct Periodic {
    int64_t rows, cols, period;
    ScaleType type;
  };
  for (const Periodic& s : {Periodic{40, 100, 10, ScaleType::kF32},
                            {36, 20, 36, ScaleType::kF16},
                            {60, 1040, 1, ScaleType::kBf16},
                            {72, 2500, 24, ScaleType::kF16},
                            {3, 7, 1, ScaleType::kF32}}) {
    std::mt19937 random(uint32_t(s.rows * 1000 + s.cols));
    const Weight whole = random_column_groups(random, s.rows, s.cols, s.period, s.type);
    for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, s.rows}, {s.rows / 4, s.rows / 2}}) {
      std::vector<Weight> weights;
      weights.push_back(slice_rows(whole, first, rows));
      Layers layers(std::move(weights));
      for (const int tokens : {1, 5, 11, library_gemm_limits().fewest_tokens + 16}) {
        INFO(rows, "x", s.cols, " period ", s.period, ", ", tokens, " tokens");
        const bool many = tokens > LinearDispatch::kMostGemvTokens;
        CHECK(layer_error(layers, tokens, {Activations::k16Bit, many}, tokens % 2 == 0, true, random) <
              (many ? 1.5e-3 : 5e-6));
        if (!many) CHECK(layer_error(layers, tokens, {Activations::kF32}, true, false, random) < 5e-6);
      }
    }
  }
}

TEST_CASE("kernels: shifted codes with minimums") {
  for (const Shape& s : {Shape{Codes::kI8, 18, 160, 1, 32},
                         {Codes::kI8, 34, 576, 1, 64},
                         {Codes::kI8, 18, 96, 1, 20},
                         {Codes::kI8, 21, 112, 1, 16},
                         {Codes::kI8, 35, 100, 35, 100}}) {
    std::mt19937 random(uint32_t(s.rows * 1000 + s.cols));
    std::vector<Weight> weights;
    weights.push_back(random_affine_weight(random, s.rows, s.cols, s.group_rows, s.group_cols));
    Layers layers(std::move(weights));
    CHECK((grid_kind(layers.matrix(0)) != GridKind::kAny) == (s.group_cols == 32 || s.group_cols == 64));
    for (const int tokens : {1, 5, 11, 40, library_gemm_limits().fewest_tokens + 16}) {
      INFO(text(s, tokens));
      const bool many = tokens > LinearDispatch::kMostGemvTokens;
      CHECK(layer_error(layers, tokens, {Activations::k16Bit, many && tokens != 40}, tokens % 2 == 0, true, random) <
            (many ? 1.5e-3 : 3e-6));
      if (!many) CHECK(layer_error(layers, tokens, {Activations::kF32}, false, true, random) < 3e-6);
    }
  }
}

TEST_CASE("kernels: scales and minimums of two levels") {
  for (const int64_t group : {16, 32}) {
    for (const bool minimums : {false, true}) {
      std::mt19937 random(uint32_t(group) + minimums);
      std::vector<Weight> weights;
      weights.push_back(random_two_levels(random, 35, 512, group, minimums));
      Layers layers(std::move(weights));
      // llama.cpp's types have groups of 32 with minimums alone.
      CHECK((grid_kind(layers.matrix(0)) != GridKind::kAny) == (group == 16 || minimums));
      for (const int tokens : {1, 5, 11, 40, library_gemm_limits().fewest_tokens + 16}) {
        INFO("groups of ", group, " minimums ", minimums, " ", tokens, " tokens");
        const bool many = tokens > LinearDispatch::kMostGemvTokens;
        CHECK(layer_error(layers, tokens, {Activations::k16Bit, many && tokens != 40}, tokens % 2 == 0, true, random) <
              (many ? 1.5e-3 : 3e-6));
        if (!many) CHECK(layer_error(layers, tokens, {Activations::kF32}, false, true, random) < 3e-6);
      }
    }
  }
}

TEST_CASE("kernels: blocks of Q8_0") {
  for (const auto& [rows, cols] : {std::array<int64_t, 2>{5, 32}, {37, 96}, {64, 2112}}) {
    std::mt19937 random(uint32_t(rows + cols));
    std::vector<Weight> weights;
    weights.push_back(random_blocks(random, rows, cols));
    Layers layers(std::move(weights));
    for (const int tokens : {1, 8, 20, library_gemm_limits().fewest_tokens + 16}) {
      INFO(rows, "x", cols, " ", tokens, " tokens");
      const Way way{Activations::k16Bit, tokens > 20};
      CHECK(layer_error(layers, tokens, way, false, true, random) < (tokens > 16 ? 5e-4 : 1e-6));
    }
  }
}

TEST_CASE("kernels: columns in the order of their groups") {
  std::mt19937 random(3);
  for (const int64_t group : {16, 32, 64}) {
    Weight weight = random_weight(random, Codes::kI8, 24, 128, 1, group, true);
    weight.ordered = true;
    weight.column_order.resize(128);
    for (int i = 0; i < 128; ++i) weight.column_order[size_t(i)] = i * 37 % 128;
    std::vector<Weight> weights;
    weights.push_back(std::move(weight));
    Layers layers(std::move(weights));
    for (const int tokens : {1, 6, 20}) CHECK(layer_error(layers, tokens, {}, true, true, random) < 3e-6);
  }
}

TEST_CASE("kernels: layers of many tokens through the library of dense products") {
  if (library_is_missing()) return;
  std::vector<Shape> all = shapes();
  all.push_back({Codes::kE4M3, 144, 640, 128, 128});
  if (library_gemm_limits().copy_bytes > (1 << 20))
    all.push_back({Codes::kI8, 4200, 4200, 1, 4200});  // in several pieces
  for (const Shape& s : all) {
    std::mt19937 random(uint32_t(s.rows * 100 + s.cols));
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, s.codes, s.rows, s.cols, s.group_rows, s.group_cols, s.zero_points));
    if (s.group_cols == 32 && s.zero_points) {
      weights[0].ordered = true;
      weights[0].column_order.resize(size_t(s.cols));
      for (int64_t i = 0; i < s.cols; ++i) weights[0].column_order[size_t(i)] = int32_t(i * 37 % s.cols);
    }
    Layers layers(std::move(weights));
    const bool bf16 = s.codes == Codes::kBf16;
    for (const int more : {16, 77}) {
      const int tokens = library_gemm_limits().fewest_tokens + more;
      if (more == 77 && s.rows * s.cols > 10000) continue;
      for (const bool add : {false, true}) {
        for (const bool norm : {false, true}) {
          INFO(text(s, tokens), std::string(add ? " added" : ""), std::string(norm ? " normalized" : ""));
          // Where zero points are far from the codes, what is left after them is small, and the rounding not.
          const double tolerance = bf16 ? 4e-3 : s.zero_points ? 1.5e-3 : 5e-4;
          std::string library;
          CHECK(layer_error(layers, tokens, {Activations::k16Bit, true}, add, norm, random, &library) < tolerance);
          CHECK((!library.empty() || s.codes == Codes::kF32));
        }
      }
    }
  }
}

TEST_CASE("kernels: zero points that are no integers, through the library of dense products") {
  if (library_is_missing()) return;
  std::mt19937 random(12);
  for (const int64_t group : {64, 20}) {
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, Codes::kI8, 34, 320, 1, group, false));
    weights[0].zero_point = weights[0].scale;
    std::vector<float> zeros(size_t(weights[0].scale.rows * weights[0].scale.cols));
    for (float& value : zeros) value = std::uniform_real_distribution<float>(-8, 8)(random);
    set_values(weights[0].zero_point, std::move(zeros));
    Layers layers(std::move(weights));
    CHECK(grid_kind(layers.matrix(0)) == GridKind::kAny);
    const int tokens = library_gemm_limits().fewest_tokens + 16;
    INFO("groups of ", group);
    CHECK(layer_error(layers, tokens, {Activations::k16Bit, true}, false, true, random) < 1.5e-3);
  }
}

// Products of one weight and many tokens, whose inputs are of different sizes, added to a row by the library, which may
// fail after `failing` of them. `more_room`: memory that they need then.
void check_added_by_library(Codes codes, bool norm, int failing, const std::function<void(LinearSizes&)>& more_room) {
  std::mt19937 random(11);
  constexpr int64_t kRows = 208, kCols = 128;
  std::vector<Weight> weights;
  const bool copied = code_bytes(codes) == 1;
  weights.push_back(random_weight(random, codes, kRows, kCols, copied ? 128 : 1, copied ? 128 : 0, false));
  Layers layers(std::move(weights));
  const int tokens = library_gemm_limits().fewest_tokens + 5;
  Rows x(random, tokens, kCols, 3);
  Rows y(random, round_up(tokens, kLibraryGemmTokens), kRows, 1);
  // Inputs beyond the range of F16 and below its subnormal numbers, added to rows of the product's size.
  const auto scale_row = [](Rows& rows, int64_t t, float by) {
    for (int64_t c = 0; c < rows.cols; ++c) rows.values[size_t(t * rows.stride + c)] *= by;
  };
  for (const auto& [token, by] : {std::pair(2, 1e6f), std::pair(5, 1e-6f), std::pair(6, 1e-12f), std::pair(7, 0.0f),
                                  std::pair(9, 3e-3f), std::pair(10, 1e4f), std::pair(11, 1e30f)}) {
    if (norm && by == 1e30f) continue;  // the sum of squares overflows F32
    scale_row(x, token, by);
    if (!norm && by != 0 && by < 1e30f) scale_row(y, token, by);
  }
  const Rows before = y;
  const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values);
  LinearSizes sizes;
  sizes.tokens = tokens;
  sizes.widest = kCols;
  more_room(sizes);
  LinearDispatch runner;
  const DeviceMemory work = lay_out(layers.device(), runner, sizes, Activations::k16Bit);
  runner.start(layers.device());
  DeviceProjection projection{layers.matrix(0), {}, {.add = true}, y_there.data(), y.stride};
  projection.weight.bias = nullptr;
  LinearInput input{x_there.data(), x.stride, int(kCols), true, {}, 0};
  if (norm) {
    input.norm = layers.device_norm(1e-5);
    input.norm_peak = layers.norm_peak();
  }
  int pieces = 1;
#if defined(QGEN_SIMT)
  if (copied) pieces = 4;  // in which weights are written out
  struct Failing {
    explicit Failing(int products) { fail_library_after(products); }
    ~Failing() { fail_library_after(-1); }
  } library(failing);
#endif
  runner.run(layers.stream(), {&projection, 1}, input, tokens);
  if (failing < 0) CHECK(runner.library_products() == pieces);
  y.values = y_there.read();
  for (int64_t t = 0; t < tokens; ++t) {
    Difference difference;
    const std::vector<double> row =
        norm ? normed_row(x, t, layers.norm(), 1e-5) : std::vector<double>(x.row(t), x.row(t) + x.cols);
    const std::vector<double> expected = product(layers.weight(0), row);
    for (int64_t n = 0; n < kRows; ++n) difference.add(y.at(t, n), before.at(t, n) + expected[size_t(n)]);
    INFO("token ", t);
    CHECK(difference.error() < (codes == Codes::kBf16 ? 4e-3 : 5e-4));
  }
}

TEST_CASE("kernels: products of many tokens are added to a row by the library") {
  if (library_is_missing()) return;
  for (const Codes codes : {Codes::kBf16, Codes::kF16, Codes::kE4M3}) {
    for (const bool norm : {false, true}) {
      INFO("codes ", int(codes), norm ? ", normalized" : "");
      check_added_by_library(codes, norm, -1, [](LinearSizes&) {});  // without room for a product beside the row
#if defined(QGEN_SIMT)
      // What the library leaves is done by other kernels.
      for (const int failing : {0, 1, 3}) {
        INFO("fails after ", failing);
        check_added_by_library(codes, norm, failing, [](LinearSizes& sizes) {
          sizes.normalized = round_up(sizes.tokens, kLibraryGemmTokens) * sizes.widest;
        });
      }
#endif
    }
  }
}

TEST_CASE("kernels: queries, keys and values of many tokens are one product of the library where they find room") {
  if (library_is_missing()) return;
  const int64_t cols = 128;
  const auto room = std::max(library_gemm_limits().copy_bytes / 2 / cols, library_gemm_limits().copy_rows);
  for (const bool fits : {true, false}) {
    constexpr int64_t kMany = 1000;
    if (!fits && room > kMany) continue;  // on a GPU
    // There is no room beside the first alone.
    const std::vector<int64_t> rows = {fits ? std::min(room, kMany) - 40 : room, 16, 24};
    std::mt19937 random(5);
    std::vector<Weight> weights;
    for (size_t i = 0; i < rows.size(); ++i) {
      weights.push_back(random_weight(random, Codes::kE4M3, rows[i], cols, 128, 128, false));
      weights.back().scale.factor *= double(i + 1) * 3;  // another range of F16 each
    }
    Layers layers(std::move(weights));
    const int tokens = library_gemm_limits().fewest_tokens + 5;
    Rows x(random, tokens, cols, 3), y(random, round_up(tokens, kLibraryGemmTokens), rows[0] + 40, 1), apart = y;
    const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values),
        apart_there(layers.device(), apart.values);
    LinearInput input;
    input.x = x_there.data();
    input.stride = x.stride;
    input.cols = int(cols);
    input.norm = layers.device_norm(1e-5);
    input.norm_peak = layers.norm_peak();
    LinearDispatch runner;
    const DeviceMemory work = lay_out(layers.device(), runner, tokens, cols, rows[0] + 40, {Activations::k16Bit, true});
    const auto projections = [&](float* to) {
      std::vector<DeviceProjection> all;
      for (size_t i = 0; i < rows.size(); ++i) {
        all.push_back({layers.matrix(int32_t(i)), {}, {}, to, y.stride});
        all.back().weight.bias = nullptr;
        to += rows[i];
      }
      return all;
    };
    runner.run(layers.stream(), projections(y_there.data()), input, tokens, Kernels::kByCount);
    CHECK(runner.library_products() == (fits ? 1 : 2));
    for (const DeviceProjection& p : projections(apart_there.data()))
      runner.run(layers.stream(), {&p, 1}, input, tokens, Kernels::kByCount);
    CHECK(runner.library_products() == (fits ? 4 : 5));
    y.values = y_there.read();
    apart.values = apart_there.read();
    Difference difference;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t n = 0; n < rows[0] + 40; ++n) difference.add(y.at(t, n), apart.at(t, n));
    }
    CHECK(difference.error() < 1e-6);
  }
}

TEST_CASE("kernels: inputs of 8 bits, where weights allow them") {
  if (library_is_missing()) return;
  const std::vector<std::pair<Shape, bool>> cases = {
      {{Codes::kI8, 52, 128, 1, 128}, true},        {{Codes::kI8, 36, 100, 36, 100}, true},
      {{Codes::kE4M3, 32, 64, 32, 64}, true},       {{Codes::kE4M3, 32, 64, 1, 64}, true},
      {{Codes::kE4M3, 144, 640, 128, 128}, true},   {{Codes::kE4M3, 144, 600, 128, 128}, false},
      {{Codes::kI8, 36, 100, 1, 100, true}, false}, {{Codes::kI8, 36, 128, 1, 32}, false},
      {{Codes::kE4M3, 128, 320, 64, 128}, false},   {{Codes::kE5M2, 32, 128, 1, 128}, false},
      {{Codes::kBf16, 40, 96, 1, 0}, false}};
  for (const auto& [s, may] : cases) {
    std::mt19937 random(uint32_t(s.rows * 100 + s.cols));
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, s.codes, s.rows, s.cols, s.group_rows, s.group_cols, s.zero_points));
    Layers layers(std::move(weights));
    LinearDispatch runner;
    const DeviceMemory work = lay_out(layers.device(), runner, 48, s.cols, s.rows, {Activations::k8Bit, true});
    const bool takes = runner.takes_8_bits(layers.matrix(0));
#if defined(QGEN_SIMT)
    CHECK(takes == may);
#else
    // Older GPUs have no products of 8-bit floats, and none but those of compute capability 9.0 has blocks.
    CHECK((takes == may || (may && s.codes == Codes::kE4M3)));
#endif
    for (const int tokens : {17, 40}) {
      for (const bool add : {false, true}) {
        INFO(text(s, tokens), std::string(add ? " added" : ""));
        const double error = layer_error(layers, tokens, {Activations::k8Bit, true}, add, tokens != 17, random);
        // An integer in 127 steps, a float with 3 bits of fraction; else as with 16 bits.
        CHECK(error < (!takes ? 4e-3 : s.codes == Codes::kI8 ? 2e-2 : 4e-2));
        if (takes) CHECK(error > 2e-3);
      }
    }
  }
}

TEST_CASE("kernels: weights with NaN codes spoil their own rows and no others") {
  for (const Shape& s :
       {Shape{Codes::kE4M3, 40, 320, 128, 128}, {Codes::kE4M3, 24, 64, 1, 64}, {Codes::kE4M3, 24, 64, 1, 32}}) {
    std::mt19937 random(uint32_t(s.cols));
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, s.codes, s.rows, s.cols, s.group_rows, s.group_cols, s.zero_points));
    weights[0].owned[size_t(5 * s.cols + 17)] = std::byte{0x7F};
    weights[0].owned[size_t((s.rows - 1) * s.cols + s.cols - 1)] = std::byte{0xFF};
    Layers layers(std::move(weights));
    CHECK(layers.matrix(0).nan_codes);
    for (const int tokens : {1, 8, 20, library_gemm_limits().fewest_tokens + 16}) {
      for (const Activations activations : {Activations::k16Bit, Activations::k8Bit}) {
        INFO(text(s, tokens), std::string(" "), std::string(activations_name(activations)));
        Rows x(random, tokens, s.cols, 1), y(random, round_up(tokens, kLibraryGemmTokens), s.rows, 1);
        const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values);
        LinearDispatch runner;
        const DeviceMemory work = lay_out(layers.device(), runner, tokens, s.cols, s.cols, {activations, true});
        LinearInput input;
        input.x = x_there.data();
        input.stride = x.stride;
        input.cols = int(s.cols);
        const DeviceProjection projection{layers.matrix(0), {}, {}, y_there.data(), y.stride};
        runner.run(layers.stream(), {&projection, 1}, input, tokens);
        y.values = y_there.read();
        Difference difference;
        for (int64_t t = 0; t < tokens; t += 1 + tokens / 20) {
          const std::vector<double> expected = product(layers.weight(0), {x.row(t), x.row(t) + x.cols});
          for (int64_t n = 0; n < s.rows; ++n) {
            const bool damaged = n == 5 || n == s.rows - 1;
            CHECK(std::isnan(y.at(t, n)) == damaged);
            if (!damaged) difference.add(y.at(t, n), expected[size_t(n)] + layers.bias(0)[size_t(n)]);
          }
        }
        CHECK(difference.error() < 1e-6);
      }
    }
  }
}

TEST_CASE("kernels: several layers of one input, gated ones, and any order of threads") {
  std::mt19937 random(5);
  std::vector<Weight> weights;
  weights.push_back(random_weight(random, Codes::kE4M3, 40, 200, 128, 128, false));
  weights.push_back(random_weight(random, Codes::kE4M3, 24, 200, 128, 128, false));
  weights.push_back(random_weight(random, Codes::kE4M3, 24, 200, 128, 128, false));
  weights.push_back(random_weight(random, Codes::kBf16, 24, 200, 1, 0, false));
  Layers layers(std::move(weights));
  for (const int tokens : {1, 5, 20, library_gemm_limits().fewest_tokens + 16}) {
    std::vector<std::vector<float>> found;
    for (const Order order : kOrders) {
      set_order(order);
      std::mt19937 same(9);
      Rows x(same, tokens, 200, 1), y(same, tokens, 40 + 24 + 24 + 24, 1), gate(same, tokens, 24, 1);
      const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values),
          gate_there(layers.device(), gate.values);
      LinearDispatch runner;
      const DeviceMemory work = lay_out(layers.device(), runner, tokens, 200, 200, {Activations::k16Bit, tokens > 20});
      const LinearInput input{x_there.data(), x.stride, 200, true, layers.device_norm(1e-5), layers.norm_peak()};
      std::vector<DeviceProjection> projections;
      int64_t first = 0;
      for (size_t i = 0; i < 4; ++i) {
        projections.push_back({layers.matrix(i), {}, {}, y_there.data() + first, y.stride});
        first += layers.weight(i).rows;
      }
      projections.push_back(
          {layers.matrix(2), layers.matrix(1), {.activation = Activation::kSilu}, gate_there.data(), gate.stride});
      runner.run(layers.stream(), projections, input, tokens);
      y.values = y_there.read();
      gate.values = gate_there.read();
      Difference difference, gated_difference;
      for (int64_t t = 0; t < tokens; ++t) {
        const std::vector<double> row = normed_row(x, t, layers.norm(), 1e-5);
        int64_t at = 0;
        std::vector<std::vector<double>> made;
        for (size_t i = 0; i < 4; ++i) {
          made.push_back(product(layers.weight(i), row));
          for (int64_t n = 0; n < layers.weight(i).rows; ++n, ++at) {
            made[i][size_t(n)] += layers.bias(i)[size_t(n)];
            difference.add(y.at(t, at), made[i][size_t(n)]);
          }
        }
        for (size_t n = 0; n < 24; ++n) {
          gated_difference.add(gate.at(t, int64_t(n)), made[1][n] / (1 + std::exp(-made[1][n])) * made[2][n]);
        }
      }
      const bool many = tokens > LinearDispatch::kMostGemvTokens;
      CHECK(difference.error() < (many ? 3e-3 : 1e-5));
      CHECK(gated_difference.error() < (many ? 1e-3 : 2e-6));
      found.push_back(y.values);
      found.back().insert(found.back().end(), gate.values.begin(), gate.values.end());
    }
    set_order(Order::kAscending);
    CHECK(found[0] == found[1]);
    CHECK(found[0] == found[2]);
  }
}

TEST_CASE("kernels: what a gate of many tokens asks for is done where the next product's inputs are rounded") {
  if (library_is_missing()) return;
  struct Case {
    Codes codes;
    // Of the gate and of what it gates: 97 are not whole pieces of four, 1100 and 12296 are more than a thread
    // keeps of them.
    int64_t rows;
    float scale;  // of the result
    int tokens;
    bool is_left;
    Activation activation = Activation::kSilu;
  };
  const int many = library_gemm_limits().fewest_tokens + 5;
  for (const Case& c :
       {Case{Codes::kE4M3, 96, 1, many, true}, Case{Codes::kE4M3, 97, 1, many, true},
        Case{Codes::kBf16, 96, 1, many, true}, Case{Codes::kBf16, 97, 1, many, true},
        Case{Codes::kE4M3, 12296, 1, many, true}, Case{Codes::kE4M3, 1100, 1, many, true, Activation::kGeluTanh},
        Case{Codes::kBf16, 96, 1, many, true, Activation::kGelu}, Case{Codes::kE4M3, 96, 3, many, false},
        Case{Codes::kE4M3, 96, 1, 5, false}}) {
    INFO(c.rows, " rows, ", c.tokens, " tokens, codes ", int(c.codes));
    const int64_t cols = 128, group = c.codes == Codes::kE4M3 ? 128 : 0;
    std::mt19937 random(5);
    std::vector<Weight> weights;
    for (const auto& [rows, of] : {std::pair(c.rows, cols), std::pair(c.rows, cols), std::pair(int64_t{40}, c.rows)})
      weights.push_back(random_weight(random, c.codes, rows, of, group > 0 ? group : 1, group, false));
    Layers layers(std::move(weights));
    const auto matrix = [&](int32_t i) {
      Matrix m = layers.matrix(i);
      m.bias = nullptr;
      return m;
    };
    const int64_t most = round_up(c.tokens, kLibraryGemmTokens);
    const Rows x(random, c.tokens, cols, 3);
    const Buffer<float> x_there(layers.device(), x.values);
    LinearInput input{x_there.data(), x.stride, int(cols), true, layers.device_norm(1e-5), layers.norm_peak()};
    // The result of the first product, and that of the one behind it.
    const auto run = [&](bool leave_gate) {
      Rows inner(random, most, c.rows, 0), outer(random, most, 40, 1);
      std::fill(outer.values.begin(), outer.values.end(), 0.5f);
      const Buffer<float> inner_there(layers.device(), inner.values), outer_there(layers.device(), outer.values);
      LinearDispatch runner;
      const int64_t widest = std::max(cols, c.rows);
      const DeviceMemory work = lay_out(layers.device(), runner, c.tokens, widest, widest, {Activations::k16Bit, true});
      const DeviceProjection gated{
          matrix(1), matrix(0), {.activation = c.activation, .scale = c.scale}, inner_there.data(), inner.stride};
      const DeviceProjection next{matrix(2), {}, {.add = true}, outer_there.data(), outer.stride};
      const LinearInput between{inner_there.data(), inner.stride, int(c.rows), true, {}, 0};
      CHECK(runner.takes_gate({&next, 1}, between, c.tokens, Kernels::kByCount) == (c.tokens == many));
      runner.run(layers.stream(), {&gated, 1}, input, c.tokens, Kernels::kByCount, {}, leave_gate);
      const std::vector<float> made = inner_there.read();
      runner.run(layers.stream(), {&next, 1}, between, c.tokens);
      return std::pair(made, outer_there.read());
    };
    const auto apart = run(false), left = run(true);
    CHECK((left.first != apart.first) == c.is_left);
    CHECK(left.second == apart.second);
  }
}

TEST_CASE("kernels: products times the sigmoid of a token's gate, added to a row") {
  std::mt19937 random(6);
  std::vector<Weight> weights;
  weights.push_back(random_weight(random, Codes::kE4M3, 40, 200, 128, 128, false));
  weights.push_back(random_weight(random, Codes::kI8, 100, 72, 1, 72, false));
  Layers layers(std::move(weights));
  for (const size_t layer : {size_t(0), size_t(1)}) {
    const Weight& weight = layers.weight(layer);
    for (const int tokens : {1, 2, 7}) {
      Rows x(random, tokens, weight.cols, 1), y(random, tokens, weight.rows, 1), gate(random, tokens, 3, 1);
      const Rows before = y;
      const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values),
          gate_there(layers.device(), gate.values);
      LinearDispatch runner;
      const DeviceMemory work = lay_out(layers.device(), runner, tokens, weight.cols, weight.rows, {});
      LinearInput input;
      input.x = x_there.data();
      input.stride = x.stride;
      input.cols = int(weight.cols);
      DeviceProjection projection{layers.matrix(layer), {}, {.add = true}, y_there.data(), y.stride};
      // A bias would have to be multiplied as well.
      CHECK(!runner.takes_token_gate(projection, input, tokens, Kernels::kByCount));
      projection.weight.bias = nullptr;
      CHECK(!runner.takes_token_gate(projection, input, kGemvTokens + 1, Kernels::kByCount));
      REQUIRE(runner.takes_token_gate(projection, input, tokens, Kernels::kByCount));
      input.token_gate = gate_there.data() + 1;
      input.token_gate_stride = gate.stride;
      runner.run(layers.stream(), {&projection, 1}, input, tokens);
      y.values = y_there.read();
      Difference difference;
      for (int64_t t = 0; t < tokens; ++t) {
        const std::vector<double> expected = product(weight, {x.row(t), x.row(t) + x.cols});
        const double factor = 1 / (1 + std::exp(-double(gate.at(t, 1))));
        for (int64_t n = 0; n < weight.rows; ++n)
          difference.add(y.at(t, n), before.at(t, n) + factor * expected[size_t(n)]);
      }
      INFO(tokens);
      CHECK(difference.error() < 2e-6);
    }
  }
}

TEST_CASE("kernels: products of two calls side by side, where all of both are single launches") {
  std::mt19937 random(7);
  std::vector<Weight> weights;
  weights.push_back(random_weight(random, Codes::kE4M3, 40, 200, 128, 128, false));
  weights.push_back(random_weight(random, Codes::kBf16, 24, 200, 1, 0, false));
  weights.push_back(random_weight(random, Codes::kF32, 24, 200, 1, 0, false));
  Layers layers(std::move(weights));
  constexpr int kTokens = 3;
  Rows x(random, kTokens, 200, 1), y(random, kTokens, 64, 1);
  const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values);
  LinearDispatch runner;
  const DeviceMemory work = lay_out(layers.device(), runner, 20, 200, 200, {});
  LinearInput input{x_there.data(), x.stride, 200, true, layers.device_norm(1e-5), layers.norm_peak(), nullptr, 0};
  const DeviceProjection one{layers.matrix(0), {}, {}, y_there.data(), y.stride},
      other{layers.matrix(1), {}, {}, y_there.data() + 40, y.stride}, plain{layers.matrix(2), {}, {}, nullptr, 0};
  const auto can = [&](const DeviceProjection& p, const LinearInput& in, int tokens) {
    return runner.can_run_beside({&p, 1}, in, tokens, Kernels::kByCount);
  };
  CHECK(can(one, input, kTokens));
  CHECK(can(other, input, kGemvTokens));
  CHECK(!can(other, input, kGemvTokens + 1));
  CHECK(!can(plain, input, kTokens));  // no matrix products
  LinearInput unaligned = input;
  ++unaligned.x;
  CHECK(!can(one, unaligned, kTokens));
  LinearInput other_norm = input;
  other_norm.norm.kind = Norm::Kind::kLayer;
  CHECK(!can(one, other_norm, kTokens));
  DeviceProjection adds[] = {one, other};
  for (DeviceProjection& p : adds) p.epilogue.add = true;
  CHECK(can(adds[0], input, kTokens));
  CHECK(!runner.can_run_beside(adds, input, kTokens, Kernels::kByCount));
  const auto run = [&](Beside first, Beside second) {
    runner.run(layers.stream(), {&one, 1}, input, kTokens, Kernels::kByCount, first);
    runner.run(layers.stream(), {&other, 1}, input, kTokens, Kernels::kByCount, second);
    return y_there.read();
  };
  const std::vector<float> apart = run({}, {});
  copy_to_device(layers.stream(), y_there.data(), y.values.data(), y.values.size() * sizeof(float));
  CHECK(run({false, true}, {true, false}) == apart);
}

}  // namespace
}  // namespace qgen::test
