// Every field of the vocabulary of steps, on made-up plans, against the reference.
#include "tests/kernels/on_device.h"
#include "tests/step_plans.h"

namespace qgen::test {
namespace {

// What each step writes for the last token, call by call.
using Traces = std::vector<std::vector<float>>;

Traces trace_of(Engine& engine, const std::vector<TokenId>& ids, const std::vector<size_t>& counts, Kernels kernels) {
  Traces out;
  engine.set_trace([&](size_t, std::span<const float> values) { out.emplace_back(values.begin(), values.end()); });
  const SequenceId sequence = *engine.open(PlanMaker::kContext);
  size_t done = 0;
  for (const size_t count : counts) {
    const Work work{sequence, std::span(ids).subspan(done, count), Wanted::kLast};
    engine.run({&work, 1}, {}, kernels);
    done += count;
  }
  return out;
}

void compare(const Plan& plan, KvType kv, Activations activations, Kernels kernels, const std::vector<size_t>& counts,
             double limit) {
  EngineOptions options;
  options.context = PlanMaker::kContext;
  options.kv = kv;
  options.activations = activations;
  std::vector<TokenId> ids;
  for (int i = 0; i < PlanMaker::kContext; ++i) ids.push_back(TokenId(i * 7 % PlanMaker::kVocab));
  Engine engine(plan, options, gpu::make_backend(plan, options));
  Engine reference(plan, options, make_reference_backend(plan, options));
  const Traces found = trace_of(engine, ids, counts, kernels), expected = trace_of(reference, ids, counts, kernels);
  REQUIRE(expected.size() == counts.size() * plan.main_steps());
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("call ", i / plan.steps.size(), ", step ", i % plan.steps.size(), " ",
         step_name(plan.steps[i % plan.steps.size()]));
    CHECK(normwise_error(found[i], expected[i]) < limit);
  }
}

TEST_CASE("kernels: every field of every step against the reference") {
  for (const StepCase& one : step_cases()) {
    for (const Codes codes : {Codes::kI8, Codes::kF32}) {
      INFO(one.name, ", weights ", std::string(codes_name(codes)));
      PlanMaker maker(codes);
      one.make(maker);
      const auto plan = maker.finish();
      // Singly and a few at a time: a first token, a few, then one after the other.
      compare(*plan, KvType::kF32, Activations::k16Bit, Kernels::kByCount, {1, 6, 1, 1, 8, 1, 1}, 2e-5);
      if (codes == Codes::kF32 && !one.name.starts_with("attention")) continue;
      // In tiles, and through the library.
      compare(*plan, KvType::kF16, Activations::k16Bit, Kernels::kByCount, {30, 44}, 4e-3);
      compare(*plan, KvType::kF16, Activations::k16Bit, Kernels::kPrompt, {5, 20}, 4e-3);
    }
  }
}

TEST_CASE("kernels: caches of every type with longer keys than values") {
  const std::vector<StepCase> cases = attend_cases();
  const auto longer = std::find_if(
      cases.begin(), cases.end(), [](const StepCase& one) { return one.name == "attention: longer keys than values"; });
  REQUIRE(longer != cases.end());
  PlanMaker maker;
  longer->make(maker);
  const auto plan = maker.finish();
  for (const KvType kv : {KvType::kF16, KvType::kBf16, KvType::kF32, KvType::kFp8, KvType::kInt8}) {
    INFO(std::string(kv_name(kv)));
    const double limit = kv == KvType::kFp8 ? 8e-2 : kv == KvType::kBf16 || kv == KvType::kInt8 ? 2e-2 : 4e-3;
    compare(*plan, kv, Activations::k16Bit, Kernels::kByCount, {1, 6, 30, 1, 1}, limit);
  }
}

TEST_CASE("kernels: heads that are too long for them are refused") {
  PlanMaker maker;
  maker.add_attention(maker.attention({.heads = 1, .kv_heads = 1, .key_dim = 776, .value_dim = 64}));
  const auto plan = maker.finish();
  EngineOptions options;
  options.context = PlanMaker::kContext;
  ErrorKind kind{};
  CHECK(contains(error_of([&] { gpu::account_backend(*plan, options); }, &kind),
                 "cuda: heads are too large (expected at most 768 elements, found 776)"));
  CHECK(kind == ErrorKind::kDevice);
}

}  // namespace
}  // namespace qgen::test
