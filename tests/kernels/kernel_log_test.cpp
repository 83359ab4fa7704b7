// What times of kernels say of a token, and that every kernel of a token has some where they are built in.
#include "kernels/kernel_log.h"
#include "tests/kernels/on_device.h"

namespace qgen::test {
namespace {

TEST_CASE("kernels: where a token's time goes") {
  // Nanoseconds; the second kernel waits on the device for the first one, the third begins 400 later.
  const std::vector<KernelTimes> walk = {
      {"qkv", "gemv", 1000, 1000, 3000, {{{1000, 1500}, {1100, 1500}, {1600, 1800}, {2900, 3000}}}},
      {"attend", "attend", 1500, 3100, 4000, {{{1500, 1500}, {3100, 3100}, {}, {4000, 4000}}}},
      {"qkv", "gemv", 4400, 4500, 6500, {{{4400, 4900}, {4500, 4900}, {5000, 5200}, {6300, 6500}}}},
      {"attend", "attend", 4600, 6500, 8000, {{{4600, 4600}, {6500, 6500}, {}, {8000, 8000}}}}};
  std::vector<KernelTimes> slower = walk;
  // Another token, half a century later, its last kernel slower.
  constexpr int64_t kLater = 1'700'000'000'000'000'000;
  for (KernelTimes& kernel : slower) {
    kernel.begin += kLater;
    kernel.ready += kLater;
    kernel.end += kLater;
    for (StageTimes& stage : kernel.stages) {
      if (stage.last > 0) stage = {stage.half + kLater, stage.last + kLater};
    }
  }
  slower.back().end += 1000;
  const Profile profile = summarize({walk, slower});
  REQUIRE(profile.shares.size() == 2);
  CHECK(profile.total == 7500);
  CHECK(profile.shares[0].launches == 2);
  CHECK(profile.shares[0].running == 4000);
  CHECK(profile.shares[0].gap == 500);
  CHECK(profile.shares[1].running == 900 + 1500 + 500);
  CHECK(profile.shares[1].gap == 100);
  CHECK(profile.early == 0.5);
  CHECK(profile.tick == 100);
  CHECK(format_profile(profile, {{"qkv", 8e6}}) ==
        "step               kernel         launches    us each   gap each us a token   share    GB/s\n"
        "qkv                gemv                  2       2.00       0.25        4.5  60.0 %    2000\n"
        "attend             attend                2       1.45       0.05        3.0  40.0 %        \n"
        "all                                      4       1.73       0.15        7.5 100.0 %    1159\n"
        "gaps 0.6 us a token; 50 % of the kernels were there before the one before them ended; the clock ticks every "
        "100 ns\n"
        "us from the end of the kernel before until half of the blocks, and all, ...\n"
        "step               kernel                   began      had inputs     staged them           ended\n"
        "qkv                gemv              0.20    0.70    0.30    0.70    0.80    1.00    2.10    2.25\n"
        "attend             attend           -1.70   -1.70    0.05    0.05                    1.25    1.25\n");
  slower.pop_back();
  CHECK(contains(error_of([&] { summarize({walk, slower}); }), "tokens differ (expected 4 launches, found 3)"));
}

#if defined(QGEN_CUDA_TIMESTAMPS)
TEST_CASE("kernels: every kernel of a CUDA graph stamps its times, anew each time it runs") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  EngineOptions options;
  options.context = 64;
  const auto engine = make_gpu_engine(*plan, options);
  engine->decode(3);
  gpu::Device device(0);
  std::vector<std::vector<KernelTimes>> walks;
  {
    KernelLog log(device, 1 << 16);
    engine->decode(4);  // recorded
    for (int i = 0; i < 3; ++i) {
      engine->decode(TokenId(5 + i));
      walks.push_back(log.read());
    }
    CHECK(KernelLog::current() == &log);
  }
  CHECK(KernelLog::current() == nullptr);
  // Of each layer: products of q, k and v, attention, its output, gate and up, down; before them the embedding, after
  // them the head's product and the best score.
  CHECK(walks[0].size() == size_t(3 + 5 * plan->model.layers));
  CHECK(walks[0].front().kernel == "look up");
  CHECK(walks[0].back().kernel == "best score");
  for (size_t t = 0; t < walks.size(); ++t) {
    for (size_t i = 0; i < walks[t].size(); ++i) {
      const KernelTimes& kernel = walks[t][i];
      INFO(kernel.step, " ", kernel.kernel);
      CHECK(!kernel.step.empty());
      CHECK(kernel.begin > 0);
      CHECK(kernel.ready >= kernel.begin);
      CHECK(kernel.end > kernel.ready);
      CHECK(kernel.begin > (i > 0 ? walks[t][i - 1].end : t > 0 ? walks[t - 1].back().end : 0));
    }
  }
  const Profile profile = summarize(walks);
  CHECK(profile.shares.size() == 6);
  double sum = 0;
  for (const KernelShare& share : profile.shares) sum += share.running + share.gap;
  CHECK(std::abs(sum - profile.total) < 1e-6 * sum);
  const TokenId more[] = {9, 10, 11, 12, 13};
  const auto timed = make_gpu_engine(*plan, options);
  const ProfiledTokens profiled = profile_decoding(timed->sequence, device, more, 2);
  CHECK(profiled.profile.shares.size() == 6);
  CHECK(profiled.profile.shares[2].launches == double(plan->model.layers));
  CHECK(profiled.host_seconds > 0);
  CHECK(timed->position() == 5);
  KernelLog small(device, 10);
  const auto fresh = make_gpu_engine(*plan, options);
  fresh->decode(3);
  CHECK(contains(error_of([&] { small.read(); }), "too many blocks (expected at most 10"));
}

// The kernels that `run` launches, each with ", " behind it.
template <typename Run>
std::string launches_of(KernelLog& log, const Run& run) {
  log.clear();
  run();
  std::string out;
  for (const KernelTimes& kernel : log.read()) out += kernel.kernel + ", ";
  return out;
}

#if defined(QGEN_SIMT)
TEST_CASE("kernels: a token's inputs and what comes of it need no copies") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  EngineOptions options;
  options.context = 64;
  gpu::Device device(0);
  const auto engine = make_gpu_engine(*plan, options);
  size_t kernels = 0;
  {
    KernelLog log(device, 1 << 16);
    engine->decode(3);
    kernels = log.read().size();
  }
  // The second call is recorded, the third one runs what was.
  for (const TokenId token : {4, 5}) {
    const size_t before = count_work().done;
    engine->decode(token);
    CHECK(count_work().done - before == kernels);
  }
}
#endif

