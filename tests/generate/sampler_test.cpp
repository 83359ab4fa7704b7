// Sampling against values worked out by hand and by transformers' formulas, the distribution of many draws, and
// stop strings.
#include <algorithm>
#include <cmath>
#include <random>

#include "generate/sampler.h"
#include "generate/stop.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

SamplingSettings settings(double temperature = 1) {
  SamplingSettings out;
  out.temperature.value = temperature;
  out.seed.value = 42;
  return out;
}
std::vector<TokenId> kept(const SamplingSettings& s, const std::vector<float>& logits) {
  std::vector<TokenId> out;
  double sum = 0;
  for (const auto& [token, p] : Sampler(s).distribution(logits)) {
    out.push_back(token);
    sum += p;
  }
  CHECK(sum == doctest::Approx(1));
  return out;
}
std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(float(std::log(p)));
  return out;
}

TEST_CASE("sampling: each filter keeps what its formula says") {
  const auto logits = logs({0.4, 0.3, 0.2, 0.06, 0.04});
  CHECK(kept(settings(), logits) == std::vector<TokenId>{0, 1, 2, 3, 4});
  CHECK(kept(settings(0), logits) == std::vector<TokenId>{0});
  auto s = settings();
  s.top_k.value = 2;
  CHECK(kept(s, logits) == std::vector<TokenId>{0, 1});
  CHECK(kept(s, {1, 3, 2, 2, 0}) == std::vector<TokenId>{1, 2, 3});  // ties with the last one stay
  s = settings();
  s.top_p.value = 0.65;
  CHECK(kept(s, logits) == std::vector<TokenId>{0, 1});
  s.top_p.value = 0.75;
  CHECK(kept(s, logits) == std::vector<TokenId>{0, 1, 2});
  s.top_p.value = 0;
  CHECK(kept(s, logits) == std::vector<TokenId>{0});
  s = settings();
  s.min_p.value = 0.25;
  CHECK(kept(s, logits) == std::vector<TokenId>{0, 1, 2});
  s.min_p.value = 1;
  CHECK(kept(s, logits) == std::vector<TokenId>{0});
  // Entropy 1.349; distances 0.433, 0.145, 0.261, 1.465, 1.870: the order is 1, 2, 0, 3, 4.
  s = settings();
  s.typical_p.value = 0.45;
  CHECK(kept(s, logits) == std::vector<TokenId>{1, 2});
  s.typical_p.value = 0.6;
  CHECK(kept(s, logits) == std::vector<TokenId>{0, 1, 2});
  s = settings(0.5);
  CHECK(Sampler(s).distribution(logits)[0].second == doctest::Approx(0.16 / (0.16 + 0.09 + 0.04 + 0.0036 + 0.0016)));
}

TEST_CASE("sampling: penalties and bias act on scores, in transformers' order") {
  auto s = settings(0);
  const std::vector<float> logits = {2, 1.9f, -1, -1.1f};
  s.repetition_penalty.value = 1.5;
  Sampler repetition(s);
  const std::vector<TokenId> prompt = {0, 2};
  repetition.see_prompt(prompt);
  CHECK(repetition.choose(logits) == 1);  // 2 / 1.5 < 1.9
  s = settings();
  s.repetition_penalty.value = 1.5;
  Sampler sampled(s);
  sampled.see_prompt(prompt);
  const auto distribution = sampled.distribution(logits);
  CHECK(distribution[1].first == 0);
  CHECK(std::log(distribution[0].second / distribution[1].second) == doctest::Approx(1.9 - 2 / 1.5));
  CHECK(std::log(distribution[2].second / distribution[3].second) ==
        doctest::Approx(-1.1 + 1 * 1.5));  // negative scores are multiplied
  s = settings();
  s.presence_penalty.value = 0.5;
  s.frequency_penalty.value = 0.25;
  Sampler counted(s);
  counted.see_prompt(prompt);  // the prompt does not count for these two
  counted.see_generated(1);
  counted.see_generated(1);
  const auto after = counted.distribution(logits);
  CHECK(after[0].first == 0);
  CHECK(std::log(after[0].second / after[1].second) == doctest::Approx(2 - (1.9 - 0.5 - 0.5)));
  s = settings(0);
  s.logit_bias = {{3, 10}, {99, 5}};
  CHECK(Sampler(s).choose(logits) == 3);
}

