// Norms, activations and rotations against plain double arithmetic, for every instruction set.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/numbers.h"
#include "model/step.h"
#include "tests/cpu/test_targets.h"
#include "tests/random_weight.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("norms") {
  for (const IsaTarget* target : kernel_targets()) {
    INFO(std::string(target->name));
    std::mt19937 random(3);
    for (const int64_t n : {2, 15, 64, 1000}) {
      const auto x = normal(random, size_t(n), 3), w = normal(random, size_t(n)), b = normal(random, size_t(n));
      for (const bool layer : {false, true}) {
        for (const auto& [weight, bias] : {std::pair<bool, bool>{false, false}, {true, false}, {true, true}}) {
          std::vector<float> out(x.size()), expected(x.size());
          target->normalize(layer ? cpu::NormKind::kLayer : cpu::NormKind::kRms, x.data(), weight ? w.data() : nullptr,
                            bias ? b.data() : nullptr, n, 1e-6f, out.data());
          double mean = 0, squares = 0;
          for (const float value : x) mean += layer ? value / double(n) : 0;
          for (const float value : x) squares += (value - mean) * (value - mean);
          for (size_t i = 0; i < x.size(); ++i) {
            expected[i] =
                float((x[i] - mean) / std::sqrt(squares / double(n) + 1e-6) * (weight ? w[i] : 1) + (bias ? b[i] : 0));
          }
          CHECK(normwise_error(out, expected) < 1e-6);
        }
      }
    }
  }
}

TEST_CASE("activations, with and without what they gate") {
  for (const IsaTarget* target : kernel_targets()) {
    std::mt19937 random(4);
    for (const Activation activation : {Activation::kNone, Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                        Activation::kRelu, Activation::kReluSquared, Activation::kSigmoid,
                                        Activation::kQuickGelu, Activation::kSoftplus, Activation::kExpm1Ratio}) {
      INFO(std::string(target->name), " ", std::string(activation_name(activation)));
      for (const int64_t n : {2, 15, 64, 1000}) {
        auto x = normal(random, size_t(n), 3);
        const auto up = normal(random, size_t(n));
        x[0] = -90;  // far into the tails of exp
        x[1] = 90;
        std::vector<float> plain = x, gated = x, expected, expected_gated;
        for (size_t i = 0; i < x.size(); ++i) {
          expected.push_back(float(activate(activation, x[i])));
          expected_gated.push_back(float(activate(activation, x[i]) * up[i]));
        }
        const auto kind = static_cast<cpu::ActivationKind>(activation);
        target->activate(kind, plain.data(), nullptr, n);
        target->activate(kind, gated.data(), up.data(), n);
        for (size_t i = 0; i < x.size(); ++i) {
          // Relative to the input: in the tails of gelu the value itself vanishes.
          CHECK(std::abs(plain[i] - expected[i]) <= 1e-6 * std::max(1.0f, std::abs(x[i])));
          CHECK(std::abs(gated[i] - expected_gated[i]) <= 1e-6 * std::max(1.0f, std::abs(x[i] * up[i])));
        }
        plain.assign(x.size(), NAN);
        target->activate(kind, plain.data(), nullptr, n);
        for (const float value : plain) CHECK(std::isnan(value));
      }
    }
    std::vector<float> x = {-1000, -3, -0.01f, 0, 0.5f, 40, 1e6f}, expected;
    for (const float value : x) expected.push_back(float(30 * std::tanh(double(value) / 30)));
    target->softcap(x.data(), 30, int64_t(x.size()));
    for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(expected[i]).epsilon(1e-5));
  }
}

TEST_CASE("rotations of both kinds of pairs") {
  for (const IsaTarget* target : kernel_targets()) {
    std::mt19937 random(5);
    for (const int64_t half : {1, 4, 20, 64}) {
      const auto x = normal(random, size_t(2 * half)), cos = normal(random, size_t(half)),
                 sin = normal(random, size_t(half));
      for (const bool adjacent : {false, true}) {
        std::vector<float> head = x;
        target->rotate(head.data(), cos.data(), sin.data(), half, adjacent);
        for (int64_t i = 0; i < half; ++i) {
          const size_t a = size_t(adjacent ? 2 * i : i), b = size_t(adjacent ? 2 * i + 1 : i + half);
          CHECK(head[a] ==
                doctest::Approx(double(x[a]) * cos[size_t(i)] - double(x[b]) * sin[size_t(i)]).epsilon(1e-5));
          CHECK(head[b] ==
                doctest::Approx(double(x[b]) * cos[size_t(i)] + double(x[a]) * sin[size_t(i)]).epsilon(1e-5));
        }
      }
    }
  }
}

// Rows are cut into tasks by the number of tokens, so what falls behind the last vector differs from batch to batch.
TEST_CASE("an element rounds alike wherever a task ends") {
  constexpr size_t n = 67;
  const auto calls = [](const IsaTarget* target, float* y, const float* x, int64_t count) {
    target->add(y, x, 0.6f, count);
    target->scale(y, 1.7f, count, y);
    target->softcap(y, 30, count);
    target->activate(cpu::ActivationKind::kGelu, y, x, count);
  };
  for (const IsaTarget* target : kernel_targets()) {
    INFO(std::string(target->name));
    std::mt19937 random(6);
    const auto x = normal(random, n), start = normal(random, n);
    std::vector<float> whole = start;
    calls(target, whole.data(), x.data(), int64_t(n));
    for (size_t cut = 1; cut < n; ++cut) {
      std::vector<float> parts = start;
      calls(target, parts.data(), x.data(), int64_t(cut));
      calls(target, parts.data() + cut, x.data() + cut, int64_t(n - cut));
      CHECK(std::memcmp(parts.data(), whole.data(), n * sizeof(float)) == 0);
    }
  }
}

}  // namespace
}  // namespace qgen::test
