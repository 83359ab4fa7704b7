// Which steps are done by the kernels of their neighbours, or beside them.
#include "kernels/fused_steps.h"
#include "tests/kernels/on_device.h"
#include "tests/step_plans.h"

namespace qgen::test {
namespace {

// How many steps of a plan have what.
struct Count {
  int sums = 0, convs = 0, gates = 0, independent = 0;
  bool operator==(const Count&) const = default;
};
Count count(const Plan& plan) {
  const FusedSteps fused(plan);
  Count out;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    out.sums += fused.gated_sum(i) != nullptr;
    out.convs += fused.conv_before(i) != nullptr;
    out.gates += fused.gate_behind(i) != nullptr;
    out.independent += fused.are_independent(i, i + 1);
  }
  return out;
}
template <typename Op>
int steps_of(const Plan& plan) {
  int out = 0;
  for (const Step& step : plan.steps) out += std::holds_alternative<Op>(step.op);
  return out;
}

TEST_CASE("kernels: shared experts, recurrences and routers are fused where nothing else reads what is between") {
  struct Row {
    const char* golden;
    // Whether its mixtures have a shared expert and a gate of it; whether the step behind its recurrences fits.
    bool shared, gated, gates;
  };
  for (const auto& [golden, shared, gated, gates] : {
           Row{"qwen3_5_moe-bf16", true, true, true},
           {"qwen3_next-bf16", true, true, true},
           {"qwen2_moe-bf16", true, true, false},
           {"deepseek_v2-bf16", true, false, false},
           {"qwen3_moe-bf16", false, false, false},
           {"falcon_h1-bf16", false, false, true},  // multiplied by the gate, no norm
           {"nemotron_h-bf16", true, false, true},  // multiplied by the gate, then normalized
           {"lfm2-bf16", false, false, false},      // convolutions without a recurrence
       }) {
    INFO(std::string(golden));
    const auto plan = load_plan(source_folder() / "tests/golden" / golden);
    const int mixtures = steps_of<ExpertsStep>(*plan), recurrences = steps_of<RecurStep>(*plan);
    const Count found = count(*plan);
    CHECK(found.sums == (gated ? mixtures : 0));
    CHECK(found.convs == recurrences);
    CHECK(found.gates == (gates ? recurrences : 0));
    CHECK(found.independent == (shared ? mixtures : 0));
  }
}

TEST_CASE("kernels: a gate is left to the next product where that alone reads what it gates") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  std::vector<size_t> left;
  const FusedSteps fused(*plan);
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    if (fused.gate_is_for_next(i)) left.push_back(i);
  }
  REQUIRE(int64_t(left.size()) == plan->model.layers);
  const auto linear = [&](size_t i) -> LinearStep& { return std::get<LinearStep>(plan->steps[i].op); };
  const size_t step = left[0];
  const View out = linear(step).projections[0].out;
  CHECK(linear(step).projections[0].gate != nullptr);
  CHECK(linear(step + 1).in == out);
  const auto is_left = [&] { return FusedSteps(*plan).gate_is_for_next(step); };
  linear(step + 1).in.cols -= 32;
  CHECK(!is_left());
  linear(step + 1).in = out;
  CHECK(is_left());
  linear(step + 1).norm = linear(step).norm;
  CHECK(!is_left());
  linear(step + 1).norm = {};
  // What comes behind is the next layer.
  const View before = linear(step + 2).in;
  linear(step + 2).in = out;
  CHECK(!is_left());
  linear(step + 2).in = before;
  CHECK(is_left());
}

TEST_CASE("kernels: what attention mixes is rounded by it where the next product alone reads it") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  std::vector<size_t> found;
  const FusedSteps fused(*plan);
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    if (fused.values_are_for_next(i)) found.push_back(i);
  }
  REQUIRE(int64_t(found.size()) == plan->model.layers);
  const size_t step = found[0];
  auto& attend = std::get<AttendStep>(plan->steps[step].op);
  auto& next = std::get<LinearStep>(plan->steps[step + 1].op);
  const auto are_for_next = [&] { return FusedSteps(*plan).values_are_for_next(step); };
  CHECK(next.in == attend.out);
  // By queries that lie in the same row, or a later step.
  const Heads queries = attend.q;
  attend.q.row = attend.out.row;
  CHECK(!are_for_next());
  attend.q = queries;
  CHECK(are_for_next());
  View& later = std::get<LinearStep>(plan->steps[step + 2].op).in;
  const View before = later;
  later = attend.out;
  CHECK(!are_for_next());
  later = before;
  next.in.cols -= 32;
  CHECK(!are_for_next());
}

