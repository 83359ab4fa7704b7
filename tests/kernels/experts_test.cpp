// The kernels of the chosen experts' products, through what chooses among them, against plain double arithmetic.
#include <functional>

#include "kernels/experts_dispatch.h"
#include "tests/kernels/on_device.h"

namespace qgen::test {
namespace {

constexpr int kExperts = 5, kChosen = 2;

// How the weights of experts are made.
struct Kind {
  const char* name;
  bool on_tensor_cores;
  int64_t cols, width;
  std::function<Weight(std::mt19937&, int64_t rows, int64_t cols)> make;
};
Kind plain(const char* name, bool on_tensor_cores, Codes codes, int64_t group_rows, int64_t group_cols,
           bool zero_points = false) {
  return {name, on_tensor_cores, 160, 96, [=](std::mt19937& random, int64_t rows, int64_t cols) {
            const int64_t of_rows = group_rows == 0 ? rows : group_rows, of_cols = group_cols < 0 ? cols : group_cols;
            return random_weight(random, codes, rows, cols, of_rows, of_cols, zero_points);
          }};
}
std::vector<Kind> kinds() {
  std::vector<Kind> out = {plain("bf16", true, Codes::kBf16, 1, 0),
                           plain("f16", true, Codes::kF16, 1, 0),
                           plain("f32", false, Codes::kF32, 1, 0),
                           plain("i8 rows", true, Codes::kI8, 1, -1),
                           plain("i8 rows, zero points", true, Codes::kI8, 1, -1, true),
                           plain("i8 groups of 64", true, Codes::kI8, 1, 64),
                           plain("i8 groups of 32, zero points", true, Codes::kI8, 1, 32, true),
                           plain("i8 groups of 20", false, Codes::kI8, 1, 20),
                           plain("i8 groups of 16", true, Codes::kI8, 1, 16),
                           plain("e4m3 one scale", true, Codes::kE4M3, 0, -1),
                           plain("e4m3 blocks", true, Codes::kE4M3, 128, 128),
                           plain("e5m2 groups of 64", false, Codes::kE5M2, 1, 64)};
  // Tiles of two sizes, of which experts have the smaller.
  out.push_back({"bf16, the last i8 rows", true, 160, 96, [](std::mt19937& random, int64_t rows, int64_t cols) {
                   return random_weight(random, rows == 160 ? Codes::kI8 : Codes::kBf16, rows, cols, 1,
                                        rows == 160 ? cols : 0, false);
                 }});
  for (const int64_t group : {32, 64}) {
    out.push_back({"minimums", true, 192, 128, [=](std::mt19937& random, int64_t rows, int64_t cols) {
                     return random_affine_weight(random, rows, cols, 1, group);
                   }});
  }
  for (const int64_t group : {16, 32}) {
    out.push_back({"two levels", true, 512, 256, [=](std::mt19937& random, int64_t rows, int64_t cols) {
                     return random_two_levels(random, rows, cols, group, group == 32);
                   }});
  }
  return out;
}

enum class Network { kGated, kUngated, kWeightedInput };

// A layer of experts on the device, and what a token's result should be.
class Mixture {
 public:
  Mixture(const Kind& kind, Network network, int64_t width, std::mt19937& random)
      : kind_(kind), network_(network), width_(width), layers_(weights_of(kind, network, width, random)) {
    std::vector<Matrix> matrices;
    for (size_t i = 0; i < size_t(banks() * kExperts); ++i) {
      Matrix& w = matrices.emplace_back(layers_.matrix(i));
      w.bias = nullptr;
      std::vector<double> values(size_t(w.rows) * size_t(w.cols));
      for (int64_t n = 0; n < w.rows; ++n)
        dequantize_row(layers_.weight(i), n, std::span(values).subspan(size_t(n * w.cols), size_t(w.cols)));
      values_.push_back(std::move(values));
    }
    matrices_ = Buffer<Matrix>(layers_.device(), matrices);
    // Biases of gates, ups and downs.
    for (const int64_t rows : {width, width, kind.cols}) {
      biases_.push_back(normal(random, size_t(kExperts * rows)));
      biases_there_.emplace_back(layers_.device(), biases_.back());
    }
    const auto bank = [&](int i) { return matrices_.data() + i * kExperts; };
    const bool gated = network != Network::kUngated;
    ExpertsProduct& in = layer_.in.product;
    if (gated) {
      in.gate = bank(2);
      in.gate_bias = biases_there_[0].data();
    }
    in.up = bank(0);
    in.up_bias = biases_there_[1].data();
    in.like = matrices[0];
    in.chosen = kChosen;
    in.route_stride = kPad;
    in.weighted_input = network == Network::kWeightedInput;
    in.activation = gated ? Activation::kSilu : Activation::kReluSquared;
    if (network == Network::kGated) {
      in.limit = 1.5f;
      in.up_offset = 1;
    }
    layer_.out.up = bank(1);
    layer_.out.up_bias = biases_there_[2].data();
    layer_.out.like = matrices[kExperts];
    layer_.out.chosen = kChosen;
    layer_.out.route_stride = kPad;
    layer_.sum.route_stride = kPad;
    layer_.sum.chosen = kChosen;
    layer_.sum.cols = int(kind.cols);
    layer_.experts = kExperts;
    layer_.on_tensor_cores = has_expert_kernels(in.like) && has_expert_kernels(layer_.out.like);
    layer_.padded_x = true;
    CHECK(layer_.on_tensor_cores == kind.on_tensor_cores);
  }

