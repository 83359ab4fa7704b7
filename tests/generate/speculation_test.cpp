// Speculation: the same tokens from the same scores and random numbers as without, in fewer calls of the engine, which
// scores by a rule here.
#include "generate/speculation.h"

#include <functional>

#include "generate/sampler.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

using Tokens = std::vector<TokenId>;
// The scores after a timeline.
using Rule = std::function<std::vector<float>(std::span<const TokenId> timeline)>;

constexpr int64_t kVocab = 16;

// Scores by a rule. It counts its calls: batches that begin.
class RuleBackend : public Backend {
 public:
  RuleBackend(Rule rule, int64_t batch, int64_t& calls) : rule_(std::move(rule)), batch_(batch), calls_(calls) {}

  std::string description() const override { return "rule"; }
  Activations activations() const override { return Activations::kF32; }
  MemoryUse memory() const override { return {}; }
  int64_t batch_tokens() const override { return batch_; }
  int64_t scored_tokens() const override { return batch_; }
  bool runs_in_parts() const override { return false; }
  void run(const Batch& batch, size_t, size_t) override {
    ++calls_;
    REQUIRE(batch.segments.size() == 1);
    timeline_.resize(size_t(batch.segments[0].position));
    scores_.clear();
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      timeline_.push_back(batch.tokens[i]);
      if (std::find(batch.scored.begin(), batch.scored.end(), int32_t(i)) != batch.scored.end())
        scores_.push_back(rule_(timeline_));
    }
  }
  void read(int64_t, const View&, std::span<float>) override {}
  void read_row(RowId, std::span<float>) override {}
  void write_row(RowId, std::span<const float>) override {}
  void copy_page(int32_t, int32_t, int32_t) override {}
  void copy_slot(int32_t, int32_t) override {}
  void clear_slot(int32_t) override {}
  std::span<const float> scores(int64_t index) override { return scores_[size_t(index)]; }
  bool scores_finite(int64_t) override { return true; }

 private:
  Rule rule_;
  int64_t batch_;
  int64_t& calls_;
  Tokens timeline_;
  std::vector<std::vector<float>> scores_;
};

Plan rule_plan() {
  Plan plan;
  plan.model.vocab = kVocab;
  plan.rows.push_back({"scores", kVocab, true});
  plan.scores = 0;
  LinearStep head;
  head.projections.emplace_back().out = {0, 0, kVocab};
  plan.steps.push_back({-1, head});
  return plan;
}

// An engine over a rule.
struct RuleEngine {
  RuleEngine(Rule rule, int64_t context, int64_t batch)
      : engine(plan, EngineOptions{.context = context}, std::make_unique<RuleBackend>(std::move(rule), batch, calls)) {}
  int64_t calls = 0;
  Plan plan = rule_plan();
  Engine engine;
};

std::vector<float> certain(TokenId token) {
  std::vector<float> scores(kVocab, 0.0f);
  scores[size_t(token)] = 9;
  return scores;
}

// Goes up, and over from 9 to 0.
std::vector<float> counting(std::span<const TokenId> timeline) { return certain((timeline.back() + 1) % 10); }

// Mostly counts; how surely, and what else comes, depends on the last three tokens.
std::vector<float> mostly_counting(std::span<const TokenId> timeline) {
  uint32_t hash = 2166136261u;
  for (const TokenId token : timeline.last(std::min<size_t>(3, timeline.size())))
    hash = (hash ^ uint32_t(token)) * 16777619u;
  std::vector<float> scores(kVocab);
  for (float& score : scores) score = float((hash = hash * 1664525u + 1013904223u) >> 8) * 0x1p-24f * 3;
  scores[size_t(timeline.back() + 1) % 10] += 3;
  return scores;
}

struct Answer {
  Tokens tokens;
  std::vector<std::vector<float>> scores;  // that each token was chosen from
  int64_t calls = 0, drafted = 0, accepted = 0;
};

