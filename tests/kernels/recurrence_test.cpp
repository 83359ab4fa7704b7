// Linear recurrences on a device against plain double arithmetic, token by token and in chunks.
#include "tests/kernels/on_device.h"

namespace qgen::test {
namespace {

struct RecurShape {
  bool delta, unit_keys, key_heads_repeat;
  int key_dim, value_dim;
  std::vector<int32_t> first;   // of each segment's tokens, and their end
  std::vector<int32_t> marked;  // a token of each segment, or -1
  float decay_size = 1;         // of the numbers that decays are made of
  int key_heads = 2, heads = 4;
  bool resets = false;  // every ninth token's decay is zero
};

// Tokens of segments whose states lie in slots of their own, and are marked in others.
class Recurrence {
 public:
  Recurrence(gpu::Device& device, const RecurShape& shape)
      : device_(device), shape_(shape), tokens_(shape.first.back()), segments_(int(shape.marked.size())) {
    std::mt19937 random(5);
    const auto of = [&](int64_t each, float size = 1) { return normal(random, size_t(tokens_ * each), size); };
    k_ = of(key_stride());
    q_ = of(key_stride());
    v_ = of(value_stride());
    decay_ = of(shape_.heads, shape.decay_size);
    for (int64_t t = 4; shape.resets && t < tokens_; t += 9)
      std::fill_n(&decay_[size_t(t * shape.heads)], shape.heads, 1e6f);
    rate_ = of(shape_.heads);
    a_log_ = normal(random, shape_.heads);
    bias_ = normal(random, shape_.heads);
    skip_ = normal(random, shape_.heads);
    state_ = normal(random, size_t(3 * segments_ * shape_.heads * shape.key_dim * shape.value_dim));
    for (int s = 0; s < segments_; ++s) {
      slots_.push_back(3 * s + 1);
      new_slots_.push_back(3 * s + (s % 2 == 0 ? 2 : 1));
      mark_slots_.push_back(3 * s);
    }
  }

  void run(bool in_chunks) {
    const Buffer<float> k(device_, k_), q(device_, q_), v(device_, v_), decay(device_, decay_), rate(device_, rate_),
        a_log(device_, a_log_), bias(device_, bias_), skip(device_, skip_), state(device_, state_),
        keys(device_, std::vector<float>(size_t(tokens_ * shape_.key_heads * shape_.key_dim))),
        queries(device_, std::vector<float>(size_t(tokens_ * shape_.key_heads * shape_.key_dim))),
        rates(device_, std::vector<float>(size_t(tokens_ * shape_.heads * 2))),
        products(device_, std::vector<float>(size_t(chunks() * shape_.key_heads * kRecurTileFloats))),
        solved(device_, std::vector<float>(size_t(shape_.delta ? chunks() * shape_.heads * kRecurTileFloats : 1))),
        y(device_, std::vector<float>(size_t(tokens_ * y_stride())));
    const Buffer<int32_t> first(device_, shape_.first), marked(device_, shape_.marked), slots(device_, slots_),
        new_slots(device_, new_slots_), mark_slots(device_, mark_slots_);
    RecurArgs args;
    args.delta = shape_.delta;
    args.in_chunks = in_chunks;
    args.q = {q.data(), key_stride(), shape_.key_dim + 1};
    args.k = {k.data(), key_stride(), shape_.key_dim + 1};
    args.v = {v.data(), value_stride(), shape_.value_dim + 2};
    args.decay = decay.data();
    args.decay_stride = shape_.heads;
    args.rate = rate.data();
    args.rate_stride = shape_.heads;
    args.a_log = a_log.data();
    args.decay_bias = bias.data();
    if (has_skip()) args.skip = skip.data();
    args.key_heads_repeat = shape_.key_heads_repeat;
    args.unit_keys = shape_.unit_keys;
    args.eps = kEps;
    args.scale = scale();
    args.keys = keys.data();
    args.queries = queries.data();
    args.rates = rates.data();
    args.products = products.data();
    args.solved = solved.data();
    args.state = state.data();
    args.y = y.data();
    args.y_stride = y_stride();
    args.segments = {first.data(), slots.data(), new_slots.data(), marked.data(), mark_slots.data(), segments_};
    args.heads = shape_.heads;
    args.key_heads = shape_.key_heads;
    args.key_dim = shape_.key_dim;
    args.value_dim = shape_.value_dim;
    args.tokens = int(tokens_);
    gpu::recur(device_.stream(), args);
    out = y.read();
    after = state.read();
  }

