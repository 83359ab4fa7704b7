// The CPU engine's kernels against plain double arithmetic, for every instruction set this machine has; then the
// engine step by step against the reference engine.
#include <algorithm>
#include <cstring>
#include <random>

#include "base/numbers.h"
#include "cpu/isa/targets.h"
#include "cpu/linear.h"
#include "cpu/thread_pool.h"
#include "generate/session.h"
#include "tests/cpu/test_targets.h"
#include "tests/random_weight.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

using cpu::Body;

// Of the engine.
std::vector<const Body*> supported_bodies() {
  std::vector<const Body*> out;
  for (const Body* body : cpu::bodies()) {
    if (body->supported()) out.push_back(body);
  }
  return out;
}

// These, and those which only tests have: no engine knows them.
std::vector<const Body*> kernel_bodies() {
  std::vector<const Body*> out = supported_bodies();
#if defined(__x86_64__)
  for (const Body* body : {&cpu::kEvexBody, &cpu::kEmulatedAmxBody}) {
    if (body->supported()) out.push_back(body);
  }
#endif
  return out;
}

// Where a kernel may keep what it likes.
struct Scratch {
  explicit Scratch(int64_t size) : bytes(size_t(size) + cpu::kCacheLine) {}
  void* get() { return bytes.data() + (cpu::kCacheLine - reinterpret_cast<uintptr_t>(bytes.data()) % cpu::kCacheLine); }
  std::vector<std::byte> bytes;
};

// A layer, and the input of it for up to `most` tokens in the forms that it wants.
struct TestLayer {
  TestLayer(const Linear& linear, const Body& kernels, Activations activations, int64_t most)
      : body(kernels),
        layers(make_layers(linear, kernels, activations)),
        input(layers, most),
        scratch(cpu::scratch_bytes(layers[0].cols(), layers[0].matrix().tile_cols)) {
    input.lay_out(arena);
    arena.allocate("test");
    input.lay_out(arena);
  }
  static std::vector<cpu::LinearKernel> make_layers(const Linear& linear, const Body& body, Activations activations) {
    std::vector<cpu::LinearKernel> out;
    out.emplace_back(linear, body, activations);
    return out;
  }
  void prepare(int64_t row, int64_t tokens) { input.prepare(body, layers, row, tokens); }
  // Rows [begin, end) of W times the first `tokens`; rows of y are those of all of W apart.
  void multiply(int64_t tokens, int64_t begin, int64_t end, std::vector<float>& y) {
    layers[0].multiply(input.view(layers, 0, tokens), begin, end, y.data(), layers[0].matrix().rows, scratch.get());
  }
  const Body& body;
  std::vector<cpu::LinearKernel> layers;
  cpu::StepInput input;
  cpu::Arena arena;
  Scratch scratch;
};

// Normwise error of y = W x for `tokens` tokens, computed as the engine does it in two row ranges.
double multiply_error(const Body& body, const Weight& weight, int64_t tokens, std::mt19937& random,
                      Activations activations = Activations::k16Bit, float mean = 0) {
  std::vector<float> bias = normal(random, size_t(weight.rows));
  TestLayer layer(Linear{&weight, &bias}, body, activations, tokens);
  std::vector<float> x = normal(random, size_t(tokens * weight.cols));
  for (float& value : x) value += mean;
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(x.data() + t * weight.cols, weight.cols, layer.input.row(t));
    layer.prepare(t, tokens);
  }
  std::vector<float> y(size_t(tokens * weight.rows), NAN);
  const int64_t middle = std::min(weight.rows, body.panel_rows);
  layer.multiply(tokens, 0, middle, y);
  if (middle < weight.rows) layer.multiply(tokens, middle, weight.rows, y);
#if defined(__x86_64__)
  if (cpu::kEmulatedAmxBody.supported()) CHECK(cpu::emulated_tiles_released());
