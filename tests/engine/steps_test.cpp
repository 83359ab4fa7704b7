// Every field of the vocabulary of steps, on made-up plans, the CPU engine against the reference.
#include "tests/step_plans.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

using Traces = std::vector<std::vector<float>>;

Traces trace_of(const Plan& plan, const std::string& device, const std::vector<size_t>& counts) {
  Traces out;
  const auto engine = make_engine(plan, device, PlanMaker::kContext, KvType::kF32);
  engine->engine->set_trace(
      [&](size_t, std::span<const float> values) { out.emplace_back(values.begin(), values.end()); });
  TokenId next = 0;
  for (const size_t count : counts) {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < count; ++i) ids.push_back(TokenId(next++ * 7 % PlanMaker::kVocab));
    engine->prefill(ids);
  }
  return out;
}

TEST_CASE("every field of every step: the CPU engine against the reference") {
  for (const StepCase& one : step_cases()) {
    PlanMaker maker;
    one.make(maker);
    const auto plan = maker.finish();
    for (const std::vector<size_t>& counts : {std::vector<size_t>{1, 6, 1, 1}, {30, 44}}) {
      const Traces found = trace_of(*plan, "cpu", counts), expected = trace_of(*plan, "reference", counts);
      REQUIRE(expected.size() == counts.size() * plan->main_steps());
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        INFO(one.name, ", call ", i / plan->steps.size(), ", step ", step_name(plan->steps[i % plan->steps.size()]));
        CHECK(normwise_error(found[i], expected[i]) < 1e-3);
      }
    }
  }
}

}  // namespace
}  // namespace qgen::test