  void run_in_double() {
    out.assign(size_t(tokens_ * y_stride()), 0);
    after = state_;
    for (int s = 0; s < segments_; ++s) {
      for (int h = 0; h < shape_.heads; ++h) run_head_in_double(s, h);
    }
  }

  std::vector<float> out, after;  // (tokens, y_stride), states of all slots

 private:
  static constexpr float kEps = 1e-6f;
  bool has_skip() const { return !shape_.delta || shape_.value_dim % 2 != 0; }
  float scale() const { return 1 / std::sqrt(float(shape_.key_dim)); }
  int64_t chunks() const { return recur_chunks(tokens_); }
  int64_t key_stride() const { return shape_.key_heads * (shape_.key_dim + 1) + 3; }
  int64_t value_stride() const { return shape_.heads * (shape_.value_dim + 2) + 5; }
  int64_t y_stride() const { return shape_.heads * shape_.value_dim + 1; }
  float* state_of(int slot, int h) {
    return after.data() + (int64_t(slot) * shape_.heads + h) * shape_.key_dim * shape_.value_dim;
  }

  std::vector<double> unit(const std::vector<float>& all, int64_t t, int head, double factor) const {
    const float* const x = all.data() + t * key_stride() + head * (shape_.key_dim + 1);
    double squares = 0;
    for (int i = 0; i < shape_.key_dim; ++i) squares += double(x[i]) * x[i];
    if (shape_.unit_keys) factor /= std::sqrt(squares + kEps);
    std::vector<double> scaled;
    for (int i = 0; i < shape_.key_dim; ++i) scaled.push_back(x[i] * factor);
    return scaled;
  }

  void run_head_in_double(int segment, int h) {
    const int d = shape_.key_dim, n = shape_.value_dim, begin = shape_.first[size_t(segment)];
    const int key_head = shape_.key_heads_repeat ? h % shape_.key_heads : h / (shape_.heads / shape_.key_heads);
    float* const there = state_of(slots_[size_t(segment)], h);
    std::vector<double> state(there, there + d * n);
    const auto keep = [&](float* to) { std::copy(state.begin(), state.end(), to); };
    for (int64_t t = begin; t < shape_.first[size_t(segment) + 1]; ++t) {
      const auto k = unit(k_, t, key_head, 1), q = unit(q_, t, key_head, double(scale()));
      const double rise = std::log1p(std::exp(double(decay_[size_t(t * shape_.heads + h)]) + bias_[size_t(h)]));
      const double g = std::exp(-std::exp(double(a_log_[size_t(h)])) * rise);
      const double rate = shape_.delta ? 1 / (1 + std::exp(-double(rate_[size_t(t * shape_.heads + h)]))) : rise;
      for (int c = 0; c < n; ++c) {
        const double v = v_[size_t(t * value_stride() + h * (n + 2) + c)];
        double known = 0, sum = has_skip() ? skip_[size_t(h)] * v : 0;
        for (int i = 0; shape_.delta && i < d; ++i) known += state[size_t(i * n + c)] * k[size_t(i)];
        for (int i = 0; i < d; ++i) {
          double& s = state[size_t(i * n + c)];
          s = g * s + k[size_t(i)] * rate * (v - g * known);
          sum += s * q[size_t(i)];
        }
        out[size_t(t * y_stride() + h * n + c)] = float(sum);
      }
      if (t == shape_.marked[size_t(segment)]) keep(state_of(mark_slots_[size_t(segment)], h));
    }
    if (shape_.first[size_t(segment) + 1] > begin) keep(state_of(new_slots_[size_t(segment)], h));
  }

