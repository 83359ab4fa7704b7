// Linear recurrences against plain double arithmetic, in chunks and token by token, for every instruction set.
#include <cmath>
#include <random>
#include <vector>

#include "tests/cpu/test_targets.h"
#include "tests/random_weight.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

struct RecurCase {
  bool delta;
  int64_t tokens, key_dim, cols;
};

// Random inputs, laid out with something between the rows, and what they become.
class Recurrence {
 public:
  explicit Recurrence(const RecurCase& shape) : shape_(shape) {
    std::mt19937 random(7);
    const auto size = [&](int64_t rows, int64_t stride) { return size_t(rows * stride); };
    k_ = normal(random, size(shape.tokens, key_stride()), 1 / std::sqrt(float(shape.key_dim)));
    q_ = normal(random, size(shape.tokens, key_stride()), 1 / std::sqrt(float(shape.key_dim)));
    v_ = normal(random, size(shape.tokens, v_stride()));
    first_state_ = normal(random, size(shape.key_dim, state_stride()));
    for (const float x : normal(random, size(shape.tokens, kRateStride))) {
      decay_.push_back(std::exp(-x * x / 4));
      rate_.push_back(1 / (1 + std::exp(-x)));
    }
    for (int64_t t = 0; t < shape.tokens; t += 5) decay_[size_t(t * kRateStride)] = 0;  // forgets everything
  }

  // Runs the first `split` tokens and then the others.
  void run(const IsaTarget& target, bool in_chunks, int64_t split) {
    state = first_state_;
    out.assign(size_t(shape_.tokens * shape_.cols), 0);
    for (const auto& [first, end] : {std::pair(int64_t{0}, split), {split, shape_.tokens}}) {
      cpu::RecurArguments a{};
      a.tokens = end - first;
      a.key_dim = shape_.key_dim;
      a.cols = shape_.cols;
      a.delta = shape_.delta;
      a.in_chunks = in_chunks;
      a.k = k_.data() + first * key_stride();
      a.q = q_.data() + first * key_stride();
      a.key_stride = key_stride();
      a.decay = decay_.data() + first * kRateStride;
      a.rate = rate_.data() + first * kRateStride;
      a.rate_stride = kRateStride;
      a.v = v_.data() + first * v_stride();
      a.v_stride = v_stride();
      a.skip = skip();
      a.state = state.data();
      a.state_stride = state_stride();
      a.out = out.data() + first * shape_.cols;
      a.out_stride = shape_.cols;
      target.recur(a);
    }
  }

  void run_in_double() {
    std::vector<double> exact(first_state_.begin(), first_state_.end());
    state = first_state_;
    out.assign(size_t(shape_.tokens * shape_.cols), 0);
    for (int64_t t = 0; t < shape_.tokens; ++t) {
      const float *const k = &k_[size_t(t * key_stride())], *const q = &q_[size_t(t * key_stride())];
      for (int64_t c = 0; c < shape_.cols; ++c) {
        const double g = decay_[size_t(t * kRateStride)], v = v_[size_t(t * v_stride() + c)];
        double known = 0, sum = double(skip()) * v;
        for (int64_t i = 0; shape_.delta && i < shape_.key_dim; ++i) known += exact[at(i, c)] * k[i];
        const double change = double(rate_[size_t(t * kRateStride)]) * (v - g * known);
        for (int64_t i = 0; i < shape_.key_dim; ++i) {
          exact[at(i, c)] = g * exact[at(i, c)] + k[i] * change;
          sum += exact[at(i, c)] * q[i];
        }
        out[size_t(t * shape_.cols + c)] = float(sum);
      }
    }
    for (int64_t i = 0; i < shape_.key_dim; ++i) {
      for (int64_t c = 0; c < shape_.cols; ++c) state[at(i, c)] = float(exact[at(i, c)]);
    }
  }

  std::vector<float> state, out;

 private:
  static constexpr int64_t kRateStride = 3;
  int64_t key_stride() const { return shape_.key_dim + 5; }
  int64_t v_stride() const { return shape_.cols + 3; }
  int64_t state_stride() const { return shape_.cols + 2; }
  float skip() const { return shape_.delta ? 0 : 0.5f; }
  size_t at(int64_t i, int64_t c) const { return size_t(i * state_stride() + c); }

  RecurCase shape_;
  std::vector<float> k_, q_, v_, first_state_, decay_, rate_;
};

std::vector<RecurCase> recur_cases() {
  std::vector<RecurCase> out;
  for (const bool delta : {true, false}) {
    for (const int64_t tokens : {1, 7, 8, 9, 16, 43}) {
      for (const auto& [key_dim, cols] : {std::pair<int64_t, int64_t>{128, 128}, {5, 1}, {24, 17}, {64, 80}, {33, 50}})
        out.push_back({delta, tokens, key_dim, cols});
    }
    out.push_back({delta, 24, 300, 20});  // keys and columns beyond what is copied
    out.push_back({delta, 24, 16, 150});
  }
  return out;
}

TEST_CASE("recurrences, token by token and in chunks") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const RecurCase& shape : recur_cases()) {
      INFO(std::string(target->name), " ", shape.delta, " ", shape.tokens, " ", shape.key_dim, " ", shape.cols);
      Recurrence recurrence(shape);
      recurrence.run_in_double();
      const auto out = recurrence.out, state = recurrence.state;
      std::vector<float> by_token;
      for (const bool in_chunks : {false, true}) {
        recurrence.run(*target, in_chunks, shape.tokens / 3);
        CHECK(normwise_error(recurrence.out, out) < 1e-6);
        CHECK(normwise_error(recurrence.state, state) < 1e-6);
        if (!in_chunks) by_token = recurrence.out;
      }
      // Sums of another order, where there are chunks.
      if (shape.tokens >= 43 && shape.key_dim >= 24) CHECK(recurrence.out != by_token);
    }
  }
}

TEST_CASE("recurrences token by token do not depend on how the tokens are cut into calls") {
  for (const IsaTarget* target : kernel_targets()) {
    for (const RecurCase& shape : recur_cases()) {
      INFO(std::string(target->name), " ", shape.delta, " ", shape.tokens, " ", shape.key_dim, " ", shape.cols);
      Recurrence recurrence(shape);
      recurrence.run(*target, false, 0);
      const auto out = recurrence.out, state = recurrence.state;
      recurrence.run(*target, false, shape.tokens - 1);
      CHECK(recurrence.out == out);
      CHECK(recurrence.state == state);
    }
  }
}

}  // namespace
}  // namespace qgen::test
