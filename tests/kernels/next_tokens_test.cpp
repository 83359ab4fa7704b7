// Products of the next tokens of one or many sequences: a token comes out the same in whichever company, and beyond the
// range of F16.
#include "tests/kernels/layer_shapes.h"

namespace qgen::test {
namespace {

// A weight, and what to call it.
using Named = std::pair<std::string, Weight>;

// Weights of every kind, some with rows of several slabs of gemv(), which end elsewhere for each number of tokens.
std::vector<Named> weights_of_every_kind(std::mt19937& random) {
  std::vector<Shape> all = shapes();
  for (const Shape& wide : {Shape{Codes::kI8, 8, 4200, 1, 32}, Shape{Codes::kE4M3, 8, 4200, 1, 32},
                            Shape{Codes::kBf16, 40, 4200, 1, 0}, Shape{Codes::kI8, 8, 8300, 1, 64},
                            // Several whole tiles of a block, each in several rounds of its ring.
                            Shape{Codes::kE4M3, 168, 4352, 128, 128}, Shape{Codes::kI8, 130, 4224, 1, 64, true},
                            // Of three tokens the sums of two tiles have room at once, of four those of one.
                            Shape{Codes::kE4M3, 168, 1024, 128, 128}, Shape{Codes::kBf16, 130, 1000, 1, 0}})
    all.push_back(wide);
  std::vector<Named> named;
  for (const Shape& s : all) {
    named.emplace_back(text(s, 8),
                       random_weight(random, s.codes, s.rows, s.cols, s.group_rows, s.group_cols, s.zero_points));
  }
  for (const int64_t group : {32, 64})
    named.emplace_back("minimums of " + std::to_string(group), random_affine_weight(random, 20, 4224, 1, group));
  for (const int64_t group : {16, 32})
    named.emplace_back("two levels of " + std::to_string(group), random_two_levels(random, 20, 4608, group, true));
  named.emplace_back("two levels without minimums", random_two_levels(random, 20, 4608, 16, false));
  named.emplace_back("two levels of 32, several tiles of a block", random_two_levels(random, 84, 4352, 32, true));
  return named;
}

// What the next tokens of many sequences come out as, from token `first` on, together or kGemvTokens at a time.
// `projections` (y): those that write to rows of y in the memory of the device.
template <typename Projections>
std::vector<float> next_tokens(Layers& layers, const Rows& x, const Rows& y, int tokens, bool together,
                               const DeviceNorm& norm, const Projections& projections, int first = 0) {
  const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values);
  LinearDispatch runner;
  LinearSizes sizes;
  sizes.tokens = x.rows;
  sizes.widest = x.cols;
  sizes.many_sequences = together;
  const DeviceMemory work = lay_out(layers.device(), runner, sizes, Activations::k16Bit);
  const LinearInput input{x_there.data() + first * x.stride, x.stride, int(x.cols), true, norm, 0};
  const std::vector<DeviceProjection> all = projections(y_there.data());
  runner.run(layers.stream(), all, input, tokens, Kernels::kGenerate);
  return y_there.read();
}

// Rows 1 to 3 of each four leave the range of F16: too large, too small, and too large in every second 96 columns.
void leave_range_of_f16(Rows& x) {
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c)
      x.row(r)[c] *= r % 4 == 1 ? 3e7f : r % 4 == 2 ? 2e-9f : r % 4 == 3 && c / 96 % 2 == 0 ? 1e5f : 1;
  }
}

