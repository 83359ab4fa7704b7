// The kernels for GPUs, one by one, against plain double arithmetic; then the engine that is made of them against the
// reference engine and the goldens. Compiled for the executor that runs them without a GPU (QGEN_SIMT), and once more
// for a GPU (tools/gpu_check.sh).
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <random>

#include "kernels/engine.h"
#include "kernels/layer_runner.h"
#include "kernels/runtime.h"
#include "kernels/speed.h"
#include "kernels/steps.h"
#include "kernels/weight_store.h"
#include "tests/random_weight.h"
#include "tests/support.h"

#if defined(QGEN_SIMT)
#include "kernels/primitives.cuh"
#include "tests/simt/launch.h"
#endif

namespace qgen::test {
namespace {

using namespace qgen::QGEN_BACKEND;
namespace gpu = qgen::QGEN_BACKEND;

#if defined(QGEN_SIMT)
constexpr Order kOrders[] = {Order::kAscending, Order::kDescending, Order::kShuffled};
#else
// A GPU has an order of its own, another one each time.
enum class Order { kAny1, kAny2, kAscending, kShuffled = kAny2 };
constexpr Order kOrders[] = {Order::kAny1, Order::kAny2, Order::kAny2};
void set_order(Order) {}
#endif

// Numbers in the memory of the device.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(gpu::Device& device, const std::vector<T>& values)
      : device_(&device), count_(values.size()), memory_(device, std::max<size_t>(16, count_ * sizeof(T)), "test") {
    copy_to_device(device.stream(), memory_.data(), values.data(), count_ * sizeof(T));
    device.wait();
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::vector<T> read() const {
    std::vector<T> out(count_);
    copy_to_host(device_->stream(), out.data(), memory_.data(), count_ * sizeof(T));
    device_->wait();
    return out;
  }

 private:
  gpu::Device* device_ = nullptr;
  size_t count_ = 0;
  DeviceMemory memory_;
};

int64_t padded_columns(int64_t n) { return (n + kPad - 1) / kPad * kPad; }

// Rows of random activations as the kernels have them, zeros between a row's end and its stride.
struct Rows {
  Rows(std::mt19937& random, int64_t count, int64_t width, float size)
      : rows(count), cols(width), stride(padded_columns(width)), values(size_t(rows * stride)) {
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row = normal(random, size_t(cols), size);
      std::copy(row.begin(), row.end(), values.begin() + r * stride);
    }
  }
  float at(int64_t r, int64_t c) const { return values[size_t(r * stride + c)]; }
  float* row(int64_t r) { return values.data() + r * stride; }

  int64_t rows, cols, stride;
  std::vector<float> values;
};

// rms_norm(x) * norm, in doubles.
std::vector<double> normed_row(const Rows& x, int64_t r, const std::vector<float>& norm, double eps) {
  double squares = 0;
  for (int64_t c = 0; c < x.cols; ++c) squares += double(x.at(r, c)) * x.at(r, c);
  const double factor = 1 / std::sqrt(squares / double(x.cols) + eps);
  std::vector<double> out(static_cast<size_t>(x.cols));
  for (int64_t c = 0; c < x.cols; ++c) out[size_t(c)] = x.at(r, c) * factor * norm[size_t(c)];
  return out;
}

std::vector<double> product(const Weight& weight, const std::vector<double>& x) {
  std::vector<double> out(size_t(weight.rows)), row(size_t(weight.cols));
  for (int64_t n = 0; n < weight.rows; ++n) {
    dequantize_row(weight, n, row);
    for (int64_t k = 0; k < weight.cols; ++k) out[size_t(n)] += row[size_t(k)] * x[size_t(k)];
  }
  return out;
}

struct Difference {
  double squares = 0, norm = 0;
  void add(double found, double expected) {
    squares += (found - expected) * (found - expected);
    norm += expected * expected;
  }
  double error() const { return std::sqrt(squares / norm); }
};

// Weights on the executor's device.
class Layers {
 public:
  explicit Layers(std::vector<Weight> weights) : device_(0) {
    for (Weight& weight : weights) plan_.weights.push_back(std::move(weight));
    for (const Weight& weight : plan_.weights) {
      std::mt19937 random(7);
      plan_.vectors.push_back(normal(random, size_t(weight.rows)));
    }
    std::mt19937 random(8);
    plan_.vectors.push_back(normal(random, size_t(plan_.weights[0].cols)));
    store_.emplace(plan_);
    store_->load(device_);
  }
  const Weight& weight(size_t i) const { return plan_.weights[i]; }
  const std::vector<float>& bias(size_t i) const { return plan_.vectors[i]; }
  const std::vector<float>& norm() const { return plan_.vectors.back(); }
  const float* norm_on_device() const { return store_->vector(&plan_.vectors.back()); }
  Matrix matrix(size_t i) const { return store_->matrix({&plan_.weights[i], &plan_.vectors[i]}); }
  Stream& stream() { return device_.stream(); }
  gpu::Device& device() { return device_; }