  bool small_limits = false;  // results in several parts

  // Rows of weights and experts: many tokens have expert 0, none has 3.
  static Rows routes(std::mt19937& random, int64_t tokens) {
    Rows out(random, tokens, 2 * kChosen, 1);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto other = int(random() % 2);
      out.row(t)[kChosen + t % 2] = t % 5 == 4 ? 4 : 0;
      out.row(t)[kChosen + 1 - t % 2] = float(1 + other);
    }
    return out;
  }

  // out of tokens [first, first + count) of x.
  std::vector<float> run(const Rows& x, const Rows& route, int64_t first, int count, Kernels choice,
                         Activations activations, const Rows& before, bool add) {
    const Buffer<float> x_there(layers_.device(), x.values), route_there(layers_.device(), route.values);
    const Buffer<float> out_there(layers_.device(), before.values);
    ExpertsDispatch runner;
    const ExpertsSizes sizes{kExperts, kChosen, kind_.cols, width_, kind_.cols};
    ExpertsDispatch::Limits limits;
    if (small_limits) limits.product_floats = count * kChosen * 50;
    const DeviceMemory memory = memory_for(layers_.device(), 0xFF, [&](DeviceLayout& layout) {
      runner.lay_out(layout, {&sizes, 1}, {}, count, activations, limits);
    });
    ExpertsLayer layer = layer_;
    layer.in.x = x_there.data() + first * x.stride;
    layer.in.x_stride = x.stride;
    const float* const of_first = route_there.data() + first * route.stride;
    layer.in.product.route = layer.out.route = of_first;
    layer.sum.route = network_ == Network::kWeightedInput ? nullptr : of_first;
    layer.sum.out = out_there.data() + first * before.stride;
    layer.sum.out_stride = before.stride;
    layer.sum.add = add;
    runner.run(layers_.stream(), layer, count, choice);
    return out_there.read();
  }

  std::vector<double> expected(const Rows& x, const Rows& route, int64_t t) const {
    std::vector<double> out(static_cast<size_t>(kind_.cols));
    for (int i = 0; i < kChosen; ++i) {
      const auto expert = size_t(route.at(t, kChosen + i));
      const double weight = route.at(t, i);
      const auto multiply = [&](size_t bank, size_t bias, const std::vector<double>& in, double factor) {
        const std::vector<double>& w = values_[bank * kExperts + expert];
        std::vector<double> y(w.size() / in.size());
        for (size_t n = 0; n < y.size(); ++n) {
          for (size_t k = 0; k < in.size(); ++k) y[n] += w[n * in.size() + k] * in[k];
          y[n] = y[n] * factor + biases_[bias][expert * y.size() + n];
        }
        return y;
      };
      std::vector<double> row(static_cast<size_t>(kind_.cols));
      for (size_t k = 0; k < row.size(); ++k) row[k] = x.at(t, int64_t(k));
      const double factor = network_ == Network::kWeightedInput ? weight : 1;
      std::vector<double> inner = multiply(0, 1, row, factor);
      if (network_ == Network::kUngated) {
        for (double& v : inner) v = v > 0 ? v * v : 0;
      } else {
        const std::vector<double> gate = multiply(2, 0, row, factor);
        for (size_t n = 0; n < inner.size(); ++n) {
          double g = gate[n], up = inner[n];
          if (network_ == Network::kGated) {
            g = std::min(g, 1.5);
            up = std::clamp(up, -1.5, 1.5) + 1;
          }
          inner[n] = g / (1 + std::exp(-g)) * up;
        }
      }
      const std::vector<double> y = multiply(1, 2, inner, 1);
      for (size_t n = 0; n < out.size(); ++n) out[n] += (network_ == Network::kWeightedInput ? 1 : weight) * y[n];
    }
    return out;
  }