// What generate() does, in short: until `limit` tokens, the end token or the context.
Answer answer(Session& session, RuleEngine& engine, Sampler& sampler, const Tokens& prompt, int64_t most, int64_t limit,
              int64_t context, TokenId end = -1) {
  Answer out;
  std::span<const float> scores = session.sync(prompt);
  Speculation speculation(session, most, false);
  const int64_t before = engine.calls;
  while (!scores.empty()) {
    const TokenId token = sampler.choose(scores);
    out.scores.emplace_back(scores.begin(), scores.end());
    out.tokens.push_back(token);
    sampler.see_generated(token);
    const int64_t left = limit - int64_t(out.tokens.size()), length = int64_t(session.tokens().size());
    if (token == end || left == 0 || length == context) break;
    scores = speculation.append(token, std::min(left, context - length) - 1);
    // Whatever is drafted, the timeline is what was chosen.
    CHECK(session.tokens().size() == prompt.size() + out.tokens.size());
    CHECK(session.tokens().back() == token);
    CHECK(engine.engine.position(0) >= int64_t(session.tokens().size()));
  }
  out.calls = engine.calls - before;
  CHECK(speculation.calls() == out.calls);
  out.drafted = speculation.drafted();
  out.accepted = speculation.accepted();
  return out;
}

struct Setup {
  explicit Setup(Rule rule, int64_t context_tokens = 1000, const SamplingSettings& settings = {}, int64_t batch = 2000)
      : context(context_tokens),
        engine(std::move(rule), context_tokens, batch),
        session(engine.engine, context_tokens),
        sampler(settings) {}
  Answer run(const Tokens& prompt, int64_t most, int64_t limit, TokenId end = -1) {
    return answer(session, engine, sampler, prompt, most, limit, context, end);
  }
  int64_t context;
  RuleEngine engine;
  Session session;
  Sampler sampler;
};

const Tokens kCount = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3};

TEST_CASE("A draft that comes true whole saves its calls") {
  const Answer plain = Setup(counting).run(kCount, 0, 60);
  const Answer drafted = Setup(counting).run(kCount, 16, 60);
  CHECK(plain.calls == 59);
  CHECK(plain.drafted == 0);
  CHECK(drafted.tokens == plain.tokens);
  CHECK(drafted.scores == plain.scores);
  CHECK(drafted.calls + drafted.accepted == plain.calls);
  CHECK(drafted.accepted == drafted.drafted);
  CHECK(drafted.calls < 8);
}

TEST_CASE("A draft that fails leaves nothing behind") {
  // The prompt counts, the answer goes down.
  const Rule down = [](std::span<const TokenId> timeline) {
    return certain(timeline.size() < kCount.size() + 1 ? 4 : timeline.back() == 4 ? 12 : (timeline.back() + 9) % 10);
  };
  Setup with(down), without(down);
  const Answer drafted = with.run(kCount, 16, 12), plain = without.run(kCount, 0, 12);
  CHECK(drafted.tokens == plain.tokens);
  CHECK(drafted.scores == plain.scores);
  CHECK(drafted.drafted > 0);
  CHECK(drafted.accepted == 0);
  CHECK(drafted.calls == plain.calls);
  CHECK(with.session.tokens() == without.session.tokens());
  CHECK(with.session.computed_tokens() == without.session.computed_tokens());
}

TEST_CASE("Of a draft that fails in the middle the beginning is kept") {
  // 7 is followed by 11 in the answer, by 8 in the prompt.
  const Rule rule = [](std::span<const TokenId> timeline) {
    const bool other = timeline.back() == 7 && timeline.size() > kCount.size();
    return other ? certain(11) : counting(timeline);
  };
  const Answer plain = Setup(rule).run(kCount, 0, 9), drafted = Setup(rule).run(kCount, 16, 9);
  CHECK(drafted.tokens == plain.tokens);
  CHECK(drafted.scores == plain.scores);
  CHECK(drafted.accepted > 0);
  CHECK(drafted.accepted < drafted.drafted);
  CHECK(drafted.calls < plain.calls);
}

TEST_CASE("An end token inside a draft ends the answer there, and the session goes on") {
  Setup with(counting), without(counting);
  const Answer drafted = with.run(kCount, 16, 100, 8), plain = without.run(kCount, 0, 100, 8);
  CHECK(drafted.tokens == Tokens{4, 5, 6, 7, 8});
  CHECK(drafted.tokens == plain.tokens);
  CHECK(with.session.tokens() == without.session.tokens());
  CHECK(with.session.computed_tokens() == without.session.computed_tokens());
  // What was drafted beyond it is no part of the next turn.
  Tokens next = with.session.tokens();
  next.insert(next.end(), {8, 3, 3});
  CHECK(with.run(next, 16, 20).scores == without.run(next, 0, 20).scores);
  CHECK(with.session.tokens() == without.session.tokens());
}