TEST_CASE("kernels: inputs that F16 does not reach") {
  struct Case {
    Codes codes;
    int64_t group_rows, group_cols;
    bool ordered;
  };
  for (const auto& [codes, group_rows, group_cols, ordered] :
       {Case{Codes::kE4M3, 128, 128, false}, Case{Codes::kI8, 1, 2100, false}, Case{Codes::kI8, 1, 32, true},
        Case{Codes::kBf16, 1, 0, false}}) {
    std::mt19937 random(12);
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, codes, 20, 2100, group_rows, group_cols, false));
    if (ordered) {
      weights[0].ordered = true;
      weights[0].column_order.resize(2100);
      for (int i = 0; i < 2100; ++i) weights[0].column_order[size_t(i)] = i * 37 % 2100;
    }
    Layers layers(std::move(weights));
    for (const int tokens : {1, 2, 4, 8, SplitGemmArgs::kMostTokens}) {
      Rows x(random, tokens + 3, 2100, 1);
      leave_range_of_f16(x);
      const Rows y(random, tokens, 20, 1);
      for (const int first : {0, 1, 2, 3}) {
        if (first > 0 && tokens > 1) continue;
        for (const bool norm : {false, true}) {
          const auto projections = [&](float* y_there) {
            std::vector<DeviceProjection> one{{layers.matrix(0), {}, {}, y_there, y.stride}};
            one[0].weight.bias = nullptr;
            return one;
          };
          const std::vector<float> there =
              next_tokens(layers, x, y, tokens, tokens > kGemvTokens, norm ? layers.device_norm(1e-24) : DeviceNorm{},
                          projections, first);
          for (int64_t t = 0; t < tokens; ++t) {
            INFO("codes ", int(codes), ", token ", first + t, " of ", tokens, norm ? ", normalized" : "");
            std::vector<double> row(x.row(first + t), x.row(first + t) + x.cols);
            if (norm) row = normed_row(x, first + t, layers.norm(), 1e-24);
            const std::vector<double> expected = product(layers.weight(0), row);
            Difference difference;
            for (size_t n = 0; n < expected.size(); ++n) difference.add(there[size_t(t * y.stride) + n], expected[n]);
            CHECK(difference.error() < (codes == Codes::kBf16 ? 1.5e-5 : 3e-6));
          }
        }
      }
    }
  }
}

TEST_CASE("kernels: a token beyond the range of F16 beside others, one of them NaN") {
  std::mt19937 random(13);
  std::vector<Weight> weights;
  weights.push_back(random_weight(random, Codes::kE4M3, 20, 700, 128, 128, false));
  Layers layers(std::move(weights));
  Rows x(random, 4, 700, 1);
  x.row(0)[300] = std::numeric_limits<float>::quiet_NaN();
  for (int c = 0; c < 700; ++c) {
    x.row(1)[c] *= 3e7f;
    x.row(2)[c] = 0;
  }
  const Buffer<float> x_there(layers.device(), x.values);
  const auto run = [&](int first, int tokens) {
    const Buffer<float> y_there(layers.device(), std::vector<float>(size_t(4 * 64)));
    GemvArgs args;
    args.part[0] = layers.matrix(0);
    args.x = x_there.data() + first * x.stride;
    args.x_stride = x.stride;
    args.y[0] = y_there.data();
    args.y_stride[0] = 64;
    args.tokens = tokens;
    gemv(layers.stream(), args);
    return y_there.read();
  };
  const std::vector<float> together = run(0, 4);
  for (int n = 0; n < 20; ++n) CHECK(std::isnan(together[size_t(n)]));
  for (const int t : {1, 2, 3}) {
    const std::vector<float> alone = run(t, 1);
    CHECK(std::equal(alone.begin(), alone.begin() + 20, together.begin() + t * 64));
    CHECK(std::all_of(alone.begin(), alone.begin() + 20, [](float y) { return std::isfinite(y); }));
  }
}

TEST_CASE("kernels: a token comes out the same alone and among others") {
  std::mt19937 random(8);
  for (auto& [name, weight] : weights_of_every_kind(random)) {
    const int64_t rows = weight.rows, cols = weight.cols;
    std::vector<Weight> weights;
    weights.push_back(std::move(weight));
    Layers layers(std::move(weights));
    if (grid_kind(layers.matrix(0)) == GridKind::kAny) continue;
    INFO(name);
    use_few_processors(layers.stream());
    Rows x(random, kGemvTokens, cols, 1), y(random, kGemvTokens, rows, 1);
    leave_range_of_f16(x);
    const Buffer<float> x_there(layers.device(), x.values);
    // So many tokens at once, and as many of them as make whole calls.
    const auto run = [&](int at_once) {
      const Buffer<float> y_there(layers.device(), y.values);
      for (int first = 0; first + at_once <= kGemvTokens; first += at_once) {
        GemvArgs args;
        args.part[0] = layers.matrix(0);
        args.x = x_there.data() + first * x.stride;
        args.x_stride = x.stride;
        args.norm = layers.norm_on_device();
        args.norm_eps = 1e-6f;
        args.y[0] = y_there.data() + first * y.stride;
        args.y_stride[0] = y.stride;
        args.tokens = at_once;
        gemv(layers.stream(), args);
      }
      return y_there.read();
    };
    const std::vector<float> together = run(kGemvTokens);
    for (int at_once = 1; at_once < kGemvTokens; ++at_once) {
      const std::vector<float> apart = run(at_once);
      const auto end = apart.begin() + int64_t(kGemvTokens / at_once * at_once) * y.stride;
      CHECK_MESSAGE(std::equal(apart.begin(), end, together.begin()), at_once, " at once");
    }
  }
}