 private:
  Plan plan_;
  gpu::Device device_;
  std::optional<WeightStore> store_;
};

struct Shape {
  Codes codes;
  int64_t rows, cols, group_rows, group_cols;
  bool offsets = false;
};

std::vector<Shape> shapes() {
  return {{Codes::kF32, 9, 40, 1, 0},          {Codes::kF16, 37, 72, 1, 0},        {Codes::kBf16, 40, 96, 1, 0},
          {Codes::kBf16, 3, 17, 1, 0},         {Codes::kI8, 50, 128, 1, 128},      {Codes::kI8, 35, 100, 35, 100},
          {Codes::kI8, 35, 100, 1, 100, true}, {Codes::kI8, 34, 576, 1, 64},       {Codes::kI8, 34, 256, 1, 64, true},
          {Codes::kI8, 18, 160, 1, 32},        {Codes::kI8, 18, 160, 1, 32, true}, {Codes::kI8, 18, 96, 1, 20, true},
          {Codes::kE4M3, 40, 300, 128, 128},   {Codes::kE4M3, 150, 320, 64, 128},  {Codes::kE4M3, 17, 64, 17, 64},
          {Codes::kE4M3, 17, 64, 1, 64},       {Codes::kE4M3, 20, 64, 1, 32},      {Codes::kE4M3, 20, 90, 3, 7},
          {Codes::kE5M2, 33, 128, 1, 128},     {Codes::kE5M2, 33, 128, 1, 64},     {Codes::kE4M3, 5, 2600, 128, 128},
          {Codes::kI8, 4, 4200, 1, 4200}};
}

// A summary for messages.
std::string text(const Shape& s, int tokens) {
  return std::string(codes_name(s.codes)) + " " + std::to_string(s.rows) + "x" + std::to_string(s.cols) + " tiles " +
         std::to_string(s.group_rows) + "x" + std::to_string(s.group_cols) + (s.offsets ? " offsets" : "") + ", " +
         std::to_string(tokens) + " tokens";
}

DeviceMemory lay_out(gpu::Device& device, LayerRunner& runner, int tokens, int64_t widest, bool exact) {
  DeviceLayout size;
  runner.lay_out(size, tokens, widest, exact);
  DeviceMemory memory(device, size.bytes(), "test");
  DeviceLayout placed(memory.data());
  runner.lay_out(placed, tokens, widest, exact);
  return memory;
}

// Of y = W norm(x) + bias through the kernel that the runner chooses.
double layer_error(Layers& layers, int tokens, bool exact, bool add, bool with_norm, std::mt19937& random) {
  const Weight& weight = layers.weight(0);
  Rows x(random, tokens, weight.cols, 3), y(random, tokens, weight.rows, 1);
  const Rows before = y;
  const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values);
  LayerRunner runner;
  const DeviceMemory work = lay_out(layers.device(), runner, tokens, weight.cols, exact);
  const LayerInput input{x_there.data(), x.stride, int(weight.cols), with_norm ? layers.norm_on_device() : nullptr,
                         1e-5f,          nullptr};
  const Matrix m = layers.matrix(0);
  runner.run(layers.stream(), {&m, 1}, input, y_there.data(), y.stride, tokens, add);
  y.values = y_there.read();
  Difference difference;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> row(x.row(t), x.row(t) + x.cols);
    if (with_norm) row = normed_row(x, t, layers.norm(), 1e-5);
    const std::vector<double> expected = product(weight, row);
    for (int64_t n = 0; n < weight.rows; ++n) {
      difference.add(y.at(t, n), expected[size_t(n)] + layers.bias(0)[size_t(n)] + (add ? before.at(t, n) : 0));
    }
  }
  return difference.error();
}

TEST_CASE("kernels: layers of every code and grid, for one, a few and many tokens") {
  for (const Shape& s : shapes()) {
    std::mt19937 random(uint32_t(s.rows * 1000 + s.cols));
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, s.codes, s.rows, s.cols, s.group_rows, s.group_cols, s.offsets));
    Layers layers(std::move(weights));
    for (const int tokens : {1, 3, 4, 5, 8, 11, 130}) {
      if (tokens > 100 && s.cols > 1000) continue;
      INFO(text(s, tokens));
      const bool many = tokens > LayerRunner::kMostFew;
      // Inputs of many tokens have 11 bits, 8 with weights in BF16.
      const bool rounded = many && grid_kind(layers.matrix(0)) != GridKind::kAny;
      // Inputs of a few have 22 bits, 16 with weights in BF16.
      const bool bf16 = s.codes == Codes::kBf16;
      const double tolerance = rounded     ? (bf16        ? 4e-3
                                              : s.offsets ? 1.5e-3
                                                          : 5e-4)
                               : bf16      ? 1.5e-5
                               : s.offsets ? 3e-6
                                           : 1e-6;
      CHECK(layer_error(layers, tokens, false, tokens % 2 == 0, tokens != 4, random) < tolerance);
      if (tokens < 100) CHECK(layer_error(layers, tokens, true, tokens % 2 == 1, true, random) < 3e-6);
    }
  }
}