  gpu::Device& device_;
  const RecurShape shape_;
  int64_t tokens_;
  int segments_;
  std::vector<float> k_, q_, v_, decay_, rate_, a_log_, bias_, skip_, state_;
  std::vector<int32_t> slots_, new_slots_, mark_slots_;
};

std::vector<RecurShape> recur_shapes() {
  return {
      // In chunks too: marks within them, at their ends and beginnings; keys that fill no tile.
      {true, true, false, 128, 40, {0, 101}, {-1}},
      {true, true, false, 128, 128, {0, 43}, {17}},
      {true, true, true, 64, 32, {0, 75}, {31}},
      {true, true, false, 96, 70, {0, 97}, {32}},
      {true, true, false, 256, 24, {0, 70}, {65}},
      {true, true, true, 200, 33, {0, 66}, {5}},
      {true, true, false, 12, 7, {0, 24}, {23}},
      {true, true, false, 4, 5, {0, 33}, {0}},
      {false, false, false, 128, 64, {0, 67}, {0}},
      {false, false, true, 16, 33, {0, 50}, {-1}},
      {false, false, false, 132, 8, {0, 40}, {38}},
      {false, true, false, 256, 8, {0, 33}, {32}},
      // Hardly any decay, or nearly all at once; states that are forgotten; many heads of a key head, and one.
      {true, true, false, 32, 20, {0, 40}, {33}, 60},
      {false, false, false, 64, 33, {0, 35}, {20}, 60},
      {true, true, false, 64, 24, {0, 90}, {-1}, 1, 2, 4, true},
      {true, true, false, 32, 16, {0, 45}, {40}, 1, 2, 10, true},
      {false, false, true, 32, 16, {0, 45}, {2}, 1, 3, 27},
      {true, true, false, 64, 32, {0, 40}, {-1}, 1, 3, 3},
      // Several segments, one of them without tokens; keys that are not of whole 4 elements.
      {true, true, true, 64, 32, {0, 9, 9, 10, 27}, {3, -1, 9, 18}},
      {false, false, true, 16, 33, {0, 1, 17}, {-1, 16}},
      {true, true, false, 10, 33, {0, 20}, {-1}},
  };
}

// Products of TF32 whose operands keep all bits, while it lives.
#if defined(QGEN_SIMT)
struct AllBits {
  AllBits() { set_tf32_rounding(false); }
  ~AllBits() { set_tf32_rounding(true); }
};
#endif

// What may be wrong token by token; in chunks; and in chunks where the executor leaves operands of products all bits.
constexpr double kF32Error = 1e-6, kTf32Error = 6e-4, kChunkError = 1e-5;

TEST_CASE("kernels: recurrences, token by token and in chunks") {
  gpu::Device device(0);
  for (const Order order : kOrders) {
    set_order(order);
    for (const RecurShape& shape : recur_shapes()) {
      Recurrence recurrence(device, shape);
      recurrence.run_in_double();
      const auto out = recurrence.out, after = recurrence.after;
      const auto check = [&](bool in_chunks, double most) {
        INFO(shape.delta, " ", shape.key_dim, " ", shape.value_dim, " ", in_chunks, " ", most);
        recurrence.run(in_chunks);
        CHECK(normwise_error(recurrence.out, out) < most);
        CHECK(normwise_error(recurrence.after, after) < most);
      };
      check(false, kF32Error);
      if (!can_recur_in_chunks(shape.key_dim) || shape.marked.size() > 1) continue;
      check(true, kTf32Error);
#if defined(QGEN_SIMT)
      if (order != Order::kAscending) continue;
      const AllBits all_bits;
      check(true, kChunkError);
#endif
    }
  }
  set_order(Order::kAscending);
}

constexpr int kKeyHeads = 2, kHeads = 4;

struct PassedShape {
  bool delta;
  int key_dim, value_dim, taps;  // no taps: no convolution
  bool conv_bias, silu, normed, gate_silu;
  std::vector<int32_t> first, marked;
  bool gated = true, key_heads_repeat = false;
};

// A convolution, a recurrence and the gate behind it, by kernels of their own or by one.
class PassedRecurrence {
 public:
  PassedRecurrence(gpu::Device& device, const PassedShape& shape) : shape_(shape), device_(device) {
    std::mt19937 random(11);
    const auto of = [&](int64_t count) { return normal(random, size_t(count)); };
    rows_ = of(tokens() * stride());
    weights_ = of(conv_cols() * std::max(1, shape.taps));
    conv_bias_ = of(conv_cols());
    conv_state_ = of(3 * segments() * std::max(1, shape.taps - 1) * conv_cols());
    state_ = of(3 * segments() * kHeads * shape.key_dim * shape.value_dim);
    of_heads_ = of(kHeads);
    norm_ = of(shape.value_dim);
  }

