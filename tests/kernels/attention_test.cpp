// The kernels of attention and its cache against plain double arithmetic.
#include "tests/kernels/on_device.h"

namespace qgen::test {
namespace {

// Pages of the cache, whose order in a sequence's table is not theirs; one of them is no one's.
constexpr int kTestPage = 64;
std::vector<int32_t> table_of(int64_t tokens) {
  std::vector<int32_t> table;
  for (int64_t i = 0; i * kTestPage < tokens; ++i) table.push_back(int32_t(i % 2 == 0 ? i + 1 : i - 1));
  if (table.size() % 2 != 0) table.back() = int32_t(table.size());
  return table;
}

// A layer's attention over a cache that tokens are put into piece by piece.
struct Attention {
  int heads, kv_heads, head_dim;
  int64_t window;
  CacheKind kind;
  bool norms;
  int splits;
  int value_dim = 0;    // 0: that of keys
  bool extras = false;  // a softcap, sinks and gates

  int values() const { return value_dim == 0 ? head_dim : value_dim; }
};

class AttentionRun {
 public:
  AttentionRun(const Attention& shape, int64_t context)
      : shape_(shape),
        table_(table_of(context)),
        qkv_(random_, context,
             (shape.heads + shape.kv_heads) * shape.head_dim + (shape.heads + shape.kv_heads) * shape.values(), 2),
        y_(random_, context, shape.heads * shape.values(), 0),
        sinks_(normal(random_, size_t(shape.heads))) {
    const int64_t rows = factor_rows();
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
              Buffer<float>(device_, std::vector<float>(size_t(kGemvTokens * shape.heads * shape.splits *
                                                               (padded(shape.values()) + 2)))),
              Buffer<float>(device_, std::vector<float>(size_t(2 * rows))),
              Buffer<float>(device_, sinks_),
              Buffer<uint8_t>(device_, std::vector<uint8_t>(size_t(rows * row_bytes(true)))),
              Buffer<uint8_t>(device_, std::vector<uint8_t>(size_t(rows * row_bytes(false)))),
              Buffer<uint32_t>(device_, std::vector<uint32_t>(size_t(kGemvTokens * shape.heads))),
              Buffer<uint32_t>(device_, {0}),
              Buffer<uint32_t>(device_, std::vector<uint32_t>(size_t(context))),
              Buffer<int32_t>(device_, table_),
              Buffer<int32_t>(device_, std::vector<int32_t>(size_t(context)))};
    cos_ = std::move(cos);
    sin_ = std::move(sin);
  }

  // Tokens [first, first + count), all at once or one after the other. `rounded`: as AttendArgs has it.
  enum class Way { kOne, kFew, kTiles, kStore };
  void run(int64_t first, int count, Way way, Rounded rounds_to = Rounded::kNo, const Fp16Rows& rounded = {}) {
    std::vector<int32_t> positions;
    for (int t = 0; t < count; ++t) positions.push_back(int32_t(first + t));
    const Buffer<int32_t> position(device_, positions);
    const int d = shape_.head_dim;
    AttendArgs args;
    args.q = {there_.qkv.data() + first * qkv_.stride, qkv_.stride, d};
    args.k = {args.q.x + shape_.heads * d, qkv_.stride, d};
    args.v = {args.k.x + shape_.kv_heads * d, qkv_.stride, shape_.values()};
    if (shape_.extras) {
      args.gate = {args.v.x + shape_.kv_heads * shape_.values(), qkv_.stride, shape_.values()};
      args.softcap = kSoftcap;
      args.sinks = there_.sinks.data();
    }
    if (shape_.norms) {
      args.q_norm.kind = Norm::Kind::kRms;
      args.q_norm.weight = there_.norm.data();
      args.q_norm.group = d;
      args.q_norm.eps = 1e-6f;
      args.k_norm = args.q_norm;
    }
    args.rotation = {there_.cos.data() + first * (d / 2), there_.sin.data() + first * (d / 2), d / 2, false};
    args.position = position.data();
    args.sequence = there_.sequence.data();
    args.cache = cache();
    args.heads = shape_.heads;
    args.kv_heads = shape_.kv_heads;
    args.key_dim = d;
    args.value_dim = shape_.values();
    args.scale = float(1 / std::sqrt(double(d)));
    args.window = int(shape_.window);
    args.tokens = count;
    args.y = there_.y.data() + first * y_.stride;
    args.y_stride = y_.stride;
    args.rounds_to = rounds_to;
    args.rounded = rounded;
    args.splits = shape_.splits;
    args.partial = there_.partial.data();
    args.counter = there_.counter.data();
    if (way == Way::kOne) {
      attend(device_.stream(), args, true);
    } else {
      store_keys(device_.stream(), args);
      if (way == Way::kStore) return;
      if (way == Way::kTiles) {
        REQUIRE(can_attend_in_tiles(args));
        attend_in_tiles(device_.stream(), args);
      } else {
        for (; args.first_token < count; args.first_token += kGemvTokens) {
          args.tokens = std::min(kGemvTokens, count - args.first_token);
          attend(device_.stream(), args, false);
        }
      }
    }
    y_.values = there_.y.read();
    keys_ = there_.keys.read();
    values_ = there_.values.read();
    factors_ = there_.factors.read();
  }