TEST_CASE("kernels: blocks of Q8_0, with paired heads too") {
  for (const auto& [rows, cols, heads] :
       {std::array<int64_t, 3>{5, 32, 0}, {37, 96, 0}, {48, 160, 3}, {64, 2112, 16}}) {
    std::mt19937 random(uint32_t(rows + cols));
    std::vector<Weight> weights;
    weights.push_back(random_blocks(random, rows, cols, heads));
    Layers layers(std::move(weights));
    for (const int tokens : {1, 8, 20}) {
      INFO(rows, "x", cols, " ", tokens, " tokens");
      CHECK(layer_error(layers, tokens, false, false, true, random) < (tokens > 16 ? 5e-4 : 1e-6));
    }
  }
}

TEST_CASE("kernels: columns in the order of their groups") {
  std::mt19937 random(3);
  for (const int64_t group : {16, 32, 64}) {
    Weight weight = random_weight(random, Codes::kI8, 24, 128, 1, group, true);
    weight.column_order.resize(128);
    for (int i = 0; i < 128; ++i) weight.column_order[size_t(i)] = i * 37 % 128;
    std::vector<Weight> weights;
    weights.push_back(std::move(weight));
    Layers layers(std::move(weights));
    for (const int tokens : {1, 6, 20}) CHECK(layer_error(layers, tokens, false, true, true, random) < 3e-6);
  }
}