 private:
  int banks() const { return network_ == Network::kUngated ? 2 : 3; }
  static std::vector<Weight> weights_of(const Kind& kind, Network network, int64_t width, std::mt19937& random) {
    std::vector<Weight> out;
    for (int bank = 0; bank < (network == Network::kUngated ? 2 : 3); ++bank) {
      for (int e = 0; e < kExperts; ++e)
        out.push_back(bank == 1 ? kind.make(random, kind.cols, width) : kind.make(random, width, kind.cols));
    }
    return out;
  }

  const Kind& kind_;
  const Network network_;
  const int64_t width_;
  Layers layers_;
  std::vector<std::vector<double>> values_;
  std::vector<std::vector<float>> biases_;
  std::vector<Buffer<float>> biases_there_;
  Buffer<Matrix> matrices_;
  ExpertsLayer layer_;
};

double mixture_error(Mixture& mixture, const Kind& kind, int tokens, Kernels choice, Activations activations,
                     std::mt19937& random) {
  const Rows x(random, tokens, kind.cols, 1), route = Mixture::routes(random, tokens);
  Rows y(random, tokens, kind.cols, 1);
  const Rows before = y;
  const bool add = tokens % 2 == 1;
  y.values = mixture.run(x, route, 0, tokens, choice, activations, before, add);
  Difference difference;
  for (int64_t t = 0; t < tokens; t += 1 + tokens / 24) {
    const std::vector<double> expected = mixture.expected(x, route, t);
    for (int64_t c = 0; c < kind.cols; ++c)
      difference.add(y.at(t, c), expected[size_t(c)] + (add ? double(before.at(t, c)) : 0));
  }
  return difference.error();
}

TEST_CASE("kernels: smoke, chosen experts of one, a few and many tokens") {
  const std::vector<Kind> all = kinds();
  for (const size_t i : {size_t{0}, size_t{3}, size_t{10}}) {
    std::mt19937 random(5);
    Mixture mixture(all[i], Network::kGated, all[i].width, random);
    for (const int tokens : {1, 9, 40}) {
      INFO(std::string(all[i].name), ", ", tokens, " tokens");
      const double limit = i == 0 ? tokens < 10 ? 6e-5 : 1e-2 : tokens < 10 ? 1e-5 : 2e-3;
      CHECK(mixture_error(mixture, all[i], tokens, Kernels::kByCount, Activations::k16Bit, random) < limit);
    }
  }
}

TEST_CASE("kernels: experts of every code and grid, for one, a few and many tokens") {
  const std::vector<Kind> all = kinds();
  for (size_t number = 0; number < all.size(); ++number) {
    const Kind& kind = all[number];
    for (const Network network : {Network::kGated, Network::kUngated, Network::kWeightedInput}) {
      // All networks for the first kind, then one each.
      if (number > 0 && size_t(network) != number % 3) continue;
      std::mt19937 random(uint32_t(number * 3) + uint32_t(network) + 50);
      // A width that is no multiple of tiles, where groups allow it.
      const int64_t width = kind.width == 96 ? 88 : kind.width;
      Mixture mixture(kind, network, width, random);
      const bool bf16 = std::string_view(kind.name).starts_with("bf16");
      for (const int tokens : {1, 20, 170}) {
        INFO(std::string(kind.name), " network ", int(network), ", ", tokens, " tokens");
        const bool rounded = kind.on_tensor_cores && tokens > LinearDispatch::kMostGemvTokens;
        const double limit = rounded ? bf16 ? 1e-2 : 6e-3 : bf16 ? 6e-5 : 1e-5;
        CHECK(mixture_error(mixture, kind, tokens, Kernels::kByCount, Activations::k16Bit, random) < limit);
      }
      mixture.small_limits = true;
      CHECK(mixture_error(mixture, kind, 20, Kernels::kGenerate, Activations::k16Bit, random) < (bf16 ? 6e-5 : 1e-5));
      CHECK(mixture_error(mixture, kind, 3, Kernels::kByCount, Activations::kF32, random) < 1e-5);
      CHECK(mixture_error(mixture, kind, 20, Kernels::kPrompt, Activations::kF32, random) < 1e-5);
      CHECK(mixture_error(mixture, kind, 9, Kernels::kPrompt, Activations::k16Bit, random) < (bf16 ? 1e-2 : 6e-3));
    }
  }
}

// y of each head, and behind it the columns that are kept, against doubles.
double heads_error(const Kind& kind, int64_t heads, int tokens, Kernels choice, std::mt19937& random) {
  const int64_t cols = kind.cols, rows = kind.width, kept = 8;
  std::vector<Weight> weights;
  for (int64_t h = 0; h < heads; ++h) weights.push_back(kind.make(random, rows, cols));
  Layers layers(std::move(weights));
  std::vector<Matrix> matrices;
  for (int64_t h = 0; h < heads; ++h) matrices.emplace_back(layers.matrix(size_t(h))).bias = nullptr;
  const Buffer<Matrix> matrices_there(layers.device(), matrices);
  const int64_t apart = cols + kept + tokens % 4;  // heads of x, not always whole pieces
  Rows x(random, tokens, heads * apart, 1), y(random, tokens, heads * (rows + kept), 1);
  const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values);
  ExpertsDispatch runner;
  const HeadsSizes sizes{heads, cols};
  ExpertsDispatch::Limits limits;
  limits.head_rows = 64 * heads;
  const DeviceMemory memory = memory_for(layers.device(), 0xFF, [&](DeviceLayout& layout) {
    runner.lay_out(layout, {}, {&sizes, 1}, tokens, Activations::k16Bit, limits);
  });
  HeadLinearArgs args;
  args.weight = matrices_there.data();
  args.kind = matrices[0].kind;
  args.x = x_there.data();
  args.x_stride = x.stride;
  args.x_head_stride = apart;
  args.y = y_there.data();
  args.y_stride = y.stride;
  args.y_head_stride = rows + kept;
  args.rows = int(rows);
  args.cols = int(cols);
  args.kept = int(kept);
  args.heads = int(heads);
  args.tokens = tokens;
  runner.run_heads(layers.stream(), args, matrices[0], kind.on_tensor_cores, choice);
  y.values = y_there.read();
  Difference difference;
  for (int64_t t = 0; t < tokens; t += 1 + tokens / 12) {
    for (int64_t h = 0; h < heads; ++h) {
      const float* const from = x.row(t) + h * args.x_head_stride;
      const std::vector<double> expected = product(layers.weight(size_t(h)), std::vector<double>(from, from + cols));
      for (int64_t n = 0; n < rows; ++n) difference.add(y.at(t, h * args.y_head_stride + n), expected[size_t(n)]);
      for (int64_t n = 0; n < kept; ++n) CHECK(y.at(t, h * args.y_head_stride + rows + n) == from[cols + n]);
    }
  }
  return difference.error();
}

