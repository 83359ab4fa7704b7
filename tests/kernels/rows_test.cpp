// Norms, gates and sums of rows, and causal convolutions, against plain double arithmetic.
#include "tests/kernels/on_device.h"

namespace qgen::test {
namespace {

struct RowShape {
  Norm::Kind kind;
  int cols, group;
  bool wide, has_gate;
  int gate_span;
  bool has_x, in_place;
  Activation activation = Activation::kSilu;
};

TEST_CASE("kernels: norms, gates and sums of rows") {
  using enum Norm::Kind;
  constexpr int kTokens = 3, kZeros = 5;
  constexpr float kEps = 1e-5f;
  gpu::Device device(0);
  for (const Order order : kOrders) {
    set_order(order);
    for (const RowShape& shape : {RowShape{kNone, 2500, 0, false, true, 1, true, false},
                                  {kNone, 70, 0, false, true, 70, false, true},
                                  {kNone, 2560, 0, false, true, 128, false, true, Activation::kSoftplus},
                                  {kNone, 36, 0, false, true, 12, true, false, Activation::kSigmoid},
                                  {kScale, 1200, 1200, true, true, 1, true, true, Activation::kExpm1Ratio},
                                  {kRms, 5003, 5003, true, false, 1, true, false},
                                  {kLayer, 1000, 1000, true, true, 1, false, true, Activation::kSoftplus},
                                  {kRms, 2304, 128, false, true, 1, false, false},
                                  {kLayer, 900, 300, true, true, 900, true, true},
                                  {kRms, 36, 12, true, false, 1, false, false},
                                  {kScale, 256, 64, false, false, 1, false, false}}) {
      INFO(int(shape.kind), ", ", shape.cols, " columns in groups of ", shape.group);
      std::mt19937 random(8);
      const int stride = shape.cols + kZeros;
      const auto rows = [&](float size) { return normal(random, size_t(kTokens * stride), size); };
      const std::vector<float> x = rows(1), y = rows(3), gates = rows(2),
                               weight = normal(random, size_t(shape.wide ? shape.cols : std::max(1, shape.group))),
                               bias = normal(random, weight.size());
      const Buffer<float> x_there(device, x), y_there(device, y), gates_there(device, gates),
          weight_there(device, weight), bias_there(device, bias), out_there(device, rows(1));
      CombineArgs args;
      args.y = y_there.data();
      args.y_scale = 0.5f;
      if (shape.has_x) args.x = x_there.data();
      args.x_scale = 2;
      if (shape.has_gate) args.gate = gates_there.data();
      args.gate_span = shape.gate_span;
      args.activation = shape.activation;
      args.norm.kind = shape.kind;
      args.norm.group = shape.group;
      args.norm.eps = kEps;
      args.norm.weight = weight_there.data();
      args.norm.wide_weight = args.norm.wide_bias = shape.wide;
      if (shape.kind == kLayer) args.norm.bias = bias_there.data();
      args.x_stride = args.y_stride = args.gate_stride = args.out_stride = stride;
      const Buffer<float>& out = shape.in_place ? y_there : out_there;
      args.out = out.data();
      args.cols = shape.cols;
      args.zeros = kZeros;
      args.tokens = kTokens;
      combine(device.stream(), args);

      std::vector<float> expected(x.size(), 0);
      for (int t = 0; t < kTokens; ++t) {
        for (int c = 0; c < shape.cols; ++c) {
          const size_t row = size_t(t * stride);
          double value = y[row + size_t(c)];
          if (shape.kind != kNone) {
            const int begin = c / shape.group * shape.group;
            double mean = 0, squares = 0;
            for (int i = 0; i < shape.group; ++i) mean += y[row + size_t(begin + i)] / double(shape.group);
            if (shape.kind != kLayer) mean = 0;
            for (int i = 0; i < shape.group; ++i) squares += std::pow(y[row + size_t(begin + i)] - mean, 2);
            if (shape.kind != kScale) value = (value - mean) / std::sqrt(squares / shape.group + double(kEps));
            const size_t at = size_t(shape.wide ? c : c - begin);
            value *= weight[at];
            if (shape.kind == kLayer) value += bias[at];
          }
          value *= 0.5;
          if (shape.has_gate) value *= activate(shape.activation, gates[row + size_t(c / shape.gate_span)]);
          if (shape.has_x) value += 2 * double(x[row + size_t(c)]);
          expected[row + size_t(c)] = float(value);
        }
      }
      CHECK(normwise_error(out.read(), expected) < 1e-6);
    }
  }
  set_order(Order::kAscending);
}

TEST_CASE("kernels: causal convolutions, of a few and of many tokens, in place too") {
  gpu::Device device(0);
  struct Shape {
    int taps, cols;
    std::vector<int32_t> first, marked;  // of each segment's tokens, and their end; a token of each, or -1
    bool in_place;
  };
  for (const Order order : kOrders) {
    set_order(order);
    for (const Shape& shape : {Shape{4, 40, {0, 1, 2}, {-1, 1}, false},
                               {4, 70, {0, 300}, {255}, true},
                               {4, 33, {0, 128, 128, 260}, {127, -1, 130}, false},
                               {2, 5, {0, 2}, {0}, true},
                               {7, 32, {0, 3, 140}, {1, 138}, true}}) {
      INFO(shape.taps, " taps, ", shape.cols, " columns");
      std::mt19937 random(9);
      const int tokens = shape.first.back(), before = shape.taps - 1, segments = int(shape.marked.size());
      const int64_t slot_size = int64_t{before} * shape.cols;
      const std::vector<float> x = normal(random, size_t(tokens * shape.cols), 1),
                               weight = normal(random, size_t(shape.cols * shape.taps), 1),
                               bias = normal(random, size_t(shape.cols), 1),
                               state = normal(random, size_t(3 * segments * slot_size), 1);
      std::vector<int32_t> slots, new_slots, mark_slots;
      for (int s = 0; s < segments; ++s) {
        slots.push_back(3 * s + 1);
        new_slots.push_back(3 * s + (s % 2 == 0 ? 2 : 1));
        mark_slots.push_back(3 * s);
      }
      const Buffer<float> x_there(device, x), y_there(device, std::vector<float>(x.size())),
          weight_there(device, weight), bias_there(device, bias), state_there(device, state);
      const Buffer<int32_t> first(device, shape.first), marked(device, shape.marked), slots_there(device, slots),
          new_slots_there(device, new_slots), marks_there(device, mark_slots);
      ConvArgs args;
      args.x = x_there.data();
      args.y = shape.in_place ? x_there.data() : y_there.data();
      args.x_stride = args.y_stride = args.cols = shape.cols;
      args.weight = weight_there.data();
      args.bias = bias_there.data();
      args.activation = Activation::kSilu;
      args.state = state_there.data();
      args.segments = {first.data(),  slots_there.data(), new_slots_there.data(),
                       marked.data(), marks_there.data(), segments};
      args.taps = shape.taps;
      args.tokens = tokens;
      convolve(device.stream(), args);

      std::vector<float> expected(x.size()), after = state;
      for (int s = 0; s < segments; ++s) {
        const int begin = shape.first[size_t(s)], end = shape.first[size_t(s) + 1];
        // Input `t` of the segment; those before it are in the state.
        const auto input = [&](int t, int c) {
          const int64_t own = int64_t{slots[size_t(s)]} * slot_size;
          return t >= begin ? x[size_t(t * shape.cols + c)]
                            : state[size_t(own + (before + t - begin) * shape.cols + c)];
        };
        const auto keep = [&](int slot, int behind) {
          for (int i = 0; i < before; ++i) {
            for (int c = 0; c < shape.cols; ++c)
              after[size_t(slot * slot_size + i * shape.cols + c)] = input(behind - before + i, c);
          }
        };
        for (int t = begin; t < end; ++t) {
          for (int c = 0; c < shape.cols; ++c) {
            double sum = bias[size_t(c)];
            for (int i = 0; i < shape.taps; ++i)
              sum += double(weight[size_t(c * shape.taps + i)]) * input(t - before + i, c);
            expected[size_t(t * shape.cols + c)] = float(activate(Activation::kSilu, sum));
          }
        }
        if (begin == end) continue;
        if (shape.marked[size_t(s)] >= 0) keep(mark_slots[size_t(s)], shape.marked[size_t(s)] + 1);
        keep(new_slots[size_t(s)], end);
      }
      CHECK(normwise_error((shape.in_place ? x_there : y_there).read(), expected) < 1e-6);
      CHECK(state_there.read() == after);
    }
  }
  set_order(Order::kAscending);
}

}  // namespace
}  // namespace qgen::test