TEST_CASE("kernels: the tokens of many lines come out as a few do, bit by bit") {
  constexpr int kTokens = SplitGemmArgs::kMostTokens + 6;
  std::mt19937 random(18);
  std::vector<Named> all = weights_of_every_kind(random);
  // With the tokens of two tiles, more of these than several blocks share.
  const int64_t many_rows = SplitGemmArgs::kMostSharedTiles * 128 + 40;
  all.emplace_back("many rows", random_weight(random, Codes::kE4M3, many_rows, 96, 128, 128, false));
  for (auto& [name, weight] : all) {
    INFO(name);
    const int64_t rows = weight.rows, cols = weight.cols;
    const bool few_rows = rows < many_rows;
    std::vector<Weight> weights;
    weights.push_back(std::move(weight));
    Layers layers(std::move(weights));
    if (grid_kind(layers.matrix(0)) == GridKind::kAny) continue;
    use_few_processors(layers.stream());
    Rows x(random, kTokens, cols, 1), y(random, kTokens, 2 * rows, 1);
    leave_range_of_f16(x);
    // The same weights alone, as two parts, and as a gate of themselves.
    enum class Parts { kOne, kTwo, kGated };
    const auto run = [&](Parts parts, int tokens, bool together) {
      return next_tokens(layers, x, y, tokens, together, layers.device_norm(1e-6), [&](float* y_there) {
        std::vector<DeviceProjection> projections{{layers.matrix(0), {}, {}, y_there, y.stride}};
        if (parts == Parts::kTwo) projections.push_back({layers.matrix(0), {}, {}, y_there + rows, y.stride});
        if (parts == Parts::kGated) {
          projections[0].gate = layers.matrix(0);
          projections[0].epilogue = {.activation = Activation::kSilu, .scale = 0.5f, .add = true};
        }
        return projections;
      });
    };
    for (const Parts parts : {Parts::kOne, Parts::kTwo, Parts::kGated}) {
      if (!few_rows && parts != Parts::kOne) continue;
      // Tokens, and processors: so many that all tiles are shared by 16 blocks, or so few that whole rounds of tiles
      // come before the shared ones; 66 tiles of many rows are too many to be shared, or 4 of them are.
      using Counts = std::vector<std::pair<int, int>>;
      Counts counts = {{34, 2 * SplitGemmArgs::kMostSharedTiles}, {34, 62}};
      if (few_rows && parts == Parts::kOne) counts = {{kGemvTokens + 1, 3}, {kTokens, 132}};
      if (few_rows && parts != Parts::kOne) counts = {{41, parts == Parts::kTwo ? 132 : 3}};
      const std::vector<float> apart = run(parts, counts.back().first, false);
      for (const auto& [tokens, processors] : counts) {
        layers.stream().processors = processors;
        const std::vector<float> together = run(parts, tokens, true);
        CHECK_MESSAGE(std::equal(together.begin(), together.begin() + tokens * y.stride, apart.begin()), int(parts),
                      ", ", tokens, " tokens, ", processors, " processors");
      }
      use_few_processors(layers.stream());
    }
  }
}

TEST_CASE("kernels: parts in activation order among others, for the tokens of many lines") {
  constexpr int kTokens = 12, kCols = 128, kRows = 24;
  std::mt19937 random(19);
  for (const size_t ordered : {0, 1}) {
    std::vector<Weight> weights;
    for (int i = 0; i < 2; ++i) weights.push_back(random_weight(random, Codes::kI8, kRows, kCols, 1, 64, false));
    weights[ordered].ordered = true;
    for (int i = 0; i < kCols; ++i) weights[ordered].column_order.push_back(i * 37 % kCols);
    Layers layers(std::move(weights));
    const Rows x(random, kTokens, kCols, 1), y(random, kTokens, 2 * kRows, 1);
    const auto run = [&](bool together) {
      return next_tokens(layers, x, y, kTokens, together, layers.device_norm(1e-6), [&](float* y_there) {
        return std::vector<DeviceProjection>{{layers.matrix(0), {}, {}, y_there, y.stride},
                                             {layers.matrix(1), {}, {}, y_there + kRows, y.stride}};
      });
    };
    CHECK(run(true) == run(false));
  }
}

}  // namespace
}  // namespace qgen::test