  void run(bool at_once) {
    const Buffer<float> rows(device_, rows_), convolved(device_, rows_), weights(device_, weights_),
        conv_bias(device_, conv_bias_), conv_state(device_, conv_state_), state(device_, state_),
        of_heads(device_, of_heads_), norm(device_, norm_),
        y(device_, std::vector<float>(size_t(tokens() * kHeads * shape_.value_dim)));
    const Buffer<uint32_t> counter(device_, std::vector<uint32_t>(size_t(segments() * kKeyHeads)));
    // Of every other segment the states go to another slot.
    std::vector<int32_t> slots, new_slots, mark_slots;
    for (int s = 0; s < segments(); ++s) {
      slots.push_back(3 * s);
      new_slots.push_back(s % 2 == 0 ? 3 * s : 3 * s + 2);
      mark_slots.push_back(3 * s + 1);
    }
    const Buffer<int32_t> first(device_, shape_.first), marked(device_, shape_.marked), slot(device_, slots),
        new_slot(device_, new_slots), mark_slot(device_, mark_slots);
    ConvArgs conv;
    conv.x = rows.data() + kBefore;
    conv.y = convolved.data() + kBefore;
    conv.x_stride = conv.y_stride = stride();
    conv.weight = weights.data();
    conv.bias = shape_.conv_bias ? conv_bias.data() : nullptr;
    conv.activation = shape_.silu ? Activation::kSilu : Activation::kNone;
    conv.state = conv_state.data();
    conv.segments = {first.data(), slot.data(), new_slot.data(), marked.data(), mark_slot.data(), segments()};
    conv.taps = shape_.taps;
    conv.cols = int(conv_cols());
    conv.tokens = int(tokens());
    RecurArgs args;
    args.delta = args.unit_keys = shape_.delta;
    args.v = {at_once || shape_.taps == 0 ? conv.x : conv.y, stride(), shape_.value_dim};
    args.k = {args.v.x + kHeads * shape_.value_dim, stride(), shape_.key_dim};
    args.q = {args.k.x + kKeyHeads * shape_.key_dim, stride(), shape_.key_dim};
    const float* const behind = conv.x + conv_cols();
    args.decay = behind;
    args.rate = behind + kHeads;
    args.decay_stride = args.rate_stride = stride();
    args.a_log = args.decay_bias = args.skip = of_heads.data();
    args.eps = 1e-6f;
    args.scale = 0.25f;
    args.state = state.data();
    args.y = y.data();
    args.y_stride = kHeads * shape_.value_dim;
    args.segments = conv.segments;
    args.heads = kHeads;
    args.key_heads = kKeyHeads;
    args.key_dim = shape_.key_dim;
    args.value_dim = shape_.value_dim;
    args.key_heads_repeat = shape_.key_heads_repeat;
    args.tokens = int(tokens());
    CombineArgs gate;
    gate.y = gate.out = y.data();
    gate.y_stride = gate.out_stride = args.y_stride;
    if (shape_.normed) gate.norm = {Norm::Kind::kRms, norm.data(), nullptr, false, false, shape_.value_dim, 1e-5f};
    gate.gate = behind + 2 * kHeads;
    gate.gate_stride = stride();
    gate.activation = shape_.gate_silu ? Activation::kSilu : Activation::kSigmoid;
    gate.cols = kHeads * shape_.value_dim;
    gate.tokens = int(tokens());
    // Twice, the second time from where the first one has left the states.
    for (int i = 0; i < 2; ++i) {
      if (i > 0) y.read();  // a call begins with a copy
      if (at_once) {
        if (shape_.taps > 0) args.conv = conv;
        args.counter = counter.data();
        if (shape_.gated) {
          args.norm = gate.norm;
          args.gate = {gate.gate, stride(), shape_.value_dim};
          args.gate_silu = shape_.gate_silu;
        }
        gpu::recur(device_.stream(), args);
      } else {
        if (shape_.taps > 0) gpu::convolve(device_.stream(), conv);
        gpu::recur(device_.stream(), args);
        if (shape_.gated) gpu::combine(device_.stream(), gate);
      }
    }
    out = y.read();
    after = state.read();
    conv_after = conv_state.read();
    CHECK(counter.read() == std::vector<uint32_t>(size_t(segments() * kKeyHeads)));
  }