#endif

  std::vector<float> expected(y.size());
  std::vector<double> row(size_t(weight.cols));
  for (int64_t n = 0; n < weight.rows; ++n) {
    dequantize_row(weight, n, row);
    for (int64_t t = 0; t < tokens; ++t) {
      double sum = bias[size_t(n)];
      for (int64_t k = 0; k < weight.cols; ++k) sum += row[size_t(k)] * x[size_t(t * weight.cols + k)];
      expected[size_t(t * weight.rows + n)] = float(sum);
    }
  }
  return normwise_error(y, expected);
}

// What a form of the activations may cost, with a margin of three. Offsets as large as the codes cancel most of a
// sum and leave its error, hence more for integers.
double tolerance(cpu::Form form) {
  switch (form) {
    case cpu::Form::kF32: return 5e-6;
    case cpu::Form::kWords:
    case cpu::Form::kPlanes: return 1e-4;
    case cpu::Form::kBf16Pair: return 3e-5;
    case cpu::Form::kBf16: return 4e-3;
    case cpu::Form::kBytes: return 2e-2;
  }
  return 0;
}

TEST_CASE("W x for every code, grid, size and number of tokens") {
  struct Shape {
    int64_t rows, cols, group_rows, group_cols;
  };
  const Shape shapes[] = {{37, 100, 37, 100},   {70, 172, 1, 172}, {33, 64, 1, 32},    {20, 172, 1, 43},
                          {130, 300, 128, 128}, {64, 96, 16, 24},  {5, 7, 2, 3},       {1, 1, 1, 1},
                          {40, 1024, 1, 64},    {35, 130, 12, 20}, {3, 513, 128, 128}, {48, 256, 1, 256},
                          {33, 700, 1, 100}};
  for (const Body* body : kernel_bodies()) {
    for (const int64_t tokens : {1, 2, 13, 26, 260}) {
      double worst = 0;
      for (const Codes codes : {Codes::kF32, Codes::kF16, Codes::kBf16, Codes::kI8, Codes::kE4M3, Codes::kE5M2}) {
        const bool plain = codes == Codes::kF32 || codes == Codes::kF16 || codes == Codes::kBf16;
        for (const Shape& shape : shapes) {
          for (const bool offsets : {false, true}) {
            if (offsets && plain) continue;
            INFO(std::string(body->name), " ", codes_name(codes), " ", shape.rows, "x", shape.cols, " tiles ",
                 shape.group_rows, "x", shape.group_cols, " tokens ", tokens, " offsets ", offsets);
            std::mt19937 random(uint32_t(shape.rows * 1000 + shape.cols + tokens));
            const Weight weight = random_weight(random, codes, shape.rows, shape.cols, shape.group_rows,
                                                plain ? 0 : shape.group_cols, offsets);
            const double error = multiply_error(*body, weight, tokens, random);
            CHECK(error < tolerance(body->kernels[size_t(codes)].at(tokens).form));
            worst = std::max(worst, error);
            if (codes != Codes::kI8) continue;
            CHECK(multiply_error(*body, weight, tokens, random, Activations::kF32) < tolerance(cpu::Form::kF32));
            // Offsets as large as the codes cancel most of the sum and leave the error of 8 bits.
            CHECK(multiply_error(*body, weight, tokens, random, Activations::k8Bit) <
                  tolerance(cpu::Form::kBytes) * (offsets ? 3 : 1));
          }
        }
      }
      MESSAGE(std::string(body->name), ", ", tokens, " tokens: largest error ", worst);
    }
  }
}

TEST_CASE("W x for weights in blocks of Q8_0, with paired heads too") {
  for (const Body* body : kernel_bodies()) {
    for (const Activations activations : {Activations::k16Bit, Activations::kF32, Activations::k8Bit}) {
      for (const int64_t tokens : {1, 2, 7, 30, 530}) {
        for (const auto& [rows, cols, heads] :
             {std::array<int64_t, 3>{5, 32, 0}, {37, 96, 0}, {64, 1024, 0}, {48, 160, 3}, {64, 64, 16}}) {
          INFO(std::string(body->name), " ", activations_name(activations), " ", rows, "x", cols, " heads ", heads,
               " tokens ", tokens);
          std::mt19937 random(uint32_t(rows * 1000 + cols + tokens));
          const Weight weight = random_blocks(random, rows, cols, heads);
          CHECK(multiply_error(*body, weight, tokens, random, activations) <
                (activations == Activations::k8Bit    ? tolerance(cpu::Form::kBytes)
                 : activations == Activations::k16Bit ? tolerance(cpu::Form::kPlanes)
                                                      : tolerance(cpu::Form::kF32)));
        }
      }
    }
  }
}

