// The CPU engine step by step against the reference engine, and what holds for all of its runs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/numbers.h"
#include "engine/engine_table.h"
#include "tests/cpu/test_targets.h"
#include "tests/random_weight.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

// Golden models of each family; the demo models, which are trained.
std::vector<fs::path> step_models() {
  const fs::path golden = source_folder() / "tests/golden";
  return {golden / "llama-fp8-block-bf16",
          golden / "mistral-ct-int8-group-10",
          golden / "qwen2-ct-int8-channel",
          golden / "llama-fp8-channel-2d",
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
      engine->engine->set_trace(
          [&](size_t i, std::span<const float> values) { steps.at(i).assign(values.begin(), values.end()); });
      if (one_by_one) {
        for (const TokenId id : ids) engine->decode(id);
      } else {
        engine->prefill(ids);
      }
      return steps;
    };
    const auto expected = steps_of("reference", false);
    for (const IsaTarget* target : supported_targets()) {
      for (const bool one_by_one : {false, true}) {
        const auto got = steps_of(std::string("cpu:") + target->name, one_by_one);
        for (size_t i = 0; i < got.size(); ++i) {
          INFO(model.filename().string(), " ", std::string(target->name),
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
  const auto run = [&](TestEngine& engine) {
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
    for (const IsaTarget* target : supported_targets()) {
      INFO(std::string(target->name), " ", std::string(activations_name(activations)));
      EngineOptions options{.context = 400, .activations = activations, .threads = 1};
      const std::string device = std::string("cpu:") + target->name;
      const auto expected = run(*make_engine(*plan, device, options));
      for (const int threads : {1, 2, 3, 7}) {
        options.threads = threads;
        const auto engine = make_engine(*plan, device, options);
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
  for (const KvType kv : {KvType::kF16, KvType::kBf16, KvType::kF32, KvType::kFp8, KvType::kInt8}) {
    INFO(kv_name(kv));
    auto engine = make_engine(*plan, "cpu", 700, kv);
    CHECK(normwise_error(engine->prefill(ids), expected) < (kv == KvType::kFp8                           ? 2e-1
                                                            : kv == KvType::kBf16 || kv == KvType::kInt8 ? 2e-2
                                                                                                         : 5e-3));
    CHECK(contains(error_of([&] { engine->decode(1); }), "the context is full"));
    EngineOptions options;
    options.context = 700;
    options.kv = kv;
    options.threads = 2;
    const MemoryUse account = engines()[0].account(*plan, options);
    CHECK(engine->engine->memory().work == account.work);
    CHECK(engine->engine->memory().kv == account.kv);
    // 768 tokens in whole pages, 5 layers, 4 heads, 8 elements of k and 16 of padded v, and two scales of 8-bit ones.
    const size_t row = (8 + 16) * size_t(kv_element_bytes(kv)) + 2 * size_t(kv_row_bytes(kv, 0));
    CHECK(account.kv == 768 * 5 * 4 * row);
  }
}

TEST_CASE("the speed of the processor is measured for every target") {
  for (const IsaTarget* target : kernel_targets()) {
    INFO(target->name);
    CHECK(target->float_peak(3) > 0);
    CHECK(target->float_peak(6) == 2 * target->float_peak(3));
    CHECK(target->int8_peak(3) >= target->float_peak(3));
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