  std::vector<float> out, after, conv_after;

 private:
  static constexpr int kBefore = 3;  // columns of the rows
  int64_t tokens() const { return shape_.first.back(); }
  int segments() const { return int(shape_.marked.size()); }
  int64_t conv_cols() const { return kHeads * shape_.value_dim + 2 * kKeyHeads * shape_.key_dim; }
  int64_t stride() const { return kBefore + conv_cols() + 2 * kHeads + kHeads * shape_.value_dim; }

  const PassedShape shape_;
  gpu::Device& device_;
  std::vector<float> rows_, weights_, conv_bias_, conv_state_, state_, of_heads_, norm_;
};

TEST_CASE("kernels: smoke, a recurrence that does the convolution before it and the gate behind it") {
  gpu::Device device(0);
  for (const Order order : kOrders) {
    set_order(order);
    for (const PassedShape& shape : {
             PassedShape{true, 128, 128, 4, false, true, true, true, {0, 1}, {-1}},
             // Fewer tokens than taps, marks among them, a segment without tokens.
             PassedShape{true, 128, 128, 4, false, true, true, false, {0, 2, 2, 9}, {0, -1, 6}},
             PassedShape{true, 12, 40, 3, true, false, true, true, {0, 5, 6}, {4, -1}},
             PassedShape{false, 128, 64, 4, true, true, false, true, {0, 1, 4}, {-1, 1}},
             PassedShape{false, 256, 100, 2, false, true, true, false, {0, 3}, {2}},
             PassedShape{false, 200, 50, 1, true, true, false, true, {0, 2, 3}, {-1, 2}},
             // Blocks of several columns and heads share keys and queries; without the gate, without the convolution.
             PassedShape{true, 64, 160, 4, false, true, false, true, {0, 3}, {1}, false, true},
             PassedShape{true, 128, 128, 4, false, true, true, true, {0, 2}, {-1}, true, true},
             PassedShape{true, 128, 96, 0, false, true, true, true, {0, 2}, {0}},
         }) {
      INFO(shape.key_dim, " ", shape.value_dim, " ", shape.taps);
      PassedRecurrence recurrence(device, shape);
      recurrence.run(false);
      const auto out = recurrence.out, after = recurrence.after, conv_after = recurrence.conv_after;
      recurrence.run(true);
      CHECK(normwise_error(recurrence.out, out) < 1e-6);
      CHECK(normwise_error(recurrence.after, after) < 1e-6);
      CHECK(recurrence.conv_after == conv_after);
    }
  }
  set_order(Order::kAscending);
}

}  // namespace
}  // namespace qgen::test