TEST_CASE("sampling: a million draws follow the distribution (chi-squared), and a seed repeats them") {
  const auto logits = logs({0.3, 0.25, 0.2, 0.1, 0.08, 0.04, 0.02, 0.006, 0.003, 0.001});
  Sampler sampler(settings()), again(settings());
  constexpr int kDraws = 1'000'000;
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    const TokenId token = sampler.choose(logits);
    ++counts[size_t(token)];
    if (i < 1000) CHECK(again.choose(logits) == token);
  }
  double chi_squared = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = kDraws * std::exp(double(logits[i]));
    chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  CHECK(chi_squared < 27.88);  // 9 degrees of freedom, probability 0.001
  auto other = settings();
  other.seed.value = 43;
  Sampler different(other);
  int equal = 0;
  for (int i = 0; i < 1000; ++i) equal += different.choose(logits) == again.choose(logits);
  CHECK(equal < 400);
}

TEST_CASE("sampling: log-probabilities are the model's own") {
  const std::vector<float> logits = {1, 3, 2, 3};
  const auto top = top_logprobs(logits, 3);
  REQUIRE(top.size() == 3);
  CHECK(top[0].token == 1);
  CHECK(top[1].token == 3);
  CHECK(top[2].token == 2);
  CHECK(top[0].logprob == doctest::Approx(3 - std::log(std::exp(1) + std::exp(2) + 2 * std::exp(3))));
  CHECK(top_logprobs(logits, 99).size() == 4);
  CHECK(log_sum_exp(std::vector<float>{1000, 1000}) == doctest::Approx(1000 + std::log(2)));
}

TEST_CASE("sampling: flags win over generation_config.json, which wins over what is built in") {
  const auto resolve = [](const std::string& config, SamplingFlags flags = {}) {
    if (config.empty()) return resolve_sampling(flags, {}, 7);
    const auto document = JsonDocument::parse(config, "generation_config.json");
    return resolve_sampling(flags, {document->root()}, 7);
  };
  CHECK(resolve("").greedy());
  CHECK(resolve("").seed.value == 7);
  CHECK(resolve("{}").greedy());
  const auto qwen = resolve(R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95})");
  CHECK(qwen.temperature.value == 0.6);
  CHECK(qwen.temperature.origin == Origin::kModel);
  CHECK(qwen.top_k.value == 20);
  CHECK(qwen.min_p.origin == Origin::kBuiltIn);
  CHECK(resolve(R"({"do_sample":true})").temperature.value == 1);
  CHECK(resolve(R"({"temperature":0.7})").temperature.value == 0.7);
  CHECK(resolve(R"({"do_sample":false,"temperature":0.7})").greedy());
  SamplingFlags flags;
  flags.temperature = 0;
  CHECK(resolve(R"({"do_sample":true,"temperature":0.6})", flags).greedy());
  flags = {};
  flags.top_p = 0.5;
  flags.seed = 3;
  const auto asked = resolve(R"({"do_sample":false,"top_p":0.9})", flags);
  CHECK(asked.temperature.value == 1);
  CHECK(asked.top_p.value == 0.5);
  CHECK(asked.top_p.origin == Origin::kFlag);
  CHECK(asked.seed.value == 3);
  ErrorKind kind = ErrorKind::kRuntime;
  flags.top_p = 1.5;
  CHECK(contains(error_of([&] { resolve("", flags); }, &kind), "--top-p: 1.5 is out of range (expected 0 to 1)"));
  CHECK(kind == ErrorKind::kUsage);
  CHECK(contains(error_of([&] { resolve(R"({"top_p":-1})"); }, &kind), "generation_config.json: top_p"));
  CHECK(kind == ErrorKind::kModel);
  CHECK(contains(error_of([&] { resolve(R"({"temperature":"hot"})"); }), "temperature"));
}

TEST_CASE("stop strings: held back while they may match, whatever the pieces") {
  const std::string text = "one STOX two STO STOP three";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    StopMatcher matcher({"STOP", ""});
    std::string out;
    for (size_t i = 0; i < text.size(); i += piece) {
      const std::string released = matcher.push(text.substr(i, piece));
      out += released;
      CHECK(text.starts_with(out));
    }
    out += matcher.finish();
    CHECK(out == "one STOX two STO ");
    CHECK(matcher.match() == "STOP");
  }
  StopMatcher held({"\n\n"});
  CHECK(held.push("a\n") == "a");
  CHECK(held.push("b") == "\nb");
  CHECK(held.push("\n") == "");
  CHECK(held.finish() == "\n");
  StopMatcher first({"bc", "abcd"});
  CHECK(first.push("xabcd") == "x");  // the earliest wins
  CHECK(first.match() == "abcd");
  StopMatcher none({});
  CHECK(none.push("anything") == "anything");
}