TEST_CASE("kernels: what steps do for their neighbours has no launches of its own") {
  const auto plan = load_plan(source_folder() / "tests/golden/qwen3_5_moe-bf16");
  EngineOptions options;
  options.context = 64;
  gpu::Device device(0);
  const auto engine = make_gpu_engine(*plan, options);
  KernelLog log(device, 1 << 16);
  // Four products, three of which go together and one beside them; no convolution before the recurrence, no gate behind
  // it, no norm before the router, no sum behind the shared expert. The second layer has attention.
  const std::string mixture = "gemv, gemv, route, experts, experts, add choices, gemv, ";
  CHECK(launches_of(log, [&] { engine->decode(3); }) ==
        "look up, gemv, gemv, recur, gemv, " + mixture + "gemv, attend, gemv, " + mixture + "gemv, best score, ");
  // Where each step is looked at it has its own.
  engine->engine->set_trace([](size_t, std::span<const float>) {});
  const std::string traced = launches_of(log, [&] { engine->decode(4); });
  for (const char* kernel : {"gemv, convolve, recur, combine, gemv", "norm, gemv, gemv, route", "gemv, combine"})
    CHECK(contains(traced, kernel));
}

TEST_CASE("kernels: attention of a prompt rounds what the next product takes, from a cache in F16") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  gpu::Device device(0);
  const std::vector<TokenId> ids(40, 7);
  for (const KvType kv : {KvType::kF16, KvType::kFp8}) {
    EngineOptions options;
    options.context = 64;
    options.kv = kv;
    const auto engine = make_gpu_engine(*plan, options);
    KernelLog log(device, 1 << 16);
    const std::string prompt = launches_of(log, [&] { engine->prefill(ids); });
    CHECK(contains(prompt, "attend in tiles, to fp16, ") == (kv != KvType::kF16));
  }
}

TEST_CASE("kernels: recurrences of prompts go in chunks, but not of a few tokens or where all is to be F32") {
  const auto plan = load_plan(source_folder() / "tests/golden/qwen3_5_moe-bf16");
  gpu::Device device(0);
  const std::vector<TokenId> ids(17, 5);
  for (const Activations activations : {Activations::k16Bit, Activations::kF32}) {
    for (const size_t count : {16, 17}) {
      EngineOptions options;
      options.context = 64;
      options.activations = activations;
      const auto engine = make_gpu_engine(*plan, options);
      KernelLog log(device, 1 << 16);
      const auto kernels = launches_of(log, [&] { engine->prefill({ids.data(), count}); });
      const bool in_chunks = count == 17 && activations == Activations::k16Bit;
      CHECK(contains(kernels, "recur prepare, recur chunks, ") == in_chunks);
      CHECK(contains(kernels, " recur, ") != in_chunks);
    }
  }
}
#endif

}  // namespace
}  // namespace qgen::test