TEST_CASE("kernels: a step that something else depends on is not fused") {
  const auto plan_of = [](int change) {
    PlanMaker maker;
    const int64_t hidden = PlanMaker::kHidden;
    const View score = maker.row("score", 1), product = maker.row("product", hidden),
               other = maker.row("other", hidden);
    LinearStep scores, down;
    scores.in = maker.residual;
    scores.projections = {maker.project(1, hidden, score)};
    down.in = other;
    down.projections = {maker.project(hidden, hidden, product)};
    if (change == 1) down.projections[0].activation = Activation::kSilu;
    CombineStep sum;
    sum.x = sum.out = maker.residual;
    sum.y = product;
    sum.gate = score;
    sum.activation = change == 2 ? Activation::kSilu : Activation::kSigmoid;
    if (change == 3) sum.y_scale = 2;
    maker.add(scores);
    maker.add(down);
    maker.add(sum);
    if (change == 4) {  // the product is read once more
      LinearStep again = down;
      again.in = product;
      again.projections = {maker.project(hidden, hidden, maker.row("again", hidden))};
      maker.add(again);
    }
    if (change == 5) {  // steps of one input, the second of which also overwrites it
      LinearStep over = scores;
      over.projections = {maker.project(hidden, hidden, maker.residual)};
      over.in = maker.residual;
      maker.add(scores);
      maker.add(over);
    }
    return maker.finish();
  };
  for (int change = 0; change <= 5; ++change) {
    INFO(change);
    const Count found = count(*plan_of(change));
    CHECK(found.sums == (change == 0 || change == 5 ? 1 : 0));
    CHECK(found.independent == (change == 4 ? 2 : 1));  // the first two, and the last of four and the head
  }
}

// As latent attention has it, where the products of its input have multipliers of their own.
TEST_CASE("kernels: of three products in a row the last does not run beside the first, whose result it takes") {
  PlanMaker maker;
  const int64_t hidden = PlanMaker::kHidden;
  const View one = maker.row("one", hidden), beside = maker.row("beside", hidden), last = maker.row("last", hidden);
  const auto product = [&](const View& in, const View& out, bool add) {
    LinearStep step;
    step.in = in;
    if (!add) step.norm = maker.rms(hidden);
    step.projections = {maker.project(hidden, hidden, out)};
    step.projections[0].add = add;
    maker.add(step);
  };
  product(maker.residual, one, false);
  product(maker.residual, beside, false);
  product(one, last, false);
  product(last, maker.residual, true);
  product(beside, maker.residual, true);
  const auto plan = maker.finish();
  const FusedSteps fused(*plan);
  CHECK(fused.are_independent(1, 2));
  CHECK(fused.are_independent(2, 3));
  CHECK_FALSE(fused.are_independent(1, 3));
  EngineOptions options;
  options.context = 16;
  const auto reference = make_engine(*plan, "reference", options), engine = make_gpu_engine(*plan, options);
  for (const TokenId token : {3, 4, 5}) {
    const Scores expected = reference->decode(token), scores = engine->decode(token);
    CHECK(normwise_error(scores.all(), expected.all()) < 1e-3);
  }
}

TEST_CASE("kernels: a convolution and a gate are done by the recurrence between them unless something is otherwise") {
  constexpr int64_t kHeads = 2, kKeyDim = 8, kValueDim = 12, kConv = 2 * kHeads * kKeyDim + kHeads * kValueDim;
  enum Change {
    kNone,
    kReadAgain,
    kOtherPlace,
    kGelu,
    kKeysOverlap,
    kGateOverlaps,
    kGroup,
    kScaled,
    kGateGelu,
    kChanges
  };
  for (int change = 0; change < kChanges; ++change) {
    INFO(change);
    PlanMaker maker;
    const View all = maker.row("all", kConv + 2 * kHeads + kHeads * kValueDim),
               mixed = maker.row("mixed", kHeads * kValueDim), other = maker.row("other", kConv);
    LinearStep inputs;
    inputs.in = maker.residual;
    inputs.projections = {maker.project(all.cols, PlanMaker::kHidden, all)};
    maker.add(inputs);
    ConvStep conv;
    conv.taps = 4;
    conv.out = {all.row, 0, kConv};
    conv.in = change == kOtherPlace ? other : conv.out;
    conv.activation = change == kGelu ? Activation::kGelu : Activation::kSilu;
    maker.add(conv);
    RecurStep recur;
    recur.heads = recur.key_heads = kHeads;
    recur.key_dim = kKeyDim;
    recur.value_dim = kValueDim;
    recur.q = {all.row, 0, kKeyDim};
    recur.k = {all.row, change == kKeysOverlap ? kKeyDim : kHeads * kKeyDim, kKeyDim};
    recur.v = {all.row, 2 * kHeads * kKeyDim, kValueDim};
    recur.decay = {all.row, kConv, kHeads};
    recur.rate = {all.row, kConv + kHeads, kHeads};
    recur.out = mixed;
    maker.add(recur);
    CombineStep gate;
    gate.y = gate.out = mixed;
    gate.norm = {Norm::Kind::kRms, maker.vector(kValueDim), nullptr, 1e-6, change == kGroup ? mixed.cols : kValueDim};
    gate.gate = {all.row, change == kGateOverlaps ? 1 : kConv + 2 * kHeads, mixed.cols};
    gate.activation = change == kGateGelu ? Activation::kGelu : Activation::kSilu;
    if (change == kScaled) gate.y_scale = 2;
    maker.add(gate);
    if (change == kReadAgain) {
      LinearStep again;
      again.in = conv.out;
      again.projections = {maker.project(PlanMaker::kHidden, kConv, maker.row("again", PlanMaker::kHidden))};
      maker.add(again);
    }
    const Count found = count(*maker.finish());
    const bool no_conv = change == kReadAgain || change == kOtherPlace || change == kGelu || change == kKeysOverlap ||
                         change == kGateOverlaps;
    const bool no_gate = change == kGroup || change == kScaled || change == kGateGelu;
    CHECK(found.convs == !no_conv);
    CHECK(found.gates == !no_gate);
  }
}

}  // namespace
}  // namespace qgen::test
