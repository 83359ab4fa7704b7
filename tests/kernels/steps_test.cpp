// The smaller kernels.
#include "generate/sampler.h"
#include "kernels/call_inputs.h"
#include "kernels/measure.h"
#include "kernels/speed.h"
#include "tests/kernels/on_device.h"

namespace qgen::test {
namespace {

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
      const Buffer<std::byte> best_there(device, std::vector<std::byte>(sizeof(BestScore)));
      ScoreArgs args;
      args.report.best = reinterpret_cast<BestScore*>(best_there.data());
      args.scores = there.data();
      args.count = count;
      args.wanted = 20;
      args.inverse_temperature = kind == 2 ? 1e30f : 1.4f;
      args.found = reinterpret_cast<FoundScores*>(found.data());
      args.scratch = reinterpret_cast<ScoreArgs::Scratch*>(scratch.data());
      find_best_score(device.stream(), args);
      find_best_scores(device.stream(), args);
      const std::vector<std::byte> bytes = found.read();
      const auto& result = *reinterpret_cast<const FoundScores*>(bytes.data());
      const std::vector<std::byte> best_bytes = best_there.read();
      const auto& best_score = *reinterpret_cast<const BestScore*>(best_bytes.data());
      INFO(count, " scores of kind ", kind);
      CHECK(best_score.all_finite == (kind != 3));
      if (kind == 3) continue;
      const auto best = std::max_element(scores.begin(), scores.end());
      CHECK(best_score.token == best - scores.begin());
      CHECK(best_score.score == *best);
      double mass = 0;
      for (const float v : scores) mass += std::exp((double(v) - *best) * args.inverse_temperature);
      CHECK(std::abs(result.mass - mass) < mass * kMassError / 10);
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

TEST_CASE("kernels: a token is drawn as the sampler draws it") {
  gpu::Device device(0);
  std::mt19937 random(26);
  const Buffer<std::byte> scratch(device, std::vector<std::byte>(sizeof(ScoreArgs::Scratch)));
  const Buffer<uint32_t> overflow(device, {7});
  // What the host gets without a copy.
  struct Host {
    BestScore best;
    int32_t next_token;
    uint32_t overflow;
    FoundScores found;
  };
  const PinnedMemory memory(sizeof(Host), "test");
  Host& host = *new (memory.data()) Host{};
  int settled = 0, wrong = 0;
  for (const int count : {1, 40, 3000}) {
    for (const double deviation : {1.0, 4.0}) {
      const std::vector<float> scores = normal(random, size_t(count), deviation);
      const Buffer<float> there(device, scores);
      for (int i = 0; i < 36; ++i) {
        SamplingSettings settings;
        settings.temperature.value = std::array{0.3, 0.8, 1.5}[size_t(i % 3)];
        settings.top_k.value = std::array{0, 1, 20, 150}[size_t(i / 3 % 4)];
        settings.top_p.value = std::array{1.0, 0.8, 0.95}[size_t(i / 12)];
        settings.min_p.value = i % 5 == 4 ? 0.05 : 0;
        settings.seed.value = random();
        Sampler sampler(settings);
        const std::vector<TokenChoice> choices = sampler.upcoming(1);
        if (choices.empty()) continue;
        const TokenChoice& c = choices[0];
        const Buffer<DrawSettings> draw(device, {draw_settings(c)});
        const Buffer<BestScore> best(device, std::vector<BestScore>(1));
        const Buffer<FoundScores> found(device, std::vector<FoundScores>(1));
        const Buffer<int32_t> next(device, std::vector<int32_t>(1, -1));
        ScoreArgs args;
        args.report.best = best.data();
        args.scores = there.data();
        args.count = count;
        args.draw = draw.data();
        args.report.next_token = next.data();
        args.report.overflow = overflow.data();
        args.found = found.data();
        host = {};
        args.host_report = {&host.best, &host.overflow, &host.next_token};
        args.host_found = &host.found;
        args.scratch = reinterpret_cast<ScoreArgs::Scratch*>(scratch.data());
        find_best_score(device.stream(), args);
        CHECK(next.read()[0] == best.read()[0].token);
        CHECK(host.best.token == best.read()[0].token);
        CHECK(host.best.score == best.read()[0].score);
        CHECK(host.next_token == host.best.token);
        CHECK(host.overflow == 7);
        find_best_scores(device.stream(), args);
        draw_token(device.stream(), args);
        const FoundScores few = found.read()[0];
        CHECK(host.next_token == next.read()[0]);
        CHECK(host.found.count == few.count);
        CHECK(host.found.mass == few.mass);
        for (uint32_t n = 0; n < std::min<uint32_t>(few.count, kMostBest); ++n)
          CHECK((host.found.token[n].token == few.token[n].token && host.found.token[n].score == few.token[n].score));
        TopScores top;
        for (uint32_t n = 0; n < few.count; ++n) top.best.push_back({few.token[n].token, few.token[n].score});
        std::sort(top.best.begin(), top.best.end(), better);
        if (c.mass_temperature > 0) top.mass = double(few.mass);
        const std::optional<TokenId> chosen = sampler.choose_among(top);
        if (!chosen) continue;
        ++settled;
        wrong += next.read()[0] != *chosen;
      }
    }
  }
  CHECK(settled > 120);
  CHECK(wrong == 0);
}

TEST_CASE("kernels: the best of a row of scores is found beside NaN") {
  gpu::Device device(0);
  std::mt19937 random(16);
  const Buffer<std::byte> found(device, std::vector<std::byte>(sizeof(FoundScores)));
  const Buffer<std::byte> scratch(device, std::vector<std::byte>(sizeof(ScoreArgs::Scratch)));
  for (const int count : {2, 700, 20000}) {
    for (const int every : {2, 3, 64, 256, 0}) {
      // NaN among the first that a thread sees, among the first of a block, and everywhere but in one place.
      std::vector<float> scores = normal(random, size_t(count), 6);
      const int only = int(random() % uint32_t(count));
      for (int i = 0; i < count; ++i) {
        if (every > 0 ? i % every == 0 : i != only) scores[size_t(i)] = NAN;
      }
      INFO(count, " scores, NaN every ", every);
      const Buffer<float> there(device, scores);
      const Buffer<std::byte> best_there(device, std::vector<std::byte>(sizeof(BestScore)));
      ScoreArgs args;
      args.report.best = reinterpret_cast<BestScore*>(best_there.data());
      args.scores = there.data();
      args.count = count;
      args.wanted = 5;
      args.found = reinterpret_cast<FoundScores*>(found.data());
      args.scratch = reinterpret_cast<ScoreArgs::Scratch*>(scratch.data());
      find_best_score(device.stream(), args);
      find_best_scores(device.stream(), args);
      const std::vector<std::byte> bytes = found.read();
      const auto& result = *reinterpret_cast<const FoundScores*>(bytes.data());
      const std::vector<std::byte> best_bytes = best_there.read();
      const auto& best_score = *reinterpret_cast<const BestScore*>(best_bytes.data());
      CHECK(!best_score.all_finite);
      int best = -1, numbers = 0;
      for (int i = 0; i < count; ++i) {
        if (std::isnan(scores[size_t(i)])) continue;
        ++numbers;
        if (best < 0 || scores[size_t(i)] > scores[size_t(best)]) best = i;
      }
      CHECK(best_score.token == best);
      CHECK(best_score.score == scores[size_t(best)]);
      CHECK(result.count >= uint32_t(std::min(5, numbers)));
      const std::vector<std::byte> after = scratch.read();
      const auto& bins = reinterpret_cast<const ScoreArgs::Scratch*>(after.data())->bins;
      CHECK(std::all_of(std::begin(bins), std::end(bins), [](uint32_t bin) { return bin == 0; }));
    }
  }
}

TEST_CASE("kernels: experts whose scores are NaN are chosen last, and weigh NaN") {
  gpu::Device device(0);
  // More experts than a warp has lanes; the highest number is expert 40's.
  for (const int numbers : {1, 2, 3}) {
    std::vector<float> logits(70, NAN);
    for (int i = 0; i < numbers; ++i) logits[size_t(40 - 39 * i / 2)] = float(3 - i);
    const Buffer<float> there(device, logits), out(device, std::vector<float>(4));
    RouteArgs args;
    args.logits = there.data();
    args.stride = 70;
    args.experts = 70;
    args.chosen = 2;
    args.score = RouteStep::Score::kSigmoid;
    args.out = out.data();
    args.out_stride = 4;
    args.tokens = 1;
    choose_experts(device.stream(), args);
    const std::vector<float> route = out.read();
    CHECK(route[2] == 40);
    CHECK(std::abs(route[0] - 1 / (1 + std::exp(-3.0f))) < 1e-6f);
    if (numbers == 1) {
      CHECK(std::isnan(route[1]));
    } else {
      CHECK(route[3] == 21);
      CHECK(std::abs(route[1] - 1 / (1 + std::exp(-2.0f))) < 1e-6f);
    }
  }
}

TEST_CASE("kernels: NaN codes and scales are found while weights are brought in") {
  std::mt19937 random(12);
  for (const bool damaged : {false, true}) {
    Plan plan;
    plan.weights.push_back(random_weight(random, Codes::kE4M3, 700, 2000, 128, 128, false));  // several pieces
    plan.weights.push_back(random_weight(random, Codes::kE5M2, 20, 300, 1, 300, false));
    plan.weights.push_back(random_blocks(random, 40, 96));
    plan.weights[0].owned[0] = plan.weights[0].owned[1'234'567] = std::byte{0x7F};
    plan.weights[1].owned.back() = std::byte{0xFC};
    if (damaged) plan.weights[2].owned[34 * 7 + 1] = std::byte{0x7C};
    std::vector<Weight*> weights;
    for (Weight& weight : plan.weights) weights.push_back(&weight);
    size_t told = 0;
    WeightScan scan(weights, [&](size_t done) { told = std::max(told, done); });
    gpu::Device device(0);
    WeightStore store(plan);
    store.load(device, &scan);
    scan.report();
    CHECK(told == 700 * 2000 + 20 * 300 + 40 * 3 * 34);
    CHECK(contains(error_of([&] { scan.finish(); }), damaged ? "1 scales are NaN or infinite" : ""));
    CHECK(plan.weights[0].nan_codes == 2);
    CHECK(plan.weights[1].nan_codes == 1);
  }
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

TEST_CASE(
    "kernels: operands of the library's products are random numbers of moderate size, and its speed is measured") {
  gpu::Device device(0);
  constexpr int64_t kCount = 20'000;
  const DeviceMemory memory(device, 2 * kCount, "test");
  std::vector<uint16_t> halves(static_cast<size_t>(kCount));
  std::vector<uint8_t> codes(static_cast<size_t>(kCount));
  // Their mean, after a check of each: all are as likely with either sign.
  const auto mean_of = [](const auto& values, const auto& number) {
    double sum = 0;
    for (const auto v : values) {
      const double x = number(v);
      CHECK_UNARY(std::abs(x) >= 0.125);
      CHECK_UNARY(std::abs(x) < 2);
      sum += x;
    }
    return sum / double(values.size());
  };
  fill_randomly(device.stream(), memory.data(), 2 * kCount, LibraryGemmKind::kF16, 1);
  copy_to_host(device.stream(), halves.data(), memory.data(), 2 * kCount);
  device.wait();
  CHECK(std::abs(mean_of(halves, [](uint16_t v) { return f16_to_float(v); })) < 0.05);
  fill_randomly(device.stream(), memory.data(), kCount, LibraryGemmKind::kE4M3, 1);
  copy_to_host(device.stream(), codes.data(), memory.data(), kCount);
  device.wait();
  CHECK(std::abs(mean_of(codes, [](uint8_t v) { return e4m3_to_float(v); })) < 0.05);
  const std::vector<uint8_t> before = codes;
  fill_randomly(device.stream(), memory.data(), kCount, LibraryGemmKind::kE4M3, 2);
  copy_to_host(device.stream(), codes.data(), memory.data(), kCount);
  device.wait();
  CHECK(codes != before);
#if defined(QGEN_SIMT)
  constexpr int kSize = 32;
#else
  constexpr int kSize = 1024;
#endif
  CHECK((library_speed(device, LibraryGemmKind::kF16, kSize, 2) > 0) == gemm_library_found());
}

}  // namespace
}  // namespace qgen::test