TEST_CASE("long rows do not overflow the integer products") {
  for (const Body* body : kernel_bodies()) {
    constexpr Activations activations = Activations::k16Bit;
    INFO(std::string(body->name));
    std::mt19937 random(1);
    for (const int64_t cols : {65536, 66000}) {
      Weight weight = random_weight(random, Codes::kI8, 3, cols, 1, cols, false);
      std::fill(weight.owned.begin(), weight.owned.end(), std::byte{0x7F});
      for (const int64_t tokens : {1, 7}) {
        TestLayer layer(Linear{&weight, nullptr}, *body, activations, tokens);
        for (int64_t t = 0; t < tokens; ++t) {
          std::fill_n(layer.input.row(t), cols, 1.0f);
          layer.prepare(t, tokens);
        }
        std::vector<float> y(size_t(tokens * 3));
        layer.multiply(tokens, 0, 3, y);
        for (size_t i = 0; i < y.size(); ++i)
          CHECK(y[i] == doctest::Approx(127.0 * double(cols) * weight.scale.values[i % 3]).epsilon(2e-3));
      }
    }
  }
}

TEST_CASE("activations that are no numbers never come out as numbers, and do not leak into other rows") {
  for (const Body* body : kernel_bodies()) {
    for (const Codes codes : {Codes::kI8, Codes::kE4M3, Codes::kBf16, Codes::kF32}) {
      for (const auto& [tokens, activations] : {std::pair<int64_t, Activations>{1, Activations::k16Bit},
                                                {3, Activations::k16Bit},
                                                {260, Activations::k16Bit},
                                                {260, Activations::k8Bit}}) {
        INFO(std::string(body->name), " ", std::string(codes_name(codes)), " ", tokens);
        std::mt19937 random(9);
        // 64 columns in groups of 20: the last tile ends in the middle of a vector, at the end of the row.
        const Weight weight =
            random_weight(random, codes, 5, 64, 1, codes == Codes::kI8 || codes == Codes::kE4M3 ? 20 : 0, false);
        TestLayer layer(Linear{&weight, nullptr}, *body, activations, tokens + 1);
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
  for (const Body* body : kernel_bodies()) {
    for (const int64_t cols : {512, 2048, 9728}) {
      for (const int64_t tokens : {1, 2, 13}) {
        INFO(std::string(body->name), " ", cols, " tokens ", tokens);
        std::mt19937 random(uint32_t(cols + tokens));
        Weight weight = random_weight(random, Codes::kI8, 33, cols, 1, cols, false);
        for (size_t i = 0; i < weight.owned.size(); ++i) weight.owned[i] = std::byte(i % 2 == 0 ? 1 : 0xFF);
        // Rounding such inputs to 16 bits costs 1e-3.
        CHECK(multiply_error(*body, weight, tokens, random, Activations::k16Bit, 100) < 2e-3);
      }
    }
  }
}

TEST_CASE("inputs near zero") {
  for (const Body* body : kernel_bodies()) {
    std::mt19937 random(6);
    const Weight weight = random_weight(random, Codes::kI8, 5, 70, 1, 70, false);
    for (const Activations activations : {Activations::k16Bit, Activations::k8Bit}) {
      for (const auto& [tokens, size] :
           {std::pair<int64_t, float>{1, 5e-35f}, {13, 5e-35f}, {1, 4e-41f}, {13, 1e-29f}}) {
        INFO(std::string(body->name), " ", activations_name(activations), " ", tokens, " ", size);
        TestLayer layer(Linear{&weight, nullptr}, *body, activations, tokens);
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
  for (const Body* body : kernel_bodies()) {
    INFO(std::string(body->name));
    std::mt19937 random(5);
    Weight weight = random_weight(random, Codes::kI8, 24, 64, 1, 16, true);
    weight.column_order.resize(64);
    for (int32_t k = 0; k < 64; ++k) weight.column_order[size_t(k)] = k * 37 % 64;
    for (const int64_t tokens : {1, 9}) CHECK(multiply_error(*body, weight, tokens, random) < 1e-4);
  }
}

TEST_CASE("attention over the cache") {
  for (const Body* body : kernel_bodies()) {
    for (const KvType kv : {KvType::kF16, KvType::kBf16, KvType::kF32}) {
      for (const int64_t head_dim : {8, 20, 64, 128}) {
        for (const auto& [keys, in_words] : {std::pair<int64_t, bool>{1, false},
                                             {16, false},
                                             {17, false},
                                             {100, false},
                                             {700, false},
                                             {1500, false},
                                             {1, true},
                                             {17, true},
                                             {100, true},
                                             {300, true},
                                             {1500, true}}) {
          INFO(std::string(body->name), " ", kv_name(kv), " head ", head_dim, " keys ", keys,
               in_words ? " in words" : "");
          std::mt19937 random(uint32_t(head_dim * 10000 + keys));
          const int64_t padded = (head_dim + 15) / 16 * 16, held = (keys + 31) / 32 * 32,
                        element = kv_element_bytes(kv);
          const auto k = normal(random, size_t(keys * head_dim)), v = normal(random, size_t(keys * head_dim));
          std::vector<std::byte> key_cache(size_t(held * head_dim * element)),
              value_cache(size_t(held * padded * element));
          for (int64_t t = 0; t < keys; ++t) {
            body->store_kv[size_t(kv)](
                k.data() + t * head_dim, head_dim,
                key_cache.data() + (t / cpu::kKeyBlock * cpu::kKeyBlock * head_dim + t % cpu::kKeyBlock) * element,
                cpu::kKeyBlock);
            body->store_kv[size_t(kv)](v.data() + t * head_dim, head_dim, value_cache.data() + t * padded * element, 1);
          }
          // What an earlier run has left behind the last key, and no row may see.
          std::vector<float> left(size_t(head_dim), 1e-23f);
          left[1] = NAN;
          for (int64_t t = keys; t < held; ++t) {
            body->store_kv[size_t(kv)](left.data(), head_dim,
                                       key_cache.data() + (t / 16 * 16 * head_dim + t % 16) * element, 16);
            body->store_kv[size_t(kv)](left.data(), head_dim, value_cache.data() + t * padded * element, 1);
          }
          const int rows = int(1 + keys % cpu::kMaxAttendRows);
          auto q = normal(random, size_t(rows * head_dim), 0.3f);
          if (keys == 300) std::fill(q.begin(), q.end(), 0.0f);         // equal weights
          if (keys == 17) std::copy_n(k.begin(), head_dim, q.begin());  // as long a product as there can be
          Scratch scratch(cpu::attend_scratch_bytes(padded));
          cpu::AttendArguments a{};
          a.rows = rows;
          a.cache = {held, 1, head_dim, padded};
          a.keys = key_cache.data();
          a.values = value_cache.data();
          a.scratch = scratch.get();
          for (int r = 0; r < rows; ++r) {
            a.q[r] = q.data() + r * head_dim;
            a.first[r] = keys * r / (2 * rows);
            a.last[r] = std::max(a.first[r] + 1, keys - r * 3);
          }
          const auto attend = in_words ? body->attend_words[size_t(kv)] : body->attend[size_t(kv)];
          if (attend == nullptr) continue;
          attend(a);
          std::vector<float> got, expected;
          for (int r = 0; r < rows; ++r) {
            std::vector<double> p;
            double sum = 0;
            for (int64_t t = a.first[r]; t < a.last[r]; ++t) {
              double dot = 0;
              for (int64_t d = 0; d < head_dim; ++d) dot += double(a.q[r][d]) * k[size_t(t * head_dim + d)];
              sum += p.emplace_back(std::exp(dot));
            }
            for (int64_t d = 0; d < head_dim; ++d) {
              double mixed = 0;
              for (int64_t t = a.first[r]; t < a.last[r]; ++t)
                mixed += p[size_t(t - a.first[r])] / sum * v[size_t(t * head_dim + d)];
              expected.push_back(float(mixed));
              got.push_back(a.out[r][d] / a.sum[r]);
            }
          }
          const double limit = kv == KvType::kF32 ? 2e-6 : kv == KvType::kF16 ? 1e-3 : 8e-3;
          CHECK(normwise_error(got, expected) < (in_words ? std::max(limit, 5e-4) : limit));
          // Values that are no numbers, of the first key and the last: only who sees them is none.
          left[0] = left[1] = NAN;
          for (const int64_t t : {int64_t{0}, keys - 1})
            body->store_kv[size_t(kv)](left.data(), head_dim, value_cache.data() + t * padded * element, 1);
          attend(a);
          for (int r = 0; r < rows; ++r) {
            const bool sees = a.first[r] == 0 || a.last[r] == keys;
            for (int64_t d = 0; d < 2; ++d) {
              const float mixed = a.out[r][d] / a.sum[r];
              CHECK((sees ? std::isnan(mixed) : mixed == got[size_t(r * head_dim + d)]));
            }
          }
          q[0] = NAN;
          attend(a);
          CHECK(std::isnan(a.out[0][0] / a.sum[0]));
        }
      }
    }
  }
}

TEST_CASE("norm, activation and rotation") {
  for (const Body* body : kernel_bodies()) {
    INFO(std::string(body->name));
    std::mt19937 random(3);
    for (const int64_t n : {2, 15, 64, 1000}) {
      const auto x = normal(random, size_t(n), 3), w = normal(random, size_t(n));
      std::vector<float> out(x.size()), expected(x.size());
      body->rms_norm(x.data(), w.data(), n, 1e-6f, out.data());
      double squares = 0;
      for (const float value : x) squares += double(value) * value;
      for (size_t i = 0; i < x.size(); ++i) expected[i] = float(x[i] / std::sqrt(squares / double(n) + 1e-6) * w[i]);
      CHECK(normwise_error(out, expected) < 1e-6);

      out = x;
      out[0] = -200;  // far into the tails of exp
      out[1] = 200;
      for (size_t i = 0; i < x.size(); ++i) expected[i] = float(out[i] / (1 + std::exp(-double(out[i]))) * w[i]);
      body->silu_multiply(out.data(), w.data(), n);
      CHECK(normwise_error(out, expected) < 1e-6);
      CHECK(std::abs(out[0]) < 1e-30);
    }
    std::vector<float> head = {1, 2, 3, 4}, cos = {0.6f, 1}, sin = {0.8f, 0};
    body->rotate(head.data(), cos.data(), sin.data(), 4);
    CHECK(head[0] == doctest::Approx(0.6 - 2.4));
    CHECK(head[2] == doctest::Approx(1.8 + 0.8));
    CHECK(head[1] == 2);
    CHECK(head[3] == 4);
  }
}

TEST_CASE("a pool shares every task once and ends together") {
  for (const int workers : {1, 2, 5}) {
    cpu::ThreadPool pool(workers);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> done(97);
      std::atomic<int> after{0};
      pool.run([&](int) {
        pool.share(97, [&](int64_t i) { ++done[size_t(i)]; });
        for (const auto& count : done) after += count;
        pool.share(0, [&](int64_t) { ++after; });
        pool.share(1, [&](int64_t) { ++after; });
      });
      CHECK(after == 97 * workers + 1);
    }
  }
}

TEST_CASE("a pool shares more tasks than a phase has") {
  cpu::ThreadPool pool(3);
  std::vector<std::atomic<uint8_t>> done(200000);
  pool.run([&](int) { pool.share(int64_t(done.size()), [&](int64_t i) { ++done[size_t(i)]; }); });
  CHECK(std::all_of(done.begin(), done.end(), [](const auto& count) { return count == 1; }));
}

TEST_CASE("phases stay in order whoever is put aside") {
  // More workers than processors, phases of next to no work, and now and then somebody who sleeps.
  cpu::ThreadPool pool(7);
  std::vector<int64_t> sums(50);
  int64_t wrong = 0;
  for (int round = 0; round < 1500; ++round) {
    std::atomic<int64_t> mistakes{0};
    pool.run([&](int worker) {
      for (int64_t phase = 0; phase < int64_t(sums.size()); ++phase) {
        std::atomic_ref<int64_t> sum(sums[size_t(phase)]);
        pool.share(1, [&](int64_t) { sum = 0; });
        pool.share(phase % 9, [&](int64_t i) {
          if ((round * 50 + phase) % 997 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
          sum += i + round;
        });
        const int64_t count = phase % 9;
        if (sum != count * (count - 1) / 2 + count * round) ++mistakes;
        if ((round + worker) % 101 == 0) std::this_thread::yield();
      }
    });
    wrong += mistakes;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a worker that is held up holds up no phase it has no task of") {
  cpu::ThreadPool pool(2);
  std::atomic<int> phases{0};
  bool in_time = true;
  pool.run([&](int worker) {
    if (worker == 1) {
      const auto start = std::chrono::steady_clock::now();
      while (phases < 100 && in_time) in_time = std::chrono::steady_clock::now() - start < std::chrono::seconds(20);
    }
    for (int phase = 0; phase < 100; ++phase) {
      pool.share(5, [](int64_t) {});
      if (worker == 0) ++phases;
    }
  });
  CHECK(in_time);
}

// Golden models of each family; the demo models, which are trained.
std::vector<fs::path> step_models() {
  const fs::path golden = source_folder() / "tests/golden";
  return {golden / "llama-fp8-block-bf16",
          golden / "mistral-ct-int8-group-10",
          golden / "qwen2-ct-int8-channel",
          golden / "qwen3-fp8-channel-2d",
          golden / "qwen3-bf16",
          source_folder() / "models/stories260K-FP8",
          source_folder() / "models/stories260K-w8a8"};
}

TEST_CASE("the CPU engine step by step against the reference engine") {
  const std::vector<TokenId> ids = {1, 40, 17, 5, 61, 22, 9, 33, 58, 12, 3};
  for (const fs::path& model : step_models()) {
    REQUIRE_MESSAGE(fs::exists(model), model.string());
    const auto plan = load_plan(model);
    const auto steps_of = [&](const std::string& device, bool one_by_one) {
      std::vector<std::vector<float>> steps(plan->steps.size());
      auto engine = make_engine(*plan, device, 32, KvType::kF32);
      engine->set_trace(
          [&](size_t i, std::span<const float> values) { steps.at(i).assign(values.begin(), values.end()); });
      if (one_by_one) {
        for (const TokenId id : ids) engine->decode(id);
      } else {
        engine->prefill(ids);
      }
      return steps;
    };
    const auto expected = steps_of("reference", false);
    for (const Body* body : supported_bodies()) {
      for (const bool one_by_one : {false, true}) {
        const auto got = steps_of(std::string("cpu:") + body->name, one_by_one);
        for (size_t i = 0; i < got.size(); ++i) {
          INFO(model.filename().string(), " ", std::string(body->name),
               std::string(one_by_one ? " decoding" : " prefill"), " step ", i, " ", step_name(plan->steps[i]));
          REQUIRE(got[i].size() == expected[i].size());
          CHECK(normwise_error(got[i], expected[i]) < 2e-4);
        }
      }
    }
  }
}

TEST_CASE("the same bytes for any number of threads, and again after a rewind") {
  std::vector<TokenId> ids;
  for (int i = 0; i < 300; ++i) ids.push_back(TokenId(i * 7 % 500 + 3));
  const auto run = [&](Engine& engine) {
    std::vector<float> out;
    const auto add = [&](std::span<const float> logits) { out.insert(out.end(), logits.begin(), logits.end()); };
    add(engine.prefill(ids));
    add(engine.decode(5));
    add(engine.decode(6));
    return out;
  };
  for (const auto& [name, activations] : {std::pair<const char*, Activations>{"stories260K-FP8", Activations::k16Bit},
                                          {"stories260K-FP8", Activations::kF32},
                                          {"stories260K-w8a8", Activations::k16Bit},
                                          {"stories260K-w8a8", Activations::k8Bit}}) {
    const auto plan = load_plan(source_folder() / "models" / name);
    for (const Body* body : supported_bodies()) {
      INFO(std::string(body->name), " ", std::string(activations_name(activations)));
      EngineOptions options{.context = 400, .activations = activations, .threads = 1, .body = body->name};
      const auto expected = run(*make_cpu_engine(*plan, options));
      for (const int threads : {1, 2, 3, 7}) {
        options.threads = threads;
        const auto engine = make_cpu_engine(*plan, options);
        CHECK(run(*engine) == expected);
        engine->rewind(0);
        CHECK(run(*engine) == expected);
        engine->rewind(300);
        CHECK(engine->position() == 300);
        engine->decode(5);
        const std::span<const float> logits = engine->decode(6);
        CHECK(std::equal(logits.begin(), logits.end(), expected.end() - plan->model.vocab));
      }
    }
  }
}

TEST_CASE("prompts longer than a batch, caches of every type, and a full context") {
  const auto plan = load_plan(source_folder() / "models/stories260K-w8a8");
  std::vector<TokenId> ids;
  for (int i = 0; i < 700; ++i) ids.push_back(TokenId(i * 11 % 500 + 3));
  auto reference = make_engine(*plan, "reference", 700);
  const std::span<const float> logits = reference->prefill(ids);
  const std::vector<float> expected(logits.begin(), logits.end());
  for (const KvType kv : {KvType::kF16, KvType::kBf16, KvType::kF32}) {
    INFO(kv_name(kv));
    auto engine = make_engine(*plan, "cpu", 700, kv);
    CHECK(normwise_error(engine->prefill(ids), expected) < (kv == KvType::kBf16 ? 2e-2 : 5e-3));
    CHECK(contains(error_of([&] { engine->decode(1); }), "the context is full"));
    EngineOptions options;
    options.context = 700;
    options.kv = kv;
    options.threads = 2;
    const MemoryUse account = engines()[0].account(*plan, options);
    CHECK(engine->memory().work == account.work);
    CHECK(engine->memory().kv == account.kv);
    // 704 tokens in whole blocks, 5 layers, 4 heads, 8 elements of k and 16 of padded v.
    CHECK(account.kv == 704 * 5 * 4 * (8 + 16) * size_t(kv_element_bytes(kv)));
  }
}

TEST_CASE("a session computes only what is new") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  auto engine = make_engine(*plan, "reference", 64);
  Session session(*engine);
  const std::vector<TokenId> first = {1, 10, 20, 30}, second = {1, 10, 21, 31, 41};
  session.sync(first);
  session.append(40);
  CHECK(engine->position() == 5);
  const std::span<const float> logits = session.sync(second);
  const std::vector<float> got(logits.begin(), logits.end());
  CHECK(engine->position() == 5);
  auto fresh = make_engine(*plan, "reference", 64);
  const std::span<const float> expected = fresh->prefill(second);
  CHECK(std::equal(got.begin(), got.end(), expected.begin()));
  // The same text again runs its last token once more, for the scores.
  session.sync(second);
  CHECK(engine->position() == 5);
  CHECK(contains(error_of([&] { session.sync({}); }), "empty"));
}

TEST_CASE("the speed of the processor is measured for every body") {
  for (const Body* body : kernel_bodies()) {
    INFO(body->name);
    CHECK(body->float_peak(3) > 0);
    CHECK(body->float_peak(6) == 2 * body->float_peak(3));
    CHECK(body->int8_peak(3) >= body->float_peak(3));
  }
  EngineOptions options;
  options.threads = 1;
  const DeviceSpeed speed = find_engine("cpu", options).measure(options, true);
  CHECK(speed.read_bytes_per_second > 1e8);
  CHECK(speed.float_ops_per_second > 1e8);
  CHECK(speed.int8_ops_per_second > 1e8);
  CHECK(!find_engine("reference", options).measure);
}

}  // namespace
}  // namespace qgen::test