// As an engine gives them: so many, what ties with the last of them, and a mass that is a little off.
TopScores top_of(const std::vector<float>& logits, const Sampler::Wanted& wanted, double off) {
  TopScores top;
  for (size_t i = 0; i < logits.size(); ++i) top.best.push_back({TokenId(i), logits[i]});
  std::sort(top.best.begin(), top.best.end(), better);
  if (wanted.temperature > 0) {
    for (const ScoredToken& c : top.best)
      top.mass += std::exp((double(c.score) - top.best.front().score) / wanted.temperature);
    top.mass *= 1 + off * kMassError;
  }
  size_t count = wanted.count;
  while (count < logits.size() && top.best[count].score == top.best[count - 1].score) ++count;
  top.best.resize(count);
  return top;
}

TEST_CASE("the few best scores settle what all would") {
  std::mt19937 random(4);
  constexpr size_t kVocab = 2000;
  std::vector<SamplingSettings> all(12);
  for (SamplingSettings& s : all) {
    s.temperature.value = 0.8;
    s.top_k.value = &s < &all[6] ? 20 : 0;
    s.seed.value = 5;
  }
  all[0].temperature.value = 0;
  all[1].temperature.value = 0;
  all[1].repetition_penalty.value = 1.3;
  all[2].top_p.value = 0.9;
  all[3].repetition_penalty.value = 1.2;
  all[3].presence_penalty.value = 0.5;
  all[4].min_p.value = 0.05;
  all[4].frequency_penalty.value = 0.4;
  all[6].top_p.value = 0.9;
  all[7].top_p.value = 0.95;
  all[7].repetition_penalty.value = 1.2;
  all[8].min_p.value = 0.05;
  all[9].top_p.value = 0.8;
  all[9].typical_p.value = 0.7;
  all[9].presence_penalty.value = 0.7;
  all[10].temperature.value = 1.2;  // and no filter at all: 11 too
  for (const SamplingSettings& settings : all) {
    Sampler whole(settings), few(settings);
    REQUIRE(few.wanted().count > 0);
    int settled = 0;
    for (int step = 0; step < 60; ++step) {
      std::vector<float> logits(kVocab);
      // Of few values, so that many tie.
      for (float& v : logits) v = std::round(std::normal_distribution<float>(0, 4)(random) * 8) / 8;
      const TopScores top = top_of(logits, few.wanted(), step % 3 - 1);
      const TokenId expected = whole.choose(logits);
      const std::optional<TokenId> found = few.choose_among(top);
      settled += found.has_value();
      if (!found) CHECK(few.choose(logits) == expected);
      if (found) CHECK(*found == expected);
      whole.see_generated(expected);
      few.see_generated(expected);
    }
    INFO("setting ", &settings - all.data());
    CHECK(settled > 40);
  }
  // What could lift a token from below, or keeps more than anybody gives, takes all scores.
  SamplingSettings bias, rewarding, typical, large;
  bias.logit_bias = {{3, 1.0}};
  rewarding.repetition_penalty.value = 0.9;
  typical.temperature.value = 1;
  typical.typical_p.value = 0.9;
  large.temperature.value = 1;
  large.top_k.value = 1000;
  for (const SamplingSettings& s : {bias, rewarding, typical, large}) CHECK(Sampler(s).wanted().count == 0);
  // Penalties that reach below what is known leave it open.
  SamplingSettings severe;
  severe.temperature.value = 0;
  severe.presence_penalty.value = 100;
  Sampler sampler(severe);
  sampler.see_generated(1);
  CHECK(!sampler.choose_among({{{1, 5.0f}}}));
}

TEST_CASE("a choice that needs more than the few best sorts as many as it takes") {
  std::mt19937 random(8);
  for (const double top_p : {1.0, 0.999, 0.5}) {
    for (const double typical_p : {1.0, 0.9}) {
      // As good as flat: thousands of candidates stay.
      SamplingSettings s = settings(1.5);
      s.top_p.value = top_p;
      s.typical_p.value = typical_p;
      std::vector<float> logits(20000);
      for (float& v : logits) v = std::normal_distribution<float>(0, 0.3f)(random);
      const auto distribution = Sampler(s).distribution(logits);
      std::vector<double> reached;
      double sum = 0;
      for (const auto& [token, p] : distribution) reached.push_back(sum += p);
      // The tokens are drawn in the order of the distribution, from its beginning to its end.
      Sampler sampler(s);
      double mean = 0;
      constexpr int kDraws = 200;
      for (int i = 0; i < kDraws; ++i) {
        const TokenId token = sampler.choose(logits);
        const auto found =
            std::find_if(distribution.begin(), distribution.end(), [&](const auto& d) { return d.first == token; });
        REQUIRE(found != distribution.end());
        mean += reached[size_t(found - distribution.begin())] / kDraws;
      }
      CHECK(mean == doctest::Approx(0.5).epsilon(0.12));
    }
  }
}

}  // namespace
}  // namespace qgen::test