  // In tiles, what is written as 16-bit floats in place of outputs: (count, outputs of a token), behind them factors.
  std::pair<std::vector<uint16_t>, std::vector<float>> rounded(int64_t first, int count, Rounded to) {
    const Buffer<uint16_t> values(device_, std::vector<uint16_t>(size_t(count * y_.cols)));
    const Buffer<float> factors(device_, std::vector<float>(size_t(count)));
    run(first, count, Way::kTiles, to, {values.data(), factors.data(), y_.cols});
    return {values.read(), factors.read()};
  }
  float output(int64_t token, int64_t column) const { return y_.at(token, column); }
  int64_t output_columns() const { return y_.cols; }

  // Of the outputs of tokens [first, last), given what the cache holds.
  double error(int64_t first, int64_t last) const {
    Difference difference;
    const int64_t d = shape_.head_dim, values = shape_.values();
    for (int64_t t = first; t < last; ++t) {
      for (int64_t h = 0; h < shape_.heads; ++h) {
        const std::vector<double> q = rotated(t, h);
        const int64_t kv = h / (shape_.heads / shape_.kv_heads);
        const int64_t begin = shape_.window > 0 ? std::max<int64_t>(0, t + 1 - shape_.window) : 0;
        std::vector<double> out(static_cast<size_t>(values));
        double sum = 0, largest = shape_.extras ? sinks_[size_t(h)] : -1e300;
        std::vector<double> scores;
        for (int64_t k = begin; k <= t; ++k) {
          double dot = 0;
          for (int64_t i = 0; i < d; ++i) dot += q[size_t(i)] * held(true, kv, k, i);
          dot /= std::sqrt(double(d));
          scores.push_back(shape_.extras ? kSoftcap * std::tanh(dot / kSoftcap) : dot);
          largest = std::max(largest, scores.back());
        }
        for (int64_t k = begin; k <= t; ++k) {
          const double weight = std::exp(scores[size_t(k - begin)] - largest);
          sum += weight;
          for (int64_t i = 0; i < values; ++i) out[size_t(i)] += weight * held(false, kv, k, i);
        }
        if (shape_.extras) sum += std::exp(sinks_[size_t(h)] - largest);
        for (int64_t i = 0; i < values; ++i) {
          const double gate = shape_.extras ? 1 / (1 + std::exp(-double(qkv_.at(t, gate_column(h) + i)))) : 1;
          difference.add(y_.at(t, h * values + i), out[size_t(i)] / sum * gate);
        }
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
        for (int64_t i = 0; i < shape_.head_dim; ++i) difference.add(held(true, kv, t, i), key[size_t(i)]);
        for (int64_t i = 0; i < shape_.values(); ++i)
          difference.add(held(false, kv, t, i), qkv_.at(t, first_value() + kv * shape_.values() + i));
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
    cache.value_factor = cache.key_factor + factor_rows();
    cache.page_tokens = kTestPage;
    cache.ring = int(table_.size());
    cache.page_shift = page_shift_of(kTestPage, cache.ring);
    cache.tables = there_.table.data();
    cache.overflow = there_.overflow.data();
    cache.overflow_of_tokens = there_.overflow_of_tokens.data();
    cache.overflow_mark = 1;
    cache.key_bytes = row_bytes(true);
    cache.value_bytes = row_bytes(false);
    cache.kind = shape_.kind;
    return cache;
  }
  static constexpr float kSoftcap = 20;
  int64_t factor_rows() const { return shape_.kv_heads * kTestPage * (int64_t(table_.size()) + 1); }
  int64_t row_bytes(bool key) const { return cache_row_bytes(shape_.kind, key ? shape_.head_dim : shape_.values()); }
  // Columns of a token's row.
  int64_t first_value() const { return (shape_.heads + shape_.kv_heads) * shape_.head_dim; }
  int64_t gate_column(int64_t h) const { return first_value() + (shape_.kv_heads + h) * shape_.values(); }
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
    const int64_t at = (table_[size_t(t / kTestPage)] * shape_.kv_heads + kv) * kTestPage + t % kTestPage;
    const uint8_t* const bits8 = (key ? keys_ : values_).data() + at * row_bytes(key);
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
  std::mt19937 random_{11};
  gpu::Device device_{0};
  std::vector<int32_t> table_;
  Rows qkv_, y_;
  std::vector<float> sinks_;
  std::vector<float> cos_, sin_, norm_, factors_;
  std::vector<uint8_t> keys_, values_;
  struct There {
    Buffer<float> qkv, y, cos, sin, norm, partial, factors, sinks;
    Buffer<uint8_t> keys, values;
    Buffer<uint32_t> counter, overflow, overflow_of_tokens;
    Buffer<int32_t> table, sequence;
  } there_;
};

using Way = AttentionRun::Way;

std::vector<Attention> attentions() {
  using enum CacheKind;
  return {
      {4, 4, 8, 0, kF16, false, 3},
      {6, 2, 64, 0, kF16, true, 4},
      {7, 1, 80, 0, kBf16, false, 2},
      {16, 1, 128, 0, kF16, true, 5},
      {4, 2, 96, 40, kBf16, true, 3},
      {2, 1, 128, 100, kF16, false, 64},
      {4, 2, 64, 0, kF32, true, 4},
      {4, 1, 32, 9, kI8, true, 2},
      {3, 1, 64, 0, kE4M3, false, 3},
      {2, 2, 256, 0, kF16, false, 2},
      {2, 1, 12, 0, kF16, true, 1},
      {2, 2, 2, 0, kF32, false, 1},
      {4, 4, 128, 33, kE4M3, true, 7},
      {8, 1, 64, 0, kI8, false, 1},
      {2, 1, 192, 0, kBf16, true, 2},
      {3, 1, 160, 50, kF16, true, 3},
      {2, 1, 256, 70, kI8, true, 2},
      // Splits without keys take queries of others: of 5 and of 7, of 11 in two tiles, and as many as there are parts.
      {5, 1, 64, 0, kF16, true, 8},
      {7, 1, 96, 0, kF16, false, 4},
      {11, 1, 32, 0, kF16, true, 9},
      {8, 1, 64, 0, kF16, true, 8},
      // Blocks of four warps: three heads for some to prepare and two to put together; queries of five, in two splits.
      {16, 2, 256, 0, kF16, true, 3},
      {5, 1, 208, 0, kF16, false, 8},
      {4, 2, 192, 0, kF16, true, 2, 128, true}};
}

TEST_CASE("kernels: smoke, attention of one token, a few and many") {
  for (const Attention& shape : {Attention{6, 2, 64, 0, CacheKind::kF16, true, 4},
                                 {2, 1, 256, 0, CacheKind::kF16, true, 2},
                                 {6, 1, 256, 0, CacheKind::kF16, true, 3},
                                 {4, 4, 128, 33, CacheKind::kE4M3, true, 7}}) {
    AttentionRun run(shape, 180);
    run.run(0, 8, Way::kFew);
    run.run(8, 1, Way::kOne);
    CHECK(run.error(0, 9) < 2e-6);
    if (shape.kind != CacheKind::kF16) continue;
    run.run(9, 170, Way::kTiles);  // some blocks, the last with warps that have no queries
    CHECK(run.error(9, 179) < 2e-3);
  }
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
    args.key_dim = shape.head_dim;
    args.value_dim = shape.values();
    if (!can_attend_in_tiles(args)) continue;
    run.run(110, 100, Way::kTiles);
    CHECK(run.error(110, 210) < (shape.kind == CacheKind::kF16 ? 2e-3 : 1.5e-2));
    AttentionRun fresh(shape, kContext);
    fresh.run(0, 200, Way::kTiles);
    CHECK(fresh.error(0, 200) < (shape.kind == CacheKind::kF16 ? 2e-3 : 1.5e-2));
  }
}

TEST_CASE("kernels: attention of many tokens writes what the next product would round") {
  using enum CacheKind;
  for (const Attention& shape : {Attention{6, 2, 64, 0, kF16, true, 4},
                                 {2, 1, 256, 0, kF16, true, 2},
                                 {3, 1, 256, 50, kF16, false, 9, 0, true},
                                 {4, 1, 192, 0, kF16, true, 20, 128, true},
                                 {4, 2, 128, 0, kE4M3, true, 7}}) {
    INFO(shape.heads, " heads of ", shape.head_dim, ", cache ", int(shape.kind));
    constexpr int kFirst = 9, kCount = 150;
    AttentionRun run(shape, kFirst + kCount);
    run.run(0, kFirst, Way::kTiles);
    run.run(kFirst, kCount, Way::kTiles);
    for (const Rounded to : {Rounded::kF16, Rounded::kBf16}) {
      const auto [values, factors] = run.rounded(kFirst, kCount, to);
      int wrong = 0;
      for (int64_t t = 0; t < kCount; ++t) {
        for (int64_t c = 0; c < run.output_columns(); ++c) {
          const float value = run.output(kFirst + t, c);
          wrong += values[size_t(t * run.output_columns() + c)] !=
                   (to == Rounded::kBf16 ? float_to_bf16(value) : float_to_f16(value));
        }
      }
      CHECK(wrong == 0);
      CHECK(factors == std::vector<float>(kCount, 1));
    }
  }
}

TEST_CASE("kernels: attention of one token of long texts, by everything that a step may ask for") {
  using enum CacheKind;
  for (const Attention& shape : {
           // More parts than are under way at once, of as many queries as a block has and of more.
           Attention{8, 1, 128, 0, kF16, true, 64},
           {16, 2, 256, 0, kF16, true, 64},
           {11, 1, 256, 0, kF16, false, 32},
           {4, 2, 64, 0, kBf16, true, 64},
           {2, 1, 320, 0, kI8, false, 64},
           // One part, in which the token's own key is not in a first tile.
           {16, 2, 256, 0, kF16, true, 1},
           {4, 1, 96, 0, kE4M3, true, 1},
           // Fewer values than keys, softcaps, sinks and gates.
           {4, 1, 192, 0, kF16, true, 20, 128, true},
           {3, 1, 256, 300, kF16, false, 9, 0, true},
           {5, 1, 64, 0, kF16, true, 30, 40, true},
           {4, 2, 256, 0, kBf16, false, 7, 0, true},
       }) {
    INFO(shape.heads, "/", shape.kv_heads, " heads of ", shape.head_dim, " and ", shape.values(), ", cache ",
         int(shape.kind), ", ", shape.splits, " splits");
    AttentionRun run(shape, 1200);
    run.run(0, 1190, Way::kStore);
    for (int64_t t = 1190; t < 1192; ++t) run.run(t, 1, Way::kOne);
    run.run(1192, 3, Way::kFew);
    CHECK(run.error(1190, 1195) < 2e-6);
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

}  // namespace
}  // namespace qgen::test