TEST_CASE("An edited timeline is drafted from as it is now") {
  Setup setup(counting);
  setup.run(kCount, 16, 20);
  Tokens edited = {0, 1, 2, 3, 11, 5, 6, 11, 0, 1, 2};
  Session& session = setup.session;
  session.sync(edited);
  Speculation speculation(session, 16, false);
  speculation.append(3, 16);
  CHECK(session.foresaw(11));
  CHECK(speculation.drafted() == 4);
  // Another sync while a draft is open.
  edited.resize(6);
  const std::span<const float> scores = session.sync(edited);
  CHECK(std::max_element(scores.begin(), scores.end()) - scores.begin() == 6);
  CHECK_FALSE(session.foresaw(11));
  CHECK(setup.engine.engine.position(0) == 6);
}

TEST_CASE("Nothing is run beyond the context or what is wanted") {
  for (int64_t room = 1; room <= 30; ++room) {
    const int64_t context = int64_t(kCount.size()) + room;
    const Answer full = Setup(counting, context).run(kCount, 16, 1000);  // the engine throws at one token more
    CHECK(full.tokens == Setup(counting, context).run(kCount, 0, 1000).tokens);
    CHECK(int64_t(full.tokens.size()) == room + 1);
    CHECK(full.accepted == full.drafted);
    const Answer limited = Setup(counting).run(kCount, 16, room);
    CHECK(int64_t(limited.tokens.size()) == room);
    CHECK(limited.accepted == limited.drafted);  // none was drafted that could not be used
  }
}

TEST_CASE("The same seed gives the same tokens and leaves the same random numbers") {
  std::vector<SamplingSettings> all(5);
  all[1].temperature.value = 1;
  all[2].temperature.value = 0.6;
  all[2].top_k.value = 4;
  all[3].temperature.value = 1.3;
  all[3].top_p.value = 0.9;
  all[3].min_p.value = 0.02;
  all[3].repetition_penalty.value = 1.05;
  all[4].frequency_penalty.value = 0.01;  // greedy
  int64_t accepted = 0, rejected = 0;
  for (SamplingSettings& settings : all) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      settings.seed.value = seed;
      Setup with(mostly_counting, 400, settings), without(mostly_counting, 400, settings);
      const int64_t most = 1 + int64_t(seed % 16);
      const Answer drafted = with.run(kCount, most, 150), plain = without.run(kCount, 0, 150);
      CAPTURE(seed);
      REQUIRE(drafted.tokens == plain.tokens);
      REQUIRE(drafted.scores == plain.scores);
      CHECK(drafted.calls + drafted.accepted == plain.calls);
      const std::vector<float> even(kVocab, 0.0f);
      for (int i = 0; i < 3; ++i) CHECK(with.sampler.choose(even) == without.sampler.choose(even));
      accepted += drafted.accepted;
      rejected += drafted.drafted - drafted.accepted;
    }
  }
  MESSAGE("accepted " << accepted << ", rejected " << rejected);
  CHECK(accepted > 1000);
  CHECK(rejected > 1000);
}

TEST_CASE("An observer may stop a call with a draft anywhere") {
  for (int stop = 1; stop <= 5; ++stop) {
    Setup setup(counting, 1000, {}, 1);
    setup.session.sync(kCount);
    Speculation speculation(setup.session, 16, false);
    setup.engine.engine.set_observer([&](double done) { return done < stop; });
    CHECK(speculation.append(4, 16).empty());
    setup.engine.engine.set_observer({});
    Tokens expected = kCount;
    expected.push_back(4);
    CHECK(setup.session.tokens() == expected);
    CHECK(setup.engine.engine.position(0) == int64_t(expected.size()));
    CHECK_FALSE(setup.session.foresaw(5));
    const std::span<const float> scores = speculation.append(5, 16);
    CHECK(std::vector<float>(scores.begin(), scores.end()) == certain(6));
  }
}

TEST_CASE("Where the rotation depends on the length drafts end before it changes") {
  Plan plan;
  plan.ropes.resize(2);
  CHECK(plan.longest_with_draft(4096) == 4096);
  plan.ropes[1].scaling = Rope::Scaling::kDynamic;
  plan.ropes[1].original_context = 2048;
  CHECK(plan.longest_with_draft(4096) == 2047);
  CHECK(plan.longest_with_draft(1024) == 1024);
}

}  // namespace
}  // namespace qgen::test
