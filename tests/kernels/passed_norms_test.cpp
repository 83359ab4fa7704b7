// Which norms have no kernel of their own.
#include "kernels/passed_norms.h"
#include "tests/kernels/on_device.h"
#include "tests/step_plans.h"

namespace qgen::test {
namespace {

TEST_CASE("kernels: norms are left to the steps that read them where all can do them") {
  const auto all_can = [](const CombineStep&, const Step&) { return true; };
  const auto no_experts = [](const CombineStep&, const Step& step) {
    return !std::holds_alternative<ExpertsStep>(step.op);
  };
  struct Row {
    const char* golden;
    bool left_out;
  };
  for (const auto& [golden, left_out] : {Row{"qwen3_moe-bf16", true},
                                         {"qwen2_moe-bf16", true},      // a shared expert with a gate
                                         {"deepseek_v2-bf16", true},    // one without
                                         {"gemma4-moe-bf16", true},     // the experts have a norm of their own
                                         {"mistral-window", false}}) {  // no norms of their own
    INFO(std::string(golden));
    const auto plan = load_plan(source_folder() / "tests/golden" / golden);
    const size_t count = plan->steps.size();
    const PassedNorms norms(*plan, all_can), none(*plan, no_experts);
    int layers = 0, left = 0;
    for (size_t i = 0; i < count; ++i) {
      if (std::holds_alternative<ExpertsStep>(plan->steps[i].op)) {
        ++layers;
        CHECK(none.norm_of(i, 0, count) == nullptr);
        const CombineStep* const norm = norms.norm_of(i, 0, count);
        CHECK((norm != nullptr) == left_out);
        if (norm == nullptr) continue;
        CHECK(norm->out.row == std::get<ExpertsStep>(plan->steps[i].op).in.row);
        // Not where a part of these steps is run, and someone may look at the row between.
        CHECK(norms.norm_of(i, 0, i) == nullptr);
        CHECK(norms.norm_of(i, i, count) == nullptr);
      }
      left += norms.is_left_out(i, 0, count);
      CHECK(!norms.is_left_out(i, i, i + 1));
      // Each that is left out is taken by every step that reads it until it is written again.
      if (!norms.is_left_out(i, 0, count)) continue;
      const RowId row = std::get<CombineStep>(plan->steps[i].op).out.row;
      const auto has = [&](const std::vector<RowId>& rows) { return std::ranges::find(rows, row) != rows.end(); };
      for (size_t j = i + 1; j < count && !has(rows_written(plan->steps[j])); ++j) {
        if (has(rows_read(plan->steps[j])))
          CHECK(norms.norm_of(j, 0, count) == &std::get<CombineStep>(plan->steps[i].op));
      }
    }
    CHECK(left == (left_out ? layers : 0));
  }
}

TEST_CASE("kernels: a norm is not left out where what it reads is gone when its row is read") {
  // Two products of the row: between them the residual changes, or it does not.
  for (const bool changes : {false, true}) {
    PlanMaker maker;
    CombineStep own;
    own.y = maker.residual;
    own.norm = {Norm::Kind::kRms, maker.vector(PlanMaker::kHidden), nullptr, 1e-6, PlanMaker::kHidden};
    own.out = maker.row("normed", PlanMaker::kHidden);
    maker.add(own);
    LinearStep one, two;
    one.in = two.in = own.out;
    const View beside = maker.row("beside", PlanMaker::kHidden);
    Projection into = maker.project(PlanMaker::kHidden, PlanMaker::kHidden, changes ? maker.residual : beside);
    into.add = changes;
    one.projections = {into};
    two.projections = {maker.project(PlanMaker::kHidden, PlanMaker::kHidden, maker.row("other", PlanMaker::kHidden))};
    maker.add(one);
    maker.add(two);
    const auto plan = maker.finish();
    const PassedNorms norms(*plan, [](const CombineStep&, const Step&) { return true; });
    int left = 0;
    for (size_t i = 0; i < plan->steps.size(); ++i) left += norms.is_left_out(i, 0, plan->steps.size());
    CHECK(left == (changes ? 0 : 1));
  }
}

}  // namespace
}  // namespace qgen::test