TEST_CASE("kernels: layers of separate heads, for one, a few and many tokens") {
  for (const Kind& kind : kinds()) {
    const std::string_view name = kind.name;
    if (name != "bf16" && name != "e4m3 blocks" && name != "i8 groups of 32, zero points" && name != "f32") continue;
    std::mt19937 random(70);
    for (const int tokens : {1, 30, 150}) {
      INFO(std::string(name), ", ", tokens, " tokens");
      const bool rounded = kind.on_tensor_cores && tokens > LinearDispatch::kMostGemvTokens;
      CHECK(heads_error(kind, 3, tokens, Kernels::kByCount, random) <
            (rounded ? name == "bf16" ? 5e-3 : 1.5e-3 : 1e-6));
    }
    CHECK(heads_error(kind, 3, 20, Kernels::kGenerate, random) < 1e-6);
  }
}

TEST_CASE("kernels: a token's experts come out the same alone, among others and in any order of threads") {
  for (const Kind& kind : kinds()) {
    if (!kind.on_tensor_cores) continue;
    INFO(std::string(kind.name));
    std::mt19937 random(60);
    Mixture mixture(kind, Network::kGated, kind.width, random);
    constexpr int64_t kTokens = 24;
    const Rows x(random, kTokens, kind.cols, 1), route = Mixture::routes(random, kTokens);
    const Rows y(random, kTokens, kind.cols, 1);
    for (const Kernels choice : {Kernels::kGenerate, Kernels::kPrompt}) {
      const auto run = [&](int64_t first, int count) {
        return mixture.run(x, route, first, count, choice, Activations::k16Bit, y, false);
      };
      const std::vector<float> together = run(0, kTokens);
      for (const auto& [first, count] : {std::pair<int64_t, int>{0, 1}, {3, 9}, {17, 7}}) {
        const std::vector<float> apart = run(first, count);
        const auto begin = first * y.stride, end = (first + count) * y.stride;
        CHECK(std::equal(apart.begin() + begin, apart.begin() + end, together.begin() + begin));
      }
      if (std::string_view(kind.name) != "i8 rows") continue;
      for (const Order order : kOrders) {
        set_order(order);
        CHECK(run(0, kTokens) == together);
      }
      set_order(Order::kAscending);
    }
  }
}

}  // namespace
}  // namespace qgen::test