TEST_CASE("kernels: a token comes out the same alone and among others") {
  for (const Shape& s : shapes()) {
    std::mt19937 random(uint32_t(s.rows));
    std::vector<Weight> weights;
    weights.push_back(random_weight(random, s.codes, s.rows, s.cols, s.group_rows, s.group_cols, s.offsets));
    Layers layers(std::move(weights));
    if (grid_kind(layers.matrix(0)) == GridKind::kAny) continue;
    INFO(text(s, 8));
    const Rows x(random, kFewTokens, s.cols, 1), y(random, kFewTokens, s.rows, 1);
    const Buffer<float> x_there(layers.device(), x.values);
    // All tokens, so many at once.
    const auto run = [&](int at_once) {
      const Buffer<float> y_there(layers.device(), y.values);
      for (int first = 0; first < kFewTokens; first += at_once) {
        LinearArgs args;
        args.part[0] = layers.matrix(0);
        args.x = x_there.data() + first * x.stride;
        args.x_stride = x.stride;
        args.norm = layers.norm_on_device();
        args.norm_eps = 1e-6f;
        args.y = y_there.data() + first * y.stride;
        args.y_stride = y.stride;
        args.tokens = at_once;
        multiply_few(layers.stream(), args);
      }
      return y_there.read();
    };
    const std::vector<float> together = run(kFewTokens);
    CHECK(together == run(1));
    CHECK(together == run(4));
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
  for (const int tokens : {1, 5, 20}) {
    std::vector<std::vector<float>> found;
    for (const Order order : kOrders) {
      set_order(order);
      std::mt19937 same(9);
      Rows x(same, tokens, 200, 1), y(same, tokens, 40 + 24 + 24 + 24, 1), gate(same, tokens, 24, 1), up = gate;
      const Buffer<float> x_there(layers.device(), x.values), y_there(layers.device(), y.values),
          gate_there(layers.device(), gate.values), up_there(layers.device(), up.values);
      LayerRunner runner;
      const DeviceMemory work = lay_out(layers.device(), runner, tokens, 200, false);
      const LayerInput input{x_there.data(), x.stride, 200, layers.norm_on_device(), 1e-5f, nullptr};
      const Matrix all[] = {layers.matrix(0), layers.matrix(1), layers.matrix(2), layers.matrix(3)};
      runner.run(layers.stream(), all, input, y_there.data(), y.stride, tokens);
      const bool gated = runner.run_gated(layers.stream(), layers.matrix(1), layers.matrix(2), input, gate_there.data(),
                                          up_there.data(), gate.stride, tokens);
      CHECK(gated == (tokens <= LayerRunner::kMostFew));
      if (!gated) silu_mul(layers.stream(), gate_there.data(), up_there.data(), gate.stride, 24, tokens);
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
      const bool many = tokens > LayerRunner::kMostFew;
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

// A layer's attention over a cache that tokens are put into piece by piece.
struct Attention {
  int heads, kv_heads, head_dim;
  int64_t window;
  CacheKind kind;
  bool norms;
  int splits;
};

class AttentionRun {
 public:
  AttentionRun(const Attention& shape, int64_t context)
      : shape_(shape),
        context_(context),
        qkv_(random_, context, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, 2),
        y_(random_, context, shape.heads * shape.head_dim, 0) {
    const int64_t rows = shape.kv_heads * context, bytes = rows * cache_row_bytes(shape.kind, shape.head_dim);
    const int64_t half = shape.head_dim / 2;
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < context * half; ++i) {
      const double angle = double(i / half) / std::pow(100.0, double(i % half) / double(half));
      cos.push_back(float(std::cos(angle)));
      sin.push_back(float(std::sin(angle)));
    }
    norm_ = normal(random_, size_t(shape.head_dim));
    for (float& value : norm_) value = 1 + value / 4;
    there_ = {Buffer<float>(device_, qkv_.values),
              Buffer<float>(device_, y_.values),
              Buffer<float>(device_, cos),
              Buffer<float>(device_, sin),
              Buffer<float>(device_, norm_),
              Buffer<float>(device_, std::vector<float>(size_t(kFewTokens * shape.heads * shape.splits *
                                                               (padded(shape.head_dim) + 2)))),
              Buffer<float>(device_, std::vector<float>(size_t(2 * rows))),
              Buffer<uint8_t>(device_, std::vector<uint8_t>(size_t(bytes))),
              Buffer<uint8_t>(device_, std::vector<uint8_t>(size_t(bytes))),
              Buffer<uint32_t>(device_, std::vector<uint32_t>(size_t(kFewTokens * shape.heads)))};
    cos_ = std::move(cos);
    sin_ = std::move(sin);
  }

  // Tokens [first, first + count), all at once or one after the other.
  enum class Way { kOne, kFew, kTiles };
  void run(int64_t first, int count, Way way) {
    const Buffer<int32_t> position(device_, {int32_t(first)});
    AttendArgs args;
    args.qkv = there_.qkv.data() + first * qkv_.stride;
    args.qkv_stride = qkv_.stride;
    if (shape_.norms) args.q_norm = args.k_norm = there_.norm.data();
    args.norm_eps = 1e-6f;
    args.call.position = position.data();
    args.call.cos = there_.cos.data() + first * (shape_.head_dim / 2);
    args.call.sin = there_.sin.data() + first * (shape_.head_dim / 2);
    args.cache = cache();
    args.heads = shape_.heads;
    args.kv_heads = shape_.kv_heads;
    args.head_dim = shape_.head_dim;
    args.window = shape_.window;
    args.tokens = count;
    args.y = there_.y.data() + first * y_.stride;
    args.y_stride = y_.stride;
    args.splits = shape_.splits;
    args.partial = there_.partial.data();
    args.counter = there_.counter.data();
    if (way == Way::kOne) {
      args.next = reinterpret_cast<const uint8_t*>(there_.qkv.data());
      args.next_bytes = 1008;
      attend(device_.stream(), args, true);
    } else {
      store_keys(device_.stream(), args);
      if (way == Way::kTiles) {
        REQUIRE(can_attend_in_tiles(args));
        attend_in_tiles(device_.stream(), args);
      } else {
        for (; args.first_token < count; args.first_token += kFewTokens) {
          args.tokens = std::min(kFewTokens, count - args.first_token);
          attend(device_.stream(), args, false);
        }
      }
    }
    y_.values = there_.y.read();
    keys_ = there_.keys.read();
    values_ = there_.values.read();
    factors_ = there_.factors.read();
  }

  // Of the outputs of tokens [first, last), given what the cache holds.
  double error(int64_t first, int64_t last) const {
    Difference difference;
    const int64_t d = shape_.head_dim;
    for (int64_t t = first; t < last; ++t) {
      for (int64_t h = 0; h < shape_.heads; ++h) {
        const std::vector<double> q = rotated(t, h);
        const int64_t kv = h / (shape_.heads / shape_.kv_heads);
        const int64_t begin = shape_.window > 0 ? std::max<int64_t>(0, t + 1 - shape_.window) : 0;
        std::vector<double> out(static_cast<size_t>(d));
        double sum = 0, largest = -1e300;
        std::vector<double> scores;
        for (int64_t k = begin; k <= t; ++k) {
          double dot = 0;
          for (int64_t i = 0; i < d; ++i) dot += q[size_t(i)] * held(true, kv, k, i);
          scores.push_back(dot / std::sqrt(double(d)));
          largest = std::max(largest, scores.back());
        }
        for (int64_t k = begin; k <= t; ++k) {
          const double weight = std::exp(scores[size_t(k - begin)] - largest);
          sum += weight;
          for (int64_t i = 0; i < d; ++i) out[size_t(i)] += weight * held(false, kv, k, i);
        }
        for (int64_t i = 0; i < d; ++i) difference.add(y_.at(t, h * d + i), out[size_t(i)] / sum);
      }
    }
    return difference.error();
  }
  // Of what the cache holds for tokens [0, last).
  double cache_error(int64_t last) const {
    Difference difference;
    for (int64_t t = 0; t < last; ++t) {
      for (int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
        const std::vector<double> key = rotated(t, shape_.heads + kv);
        for (int64_t i = 0; i < shape_.head_dim; ++i) {
          difference.add(held(true, kv, t, i), key[size_t(i)]);
          difference.add(held(false, kv, t, i),
                         qkv_.at(t, (shape_.heads + shape_.kv_heads + kv) * shape_.head_dim + i));
        }
      }
    }
    return difference.error();
  }
  const std::vector<float>& outputs() const { return y_.values; }

 private:
  Cache cache() {
    Cache cache;
    cache.keys = there_.keys.data();
    cache.values = there_.values.data();
    cache.key_factor = there_.factors.data();
    cache.value_factor = cache.key_factor + shape_.kv_heads * context_;
    cache.context = context_;
    cache.row_bytes = cache_row_bytes(shape_.kind, shape_.head_dim);
    cache.kind = shape_.kind;
    return cache;
  }
  std::vector<double> rotated(int64_t t, int64_t head) const {
    const int64_t d = shape_.head_dim, half = d / 2;
    std::vector<double> x(static_cast<size_t>(d)), out = x;
    double squares = 0;
    for (int64_t i = 0; i < d; ++i) squares += double(qkv_.at(t, head * d + i)) * qkv_.at(t, head * d + i);
    const double factor = 1 / std::sqrt(squares / double(d) + 1e-6);
    for (int64_t i = 0; i < d; ++i)
      x[size_t(i)] = qkv_.at(t, head * d + i) * (shape_.norms ? factor * norm_[size_t(i)] : 1);
    for (int64_t i = 0; i < half; ++i) {
      const double cos = cos_[size_t(t * half + i)], sin = sin_[size_t(t * half + i)];
      out[size_t(i)] = x[size_t(i)] * cos - x[size_t(i + half)] * sin;
      out[size_t(i + half)] = x[size_t(i + half)] * cos + x[size_t(i)] * sin;
    }
    return out;
  }
  double held(bool key, int64_t kv, int64_t t, int64_t i) const {
    const int64_t at = kv * context_ + t;
    const uint8_t* const bits8 = (key ? keys_ : values_).data() + at * cache_row_bytes(shape_.kind, shape_.head_dim);
    const auto* const bits16 = reinterpret_cast<const uint16_t*>(bits8);
    const double factor = factors_[size_t(at) + (key ? 0 : factors_.size() / 2)];
    switch (shape_.kind) {
      case CacheKind::kF32: return reinterpret_cast<const float*>(bits8)[i];
      case CacheKind::kF16: return f16_to_float(bits16[i]);
      case CacheKind::kBf16: return bf16_to_float(bits16[i]);
      case CacheKind::kI8: return double(int8_t(bits8[i])) * factor;
      case CacheKind::kE4M3: return double(e4m3_to_float(bits8[i])) * factor;
    }
    return 0;
  }

  Attention shape_;
  int64_t context_;
  std::mt19937 random_{11};
  gpu::Device device_{0};
  Rows qkv_, y_;
  std::vector<float> cos_, sin_, norm_, factors_;
  std::vector<uint8_t> keys_, values_;
  struct There {
    Buffer<float> qkv, y, cos, sin, norm, partial, factors;
    Buffer<uint8_t> keys, values;
    Buffer<uint32_t> counter;
  } there_;
};

using Way = AttentionRun::Way;

std::vector<Attention> attentions() {
  using enum CacheKind;
  return {{4, 4, 8, 0, kF16, false, 3},    {6, 2, 64, 0, kF16, true, 4},   {7, 1, 80, 0, kBf16, false, 2},
          {16, 1, 128, 0, kF16, true, 5},  {4, 2, 96, 40, kBf16, true, 3}, {2, 1, 128, 100, kF16, false, 64},
          {4, 2, 64, 0, kF32, true, 4},    {4, 1, 32, 9, kI8, true, 2},    {3, 1, 64, 0, kE4M3, false, 3},
          {2, 2, 256, 0, kF16, false, 2},  {2, 1, 12, 0, kF16, true, 1},   {2, 2, 2, 0, kF32, false, 1},
          {4, 4, 128, 33, kE4M3, true, 7}, {8, 1, 64, 0, kI8, false, 1}};
}

TEST_CASE("kernels: attention of one token after the other, of a few and of many") {
  for (const Attention& shape : attentions()) {
    INFO(shape.heads, "/", shape.kv_heads, " heads of ", shape.head_dim, ", window ", shape.window, ", cache ",
         int(shape.kind), ", ", shape.splits, " splits");
    constexpr int64_t kContext = 210;
    AttentionRun run(shape, kContext);
    // Attention itself is done in floats, what the cache holds is rounded.
    run.run(0, 100, Way::kFew);
    CHECK(run.error(0, 100) < 2e-6);
    for (int64_t t = 100; t < 110; ++t) run.run(t, 1, Way::kOne);
    CHECK(run.error(100, 110) < 2e-6);
    const double rounding = shape.kind == CacheKind::kF32    ? 1e-6
                            : shape.kind == CacheKind::kF16  ? 5e-4
                            : shape.kind == CacheKind::kBf16 ? 4e-3
                            : shape.kind == CacheKind::kI8   ? 1.2e-2
                                                             : 4e-2;
    CHECK(run.cache_error(110) < rounding);
    CHECK(run.cache_error(110) > 0);
    AttendArgs args;
    args.cache.kind = shape.kind;
    args.head_dim = shape.head_dim;
    if (!can_attend_in_tiles(args)) continue;
    run.run(110, 100, Way::kTiles);
    CHECK(run.error(110, 210) < (shape.kind == CacheKind::kF16 ? 2e-3 : 1.5e-2));
    AttentionRun fresh(shape, kContext);
    fresh.run(0, 70, Way::kTiles);
    CHECK(fresh.error(0, 70) < (shape.kind == CacheKind::kF16 ? 2e-3 : 1.5e-2));
  }
}

TEST_CASE("kernels: attention comes out the same alone, among others and in any order of threads") {
  for (const Attention& shape : attentions()) {
    std::vector<std::vector<float>> found;
    for (const Order order : kOrders) {
      set_order(order);
      AttentionRun run(shape, 70);
      run.run(0, 60, Way::kFew);
      if (order == Order::kShuffled) {
        run.run(60, 8, Way::kFew);
      } else {
        for (int64_t t = 60; t < 68; ++t) run.run(t, 1, Way::kOne);
      }
      found.push_back(run.outputs());
    }
    set_order(Order::kAscending);
    CHECK(found[0] == found[1]);
    CHECK(found[0] == found[2]);
  }
}

#if defined(QGEN_SIMT)
TEST_CASE("kernels: a barrier that not all threads reach is found, and other mistakes") {
  struct Nothing {};
  Stream stream;
  const auto error_of_kernel = [&](void (*kernel)(Nothing)) {
    try {
      launch(stream, "test", kernel, {2}, 64, 256, Nothing{});
    } catch (const std::logic_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(error_of_kernel([](Nothing) {
          if (thread_index() < 40) barrier();
        }) == "test: of 64 threads 40 wait at a barrier, 0 for their warp, 24 are done");
  CHECK(error_of_kernel([](Nothing) {
          if (thread_index() != 3) shuffle_xor(1, 1);
        }) == "test: of 64 threads 0 wait at a barrier, 31 for their warp, 33 are done");
  CHECK(error_of_kernel([](Nothing) {
          copy_async16(shared_memory<std::byte>(), nullptr, false);
          copy_async_commit();
        }) == "test: a copy was never waited for");
  CHECK(error_of_kernel([](Nothing) { load_once16(shared_memory<std::byte>() + 8); }) ==
        "test: a load from an unaligned address");
  CHECK(error_of_kernel([](Nothing) { barrier(); }).empty());
}

#endif

// The engine under test.
std::unique_ptr<Engine> make_gpu_engine(const Plan& plan, int64_t context, KvType kv = KvType::kF32,
                                        Activations activations = Activations::k16Bit) {
  EngineOptions options;
  options.context = context;
  options.kv = kv;
  options.activations = activations;
  return gpu::make_engine(plan, options);
}

TEST_CASE("kernels: the engine step by step against the reference engine") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  std::vector<TokenId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(TokenId(3 + i * 11 % 500));
  for (const int count : {1, 5, 40}) {
    const auto steps_of = [&](Engine& engine) {
      std::map<size_t, std::vector<float>> steps;
      engine.set_trace(
          [&](size_t step, std::span<const float> values) { steps[step].assign(values.begin(), values.end()); });
      engine.prefill({ids.data(), size_t(count)});
      return steps;
    };
    const auto engine = make_gpu_engine(*plan, 64), reference = make_engine(*plan, "reference", 64);
    const auto found = steps_of(*engine), expected = steps_of(*reference);
    CHECK(found.size() > plan->steps.size() / 2);
    for (const auto& [step, values] : found) {
      INFO(count, " tokens, step ", step, " ", std::string(step_name(plan->steps[step])));
      CHECK(normwise_error(values, expected.at(step)) < (count > LayerRunner::kMostFew ? 2e-3 : 2e-5));
    }
  }
}

TEST_CASE("kernels: the best of a row of scores") {
  gpu::Device device(0);
  std::mt19937 random(6);
  const Buffer<std::byte> found(device, std::vector<std::byte>(sizeof(FoundScores)));
  const Buffer<std::byte> scratch(device, std::vector<std::byte>(sizeof(ScoreArgs::Scratch)));
  for (const int count : {1, 2, 255, 1000, 33000}) {
    for (const int kind : {0, 1, 2, 3}) {
      std::vector<float> scores = normal(random, size_t(count), 6);
      if (kind == 1) {
        for (float& v : scores) v = std::round(v);  // many are alike
      }
      if (kind == 2) scores[size_t(count / 2)] = 200;  // one is far above the others
      if (kind == 3) scores[size_t(count - 1)] = count % 2 == 0 ? NAN : INFINITY;
      const Buffer<float> there(device, scores);
      ScoreArgs args;
      args.scores = there.data();
      args.count = count;
      args.wanted = 20;
      args.found = reinterpret_cast<FoundScores*>(found.data());
      args.scratch = reinterpret_cast<ScoreArgs::Scratch*>(scratch.data());
      find_best_score(device.stream(), args);
      find_best_scores(device.stream(), args);
      const std::vector<std::byte> bytes = found.read();
      const auto& result = *reinterpret_cast<const FoundScores*>(bytes.data());
      INFO(count, " scores of kind ", kind);
      CHECK(result.best.all_finite == (kind != 3));
      if (kind == 3) continue;
      const auto best = std::max_element(scores.begin(), scores.end());
      CHECK(result.best.token == best - scores.begin());
      CHECK(result.best.score == *best);
      if (kind != 2) CHECK(int(result.count) >= std::min(20, count));
      if (result.count > uint32_t(kMostBest)) continue;
      std::vector<bool> among(size_t(count), false);
      float lowest = *best;
      for (uint32_t i = 0; i < result.count; ++i) {
        const auto& [score, token] = result.token[i];
        CHECK(!among[size_t(token)]);
        among[size_t(token)] = true;
        CHECK(score == scores[size_t(token)]);
        lowest = std::min(lowest, score);
      }
      for (int i = 0; i < count; ++i) CHECK((among[size_t(i)] || scores[size_t(i)] < lowest));
    }
  }
}

TEST_CASE("kernels: the engine's best scores are those of all its scores") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  const auto engine = make_gpu_engine(*plan, 64);
  const TokenId prompt[] = {1, 403, 407};
  for (int i = 0; i < 4; ++i) {
    const Scores scores = i == 0 ? engine->prefill(prompt) : engine->decode(TokenId(30 + i));
    CHECK(scores.finite());
    CHECK(scores.best(1).size() == 1);
    const std::vector<ScoredToken> best = scores.best(30);
    CHECK(best.size() >= 30);
    const std::span<const float> all = scores.all();
    CHECK(best[0].token == std::max_element(all.begin(), all.end()) - all.begin());
    CHECK(best[0].token == scores.best(1)[0].token);
    for (const ScoredToken& b : best) CHECK(b.score == all[size_t(b.token)]);
    CHECK(std::count_if(all.begin(), all.end(), [&](float v) { return v >= best.back().score; }) ==
          int64_t(best.size()));
    CHECK(scores.best(5000).empty());
  }
}

TEST_CASE("kernels: the engine gives a token the same scores alone and among as many as a draft has") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  for (const KvType kv : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    const auto engine = make_gpu_engine(*plan, 100, kv);
    std::vector<TokenId> ids;
    for (int i = 0; i < 20 + LayerRunner::kMostFew; ++i) ids.push_back(TokenId(3 + i * 13 % 500));
    engine->prefill({ids.data(), 20});
    std::vector<std::vector<float>> together;
    engine->prefill({ids.data() + 20, LayerRunner::kMostFew}, [&](int64_t, std::span<const float> scores) {
      together.emplace_back(scores.begin(), scores.end());
    });
    engine->rewind(20);
    for (size_t i = 0; i < together.size(); ++i) {
      const std::span<const float> alone = engine->decode(ids[20 + i]);
      CHECK(std::equal(alone.begin(), alone.end(), together[i].begin()));
    }
  }
}

TEST_CASE("kernels: a recorded walk does at another place what an unrecorded one does") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  const auto engine = make_gpu_engine(*plan, 100);
  std::vector<TokenId> ids;
  for (int i = 0; i < 60; ++i) ids.push_back(TokenId(3 + i * 17 % 500));
  // By calls of so many tokens, each compared with that of an engine that has recorded nothing.
  for (const int at_once : {1, 5}) {
    for (const bool all : {false, true}) {
      engine->rewind(0);
      // The first call is not recorded, the second is, the third and the fourth run what was.
      for (size_t done = 0; done < 4 * size_t(at_once) && done <= size_t(LayerRunner::kMostFew);
           done += size_t(at_once)) {
        std::vector<float> rows;
        const LogitsSink sink = [&](int64_t, std::span<const float> row) {
          rows.insert(rows.end(), row.begin(), row.end());
        };
        const Scores scores = engine->prefill({ids.data() + done, size_t(at_once)}, all ? sink : LogitsSink());
        const auto fresh = make_gpu_engine(*plan, 100);
        if (done > 0) fresh->prefill({ids.data(), done});
        const Scores expected = fresh->prefill({ids.data() + done, size_t(at_once)});
        const std::span<const float> found = scores.all(), wanted = expected.all();
        CHECK(std::equal(found.begin(), found.end(), wanted.begin()));
        CHECK(scores.best(1)[0].token == expected.best(1)[0].token);
        if (all) CHECK(std::equal(found.begin(), found.end(), rows.end() - plan->model.vocab));
      }
    }
  }
}

TEST_CASE("kernels: the engine reproduces the goldens") {
  double worst = 0;
  size_t tokens = 0;
  for (const Golden& golden : goldens()) {
    INFO(golden.name);
    const auto plan = load_plan(golden.folder);
    // The executor is slow: the beginning of each prompt, more tokens than go through the kernels of a few.
    // With a dynamic base the first tokens' scores depend on the last.
    const bool all = plan->model.rope.scaling == Rope::Scaling::kDynamic;
    const size_t count = std::min<size_t>(golden.ids.size(), all ? SIZE_MAX : LayerRunner::kMostFew + 4);
    const std::span<const TokenId> ids(golden.ids.data(), count);
    const std::span<const float> expected(golden.logits.data(), count * size_t(plan->model.vocab));
    const int64_t context = int64_t(golden.ids.size() + golden.greedy.size());
    for (const Activations activations : {Activations::kF32, Activations::k16Bit}) {
      const bool exact = activations == Activations::kF32;
      const auto engine = make_gpu_engine(*plan, context, exact ? KvType::kF32 : KvType::kF16, activations);
      std::vector<float> logits;
      engine->prefill(
          ids, [&](int64_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
      const double error = normwise_error(logits, expected);
      CHECK(error < (exact ? golden.cpu_tolerance : 1e-2));
      if (!exact) worst = std::max(worst, error);
      if (exact) continue;
      engine->rewind(0);
      std::span<const float> scores = engine->prefill(golden.ids);
      size_t compared = 0;
      for (; compared < std::min<size_t>(golden.greedy.size(), 4) && golden.margins[compared] > 0.1; ++compared) {
        REQUIRE(std::max_element(scores.begin(), scores.end()) - scores.begin() == golden.greedy[compared]);
        scores = engine->decode(golden.greedy[compared]);
      }
      tokens += compared;
    }
  }
  CHECK(tokens > 0);
  MESSAGE("largest error with activations of 16 bits: ", worst);
}

TEST_CASE("kernels: what the engine says it takes, prompts longer than a batch, caches of every type, rewinding") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  std::vector<TokenId> ids;
  for (int i = 0; i < 540; ++i) ids.push_back(TokenId(3 + i * 7 % 500));
  for (const KvType kv : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kFp8, KvType::kInt8}) {
    INFO(std::string(kv_name(kv)));
    const size_t count = kv == KvType::kF16 ? ids.size() : 60;
    const double limit = kv == KvType::kFp8 ? 8e-2 : kv == KvType::kBf16 || kv == KvType::kInt8 ? 2e-2 : 4e-3;
    const int64_t context = int64_t(count) + 10;
    const auto reference = make_engine(*plan, "reference", context);
    const std::span<const float> expected = reference->prefill({ids.data(), count});
    const auto engine = make_gpu_engine(*plan, context, kv);
    CHECK(normwise_error(engine->prefill({ids.data(), count}), expected) < limit);
    CHECK(engine->position() == int64_t(count));
    engine->rewind(int64_t(count) - 10);
    const std::span<const float> again = engine->prefill({ids.data() + count - 10, 10});
    CHECK(normwise_error(again, expected) < limit);
    EngineOptions options;
    options.context = context;
    options.kv = kv;
    CHECK(engine->memory().total() == gpu::account_engine(*plan, options).total());
    CHECK(contains(error_of([&] { engine->prefill(ids); }), "the context is full"));
  }
}

TEST_CASE("kernels: a prompt that is stopped between batches goes on where it was stopped") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  std::vector<TokenId> ids;
  for (int i = 0; i < 530; ++i) ids.push_back(TokenId(3 + i * 7 % 500));
  const auto engine = make_gpu_engine(*plan, 540, KvType::kF16), whole = make_gpu_engine(*plan, 540, KvType::kF16);
  engine->set_observer([](double done) { return done > 512; });
  CHECK(engine->prefill(ids).empty());
  REQUIRE(engine->position() == 512);
  engine->set_observer({});
  const std::span<const float> rest = engine->prefill({ids.data() + 512, 18}), all = whole->prefill(ids);
  CHECK(std::equal(rest.begin(), rest.end(), all.begin()));
}

TEST_CASE("kernels: what measures the device reads and multiplies as much as it says") {
  gpu::Device device(0);
  const DeviceMemory memory(device, 300 << 10, "test"), sink(device, 256, "test");
  auto* const result = reinterpret_cast<float*>(sink.data());
  const auto* const zeros = reinterpret_cast<const uint8_t*>(memory.data());
  CHECK(read_memory(device.stream(), 2, zeros, 300 << 10, result) == (256 << 10));  // whole rounds of 64 KiB
  CHECK(multiply_registers(device.stream(), 1, 2, result) == int64_t{8} * 2 * 16 * 2 * 16 * 8 * 16);
  device.wait();
}

}  // namespace
}  // namespace qgen::test
