// Sequences of models with recurrent states: marks, going back to them, forks, and calls that are stopped.
#include "generate/session.h"
#include "tests/step_plans.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

// A convolution and a recurrence, whose result is added to the residual.
std::unique_ptr<Plan> recurrent_plan() {
  constexpr int64_t kHeads = 4, kDim = 16;
  PlanMaker m;
  ConvStep conv;
  conv.in = conv.out = m.products("v", kHeads * kDim);
  conv.taps = 3;
  conv.state = m.fixed_state(2 * conv.in.cols);
  conv.weight = m.vector(conv.in.cols * conv.taps);
  m.add(conv);
  RecurStep step;
  step.heads = step.key_heads = kHeads;
  step.key_dim = step.value_dim = kDim;
  step.state = m.fixed_state(kHeads * kDim * kDim);
  step.q = {m.products("q", kHeads * kDim).row, 0, kDim};
  step.k = {m.products("k", kHeads * kDim).row, 0, kDim};
  step.v = {conv.out.row, 0, kDim};
  step.decay = m.products("decay", kHeads);
  step.rate = m.products("rate", kHeads);
  step.a_log = m.vector(kHeads);
  step.decay_bias = m.vector(kHeads);
  step.unit_keys = true;
  step.eps = 1e-6;
  step.out = m.row("result", kHeads * kDim);
  m.add(step);
  LinearStep output;
  output.in = step.out;
  Projection projection = m.project(PlanMaker::kHidden, step.out.cols, m.residual);
  projection.add = true;
  output.projections = {projection};
  m.add(output);
  return m.finish();
}

std::vector<float> all(const Scores& scores) { return {scores.all().begin(), scores.all().end()}; }

// Calls of other lengths use other kernels.
bool alike(const std::vector<float>& a, const std::vector<float>& b) { return normwise_error(a, b) < 1e-4; }

constexpr TokenId kText[] = {3, 14, 15, 9, 26, 5, 35, 8, 9, 7};

EngineOptions two_marks() {
  EngineOptions options;
  options.context = 32;
  options.marks = 2;
  return options;
}

TEST_CASE("a sequence with recurrent states goes back to a mark, or to nothing") {
  const auto plan = recurrent_plan();
  for (const char* device : {"reference", "cpu"}) {
    const auto engine = make_engine(*plan, device, two_marks());
    Sequence& sequence = engine->sequence;
    const std::vector<float> whole = all(engine->prefill(kText));
    INFO(device);
    CHECK(engine->rewind(6) == 0);  // nothing was marked

    engine->prefill(std::span(kText).first(4));
    sequence.mark(0);
    engine->prefill(std::span(kText).subspan(4, 3));
    sequence.mark(1);
    engine->prefill(std::span(kText).subspan(7));
    CHECK(engine->rewind(10) == 10);
    CHECK(engine->rewind(8) == 7);
    CHECK(alike(all(engine->prefill(std::span(kText).subspan(7))), whole));
    CHECK(engine->rewind(6) == 4);  // the second mark is forgotten with the tokens before it
    CHECK(alike(all(engine->prefill(std::span(kText).subspan(4))), whole));
    CHECK(engine->rewind(9) == 4);
    CHECK(engine->rewind(3) == 0);
    CHECK(all(engine->prefill(kText)) == whole);
  }
}

TEST_CASE("a sequence is marked behind a token within a call") {
  const auto plan = recurrent_plan();
  for (const char* device : {"reference", "cpu"}) {
    const auto engine = make_engine(*plan, device, two_marks());
    Sequence& sequence = engine->sequence;
    INFO(device);
    const std::vector<float> whole = all(engine->prefill(kText));
    for (const int64_t marked : {1, 2, 5, 8}) {
      engine->rewind(0);
      engine->prefill(std::span(kText).first(2));
      const std::vector<float> marking =
          all(sequence.run(Work{.tokens = std::span(kText).subspan(2), .marked = marked, .mark = 1}, {}));
      CHECK(alike(marking, whole));
      CHECK(engine->rewind(9) == (marked == 8 ? 0 : 2 + marked));  // a mark behind the last token is of no use here
      const size_t left = size_t(engine->position());
      CHECK(alike(all(engine->prefill(std::span(kText).subspan(left))), whole));
    }
  }
}

TEST_CASE("a fork takes recurrent states along where it begins at the end of its origin") {
  const auto plan = recurrent_plan();
  EngineOptions options;
  options.context = 32;
  options.sequences = 3;
  const auto made = make_engine(*plan, "cpu", options);
  Engine& engine = *made->engine;
  const auto run = [&](SequenceId id, std::span<const TokenId> tokens) {
    const Work work{id, tokens, Wanted::kLast};
    engine.run({&work, 1});
    return all(engine.last_scores());
  };
  const std::vector<float> whole = run(made->sequence.id(), kText);
  const SequenceId origin = *engine.open(32);
  run(origin, std::span(kText).first(5));
  const SequenceId fork = *engine.fork(origin, 5, 32);
  CHECK(engine.position(fork) == 5);
  run(origin, std::span(kText).first(2));  // whatever the origin goes on with
  CHECK(alike(run(fork, std::span(kText).subspan(5)), whole));
  engine.close(fork);
  const SequenceId shorter = *engine.fork(origin, 3, 32);
  CHECK(engine.position(shorter) == 0);
  CHECK(run(shorter, kText) == whole);
}

TEST_CASE("a call that is stopped leaves no half of a recurrent state") {
  const auto plan = recurrent_plan();
  EngineOptions options;
  options.context = 32;
  const auto engine = make_engine(*plan, "cpu", options);
  const std::vector<float> whole = all(engine->prefill(kText));
  engine->rewind(0);
  engine->prefill(std::span(kText).first(2));
  int asked = 0;
  engine->engine->set_observer([&](double) { return ++asked < 3; });
  engine->prefill(std::span(kText).subspan(2));
  REQUIRE(asked == 3);
  engine->engine->set_observer({});
  const int64_t left = engine->position();
  CHECK(alike(all(engine->prefill(std::span(kText).subspan(size_t(left)))), whole));
}

TEST_CASE("drafts on a recurrent model change nothing") {
  const auto plan = recurrent_plan();
  EngineOptions options;
  options.context = 64;
  options.marks = Session::kMarks;
  options.sequences = 2;
  const auto engine = make_engine(*plan, "cpu", options);
  Session session(*engine->engine, 64);
  session.sync(kText);
  std::vector<TokenId> tokens(std::begin(kText), std::end(kText));
  for (const TokenId next : {1, 2, 3, 4, 5, 6, 7, 8}) {
    // The first of each draft comes true, the others do not.
    const TokenId draft[] = {TokenId(next + 1), 40, 41};
    const std::vector<float> found = all(session.append(next, draft));
    tokens.push_back(next);
    const auto fresh = make_engine(*plan, "cpu", options);
    const std::vector<float> expected = all(fresh->prefill(tokens));
    CHECK(alike(found, expected));
  }
  CHECK(session.tokens() == tokens);
  // A text that parts from the one before near its end is not run from the beginning.
  std::vector<TokenId> text(50);
  for (size_t i = 0; i < text.size(); ++i) text[i] = TokenId(i % 37);
  session.sync(text);
  const int64_t before = session.computed_tokens();
  text[40] = 2;
  session.sync(text);
  CHECK(session.computed_tokens() - before == 16);
}

}  // namespace
}  // namespace qgen::test
