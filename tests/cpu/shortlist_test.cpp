// Best scores by a shortlist: those of all scores, to the last bit, whatever the matrix and the input are like.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "cpu/shortlist.h"
#include "tests/cpu/test_targets.h"
#include "tests/output_heads.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

struct TestHead {
  using Inputs = std::span<const std::vector<float>>;

  TestHead(const Weight& weight, const IsaTarget& isa, double softcap = 0, Kernels choice = Kernels::kByCount)
      : projection(projection_of(weight, softcap)),
        target(isa),
        kernels(choice),
        exact(weight, isa, Activations::k16Bit),
        list(projection, isa, 1),
        input(std::vector<const cpu::LinearKernel*>{&exact, &list.kernel()}, cpu::Shortlist::kTokens, 1),
        scratch(cpu::scratch_bytes(weight.cols, 1)) {
    exact.load(weight);
    list.allocate();
    lay_out();
    arena.allocate("test");
    lay_out();
  }
  cpu::Shortlist::Use begin(const std::vector<size_t>& counts) {
    std::vector<int32_t> scored;
    choices.clear();
    for (const size_t count : counts) {
      scored.push_back(int32_t(scored.size()));
      choices.emplace_back().count = count;
    }
    Batch batch;
    batch.kernels = kernels;
    batch.scored = scored;
    batch.choices = choices;
    return list.begin(batch);
  }
  void grow() {
    while (begin({1}) == cpu::Shortlist::Use::kNone) {
    }
    while (begin({1}) == cpu::Shortlist::Use::kGrow) {
      const auto [first, end] = list.rows_to_add();
      for (int64_t row = end - 1; row >= first; --row) list.add_row(row, static_cast<float*>(scratch.get()));
      list.end(cpu::Shortlist::Use::kGrow);
    }
  }
  // All scores of inputs that run together, (tokens, rows).
  std::vector<std::vector<float>> score(Inputs inputs) {
    tokens = int64_t(inputs.size());
    for (int64_t t = 0; t < tokens; ++t) {
      std::ranges::copy(inputs[size_t(t)], input.row(t));
      input.prepare(target, input.row(t), t, tokens, kernels);
    }
    scores.assign(size_t(tokens * exact.rows()), 0);
    multiply(0, exact.rows());
    std::vector<std::vector<float>> out;
    for (int64_t t = 0; t < tokens; ++t) out.emplace_back(scores_of(t), scores_of(t) + exact.rows());
    return out;
  }
  std::vector<float> score(const std::vector<float>& x) { return score(Inputs(&x, 1)).front(); }
  void multiply(int64_t begin, int64_t end) {
    float* const out = scores.data() + begin;
    exact.multiply(input.view(0, input.row(0), tokens, kernels), kernels, begin, end, out, exact.rows(), scratch.get());
    for (int64_t t = 0; t < tokens; ++t) {
      if (projection.softcap > 0) target.softcap(out + t * exact.rows(), float(projection.softcap), end - begin);
    }
  }
  // Of the inputs that score() had last, one count for each; how many rows were multiplied.
  int64_t find(const std::vector<size_t>& counts) {
    REQUIRE(int64_t(counts.size()) == tokens);
    REQUIRE(begin(counts) == cpu::Shortlist::Use::kFind);
    for (int64_t t = 0; t < tokens; ++t) list.measure(t, input.row(t));
    const Input forms = input.view(1, input.row(0), tokens, kernels);
    const int64_t rows = exact.rows(), middle = rows / 2 / cpu::Shortlist::kRows * cpu::Shortlist::kRows;
    list.bound(forms, kernels, middle, rows, scratch.get());
    list.bound(forms, kernels, 0, middle, scratch.get());
    for (int64_t t = 0; t < tokens; ++t) list.choose_rows(t);
    std::ranges::fill(scores, 0.0f);
    int64_t multiplied = 0;
    for (const auto& [first, end] : {std::pair{int64_t{0}, middle}, std::pair{middle, rows}}) {
      list.for_each_run(first, end, 0, [&](int64_t from, int64_t to) {
        multiplied += to - from;
        multiply(from, to);
      });
    }
    list.end(cpu::Shortlist::Use::kFind);
    return multiplied;
  }
  const float* scores_of(int64_t token) const { return scores.data() + token * exact.rows(); }
  std::vector<ScoredToken> best(int64_t token = 0) const { return list.best(token, scores_of(token)); }
  bool all_finite(int64_t token = 0) const { return list.all_finite(scores_of(token)); }
  void lay_out() {
    input.lay_out(arena);
    list.lay_out_work(arena);
  }

  using Input = cpu::Input;
  Projection projection;
  std::vector<TokenChoice> choices;
  const IsaTarget& target;
  const Kernels kernels;
  cpu::LinearKernel exact;
  cpu::Shortlist list;
  cpu::InputForms input;
  cpu::Arena arena;
  Scratch scratch;
  int64_t tokens = 0;
  std::vector<float> scores;
};

// Whether these are the first of all, best first, with their scores.
bool begins(const std::vector<ScoredToken>& all, const std::vector<ScoredToken>& best) {
  return best.size() <= all.size() &&
         std::equal(best.begin(), best.end(), all.begin(), [](const ScoredToken& a, const ScoredToken& b) {
           return a.token == b.token && a.score == b.score;
         });
}

// Each without a softcap, with one beyond most scores, and with one that many scores come up to.
std::vector<std::pair<const IsaTarget*, double>> with_softcaps(const std::vector<const IsaTarget*>& targets) {
  std::vector<std::pair<const IsaTarget*, double>> out;
  for (const IsaTarget* target : targets) {
    for (const double softcap : {0.0, 50.0, 3.0}) out.emplace_back(target, softcap);
  }
  return out;
}

TEST_CASE("shortlist: the best scores are those of all rows, for odd matrices and inputs") {
  std::mt19937 random(5);
  int capped = 0;  // lists of capped scores that must not be empty
  for (const Codes codes : {Codes::kBf16, Codes::kF16, Codes::kF32}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{2113, 64}, {5000, 192}, {1600, 1000}}) {
      const Weight weight = odd_head(random, codes, rows, cols);
      const auto input = [&](float deviation, const std::function<void(std::vector<float>&)>& change = {}) {
        std::vector<float> x = normal(random, size_t(cols), deviation);
        if (change) change(x);
        return x;
      };
      const std::vector<std::vector<float>> inputs = {
          input(1),
          input(1, [](auto& x) { x[13] = 1000; }),
          input(1, [](auto& x) { x[2] = -50; }),
          input(1e-30f),
          input(1e-38f),
          input(1e4f),
          input(0),
          input(1, [](auto& x) { std::fill(x.begin() + 20, x.end(), 0.0f); }),
      };
      for (const auto& [target, softcap] : with_softcaps(kernel_targets())) {
        TestHead head(weight, *target, softcap);
        head.grow();
        CHECK(head.begin({size_t(rows)}) == cpu::Shortlist::Use::kNone);  // more than it can tell apart
        for (size_t i = 0; i < inputs.size(); ++i) {
          const std::vector<ScoredToken> expected = ranked(head.score(inputs[i]));
          for (const size_t count : {size_t{1}, size_t{7}, size_t{40}, size_t(rows / cpu::Shortlist::kRows)}) {
            INFO(std::string(target->name), " ", codes_name(codes), " ", rows, " x ", cols, ", input ", i, ", ", count,
                 ", softcap ", softcap);
            head.find({count});
            const std::vector<ScoredToken> best = head.best();
            CHECK(head.all_finite());
            // Of capped scores near zero or the cap all may have to be looked at.
            const float share = softcap > 0 ? std::abs(expected[count - 1].score) / float(softcap) : 0.5f;
            if (share > 0.05f && share < 0.99f) {
              CHECK(best.size() >= count);
              capped += softcap > 0;
            }
            CHECK(begins(expected, best));
            // Where it was of no use it rests.
            while (head.begin({count}) != cpu::Shortlist::Use::kFind) {
            }
          }
        }
      }
    }
  }
  CHECK(capped > 100);
}

TEST_CASE("shortlist: the best scores of several tokens together") {
  std::mt19937 random(12);
  constexpr int64_t kRows = 2113, kCols = 200;
  for (const Codes codes : {Codes::kBf16, Codes::kF32}) {
    const Weight weight = odd_head(random, codes, kRows, kCols);
    for (const IsaTarget* const target : kernel_targets()) {
      for (const Kernels kernels : {Kernels::kByCount, Kernels::kGenerate}) {
        TestHead head(weight, *target, 0, kernels);
        head.grow();
        for (const size_t tokens : {size_t{1}, size_t{2}, size_t{5}, cpu::Shortlist::kTokens}) {
          std::vector<std::vector<float>> inputs;
          std::vector<size_t> counts;
          for (size_t t = 0; t < tokens; ++t) {
            inputs.push_back(normal(random, size_t(kCols), t % 4 == 3 ? 1e-3f : float(t + 1)));
            counts.push_back(t % 3 == 2 ? 40 : 1 + t % 3);
          }
          const std::vector<std::vector<float>> all = head.score(inputs);
          CHECK(head.find(counts) < kRows);
          for (size_t t = 0; t < tokens; ++t) {
            INFO(std::string(target->name), " ", codes_name(codes), ", token ", t, " of ", tokens, ", kernels ",
                 int(kernels));
            const std::vector<ScoredToken> best = head.best(int64_t(t));
            CHECK(best.size() >= counts[t]);
            CHECK(begins(ranked(all[t]), best));
            CHECK(head.all_finite(int64_t(t)));
          }
          while (head.begin(counts) != cpu::Shortlist::Use::kFind) {
          }
        }
      }
    }
  }
}

// An input in the direction of what rounding leaves of a row, so that its score is off by all of the bound, and another
// row whose score lies between.
TEST_CASE("shortlist: a row that its codes put far below another is found") {
  std::mt19937 random(9);
  for (const int64_t cols : {96, 128, 777}) {
    Weight weight = random_weight(random, Codes::kF32, 64, cols, 1, 0, false);
    const auto row = [&](int64_t n) { return reinterpret_cast<float*>(weight.owned.data()) + n * cols; };
    for (int64_t n = 2; n < 64; ++n) std::fill_n(row(n), cols, 0.0f);
    float largest = 0;
    for (int64_t k = 0; k < cols; ++k) largest = std::max(largest, std::abs(row(0)[k]));
    const double scale = double(largest) / 127;
    std::vector<double> left;
    double coded = 0, squares = 0;
    for (int64_t k = 0; k < cols; ++k) {
      const double code = std::round(row(0)[k] / scale);
      left.push_back(row(0)[k] - code * scale);
      coded += code * scale * left.back();
      squares += left.back() * left.back();
    }
    std::vector<float> x;
    for (int64_t k = 0; k < cols; ++k) {
      x.push_back(float(left[size_t(k)]));
      row(1)[k] = float((coded + 0.9 * squares) / squares * left[size_t(k)]);
    }
    for (const IsaTarget* target : kernel_targets()) {
      TestHead head(weight, *target);
      head.grow();
      const std::vector<ScoredToken> expected = ranked(head.score(x));
      CHECK(expected[0].score - expected[1].score == doctest::Approx(0.1 * squares).epsilon(0.05));
      head.find({1});
      INFO(std::string(target->name), " ", cols, ": ", expected[0].token, " and ", expected[1].token);
      REQUIRE_FALSE(head.best().empty());
      CHECK(head.best().front().token == expected[0].token);
    }
  }
}

TEST_CASE("shortlist: few rows are multiplied, also where one column outweighs the others") {
  std::mt19937 random(6);
  for (const int64_t cols : {128, 1024}) {
    const Weight weight = random_weight(random, Codes::kBf16, 20000, cols, 1, 0, false);
    TestHead head(weight, cpu::find_target(""));
    head.grow();
    for (const float outlier : {0.0f, 40.0f}) {
      std::vector<float> x = normal(random, size_t(cols));
      x[1] += outlier;
      head.score(x);
      INFO(cols, " ", outlier);
      CHECK(head.find({1}) < 200);
      CHECK(head.find({40}) < 3000);
    }
  }
}

TEST_CASE("shortlist: rows and inputs that are not numbers") {
  std::mt19937 random(7);
  for (const float value : {kNaN, kInfinity, -kInfinity}) {
    for (const bool in_row : {true, false}) {
      Weight weight = random_weight(random, Codes::kBf16, 300, 96, 1, 0, false);
      if (in_row) set_element(weight, 123, 5, value);
      for (const IsaTarget* target : supported_targets()) {
        TestHead head(weight, *target);
        head.grow();
        std::vector<float> x = normal(random, 96);
        if (!in_row) x[7] = value;
        const std::vector<float> scores = head.score(x);
        head.find({1});
        INFO(std::string(target->name), " ", value, " ", in_row);
        CHECK_FALSE(std::all_of(scores.begin(), scores.end(), [](float score) { return std::isfinite(score); }));
        CHECK_FALSE(head.all_finite());
      }
    }
  }
}

struct Engines {
  std::unique_ptr<TestEngine> with, without;
  EngineOptions options;  // of the one with a shortlist
};
Engines make_engines(const Plan& plan) {
  Engines out;
  out.options.context = 100;
  out.options.threads = 2;
  out.without = make_engine(plan, "cpu", out.options);
  out.options.shortlist = true;
  out.with = make_engine(plan, "cpu", out.options);
  const size_t copy = shortlist_bytes(plan.weights.front());
  CHECK(out.with->engine->memory().weights == out.without->engine->memory().weights + copy);
  return out;
}

// How many of 80 tokens were found by a shortlist.
size_t check_engines(double softcap) {
  const auto plan = large_vocabulary(Codes::kBf16, softcap);
  const auto [with, without, options] = make_engines(*plan);
  const Weight& head = plan->weights.front();
  CHECK(bytes_per_token(*plan, options) == plan->bytes_per_token() - head.bytes() + shortlist_bytes(head));

  TokenChoice few, mass;
  few.count = 60;
  mass.count = 60;
  mass.mass_temperature = 0.7;
  size_t found = 0;
  TokenId token = 17;
  for (int step = 0; step < 80; ++step) {
    INFO(step);
    const TokenChoice* const choice = step % 5 == 4 ? &mass : step % 5 == 3 ? &few : kGreedyChoices;
    const Scores expected = without->decode(token);
    const Scores scores = with->sequence.run(token, {choice, 1});
    REQUIRE(scores.finite());
    const TopScores top = scores.top(choice->count, choice->mass_temperature);
    const std::vector<ScoredToken> all = ranked({expected.all().begin(), expected.all().end()});
    if (!top.best.empty()) {
      ++found;
      CHECK(choice != &mass);
      REQUIRE(top.best.size() >= choice->count);
      if (softcap != 12) REQUIRE(top.best.size() < all.size() / 4);
      for (size_t i = 0; i < top.best.size(); ++i) {
        REQUIRE(top.best[i].token == all[i].token);
        REQUIRE(top.best[i].score == all[i].score);
      }
      CHECK(scores.top(choice->count + 1).best.empty());
    }
    CHECK(scores.best() == expected.best());
    // All of them can still be had. It rests then.
    if (step == 70) {
      CHECK(std::ranges::equal(scores.all(), expected.all()));
      CHECK(scores.top(1).best.empty());
    }
    token = TokenId((int64_t{*scores.best()} * 31 + step) % plan->model.vocab);
  }
  return found;
}

TEST_CASE("shortlist: an engine with one finds what an engine without does") {
  // Of 80 tokens every fifth is of a mass, and of the others the copy is made during 24, and it rests behind the 71st.
  CHECK(check_engines(0) == 33);
  CHECK(check_engines(60) == 33);
  check_engines(12);  // most scores come up to the cap
}

TEST_CASE("shortlist: an engine with one finds what an engine without does, of several tokens together") {
  const auto plan = large_vocabulary(Codes::kBf16, 60);
  EngineOptions options;
  options.context = 100;
  options.sequences = 8;
  options.threads = 2;
  const auto without = make_engine(*plan, "cpu", options);
  options.shortlist = true;
  const auto with = make_engine(*plan, "cpu", options);
  int round = 0;
  check_together(*with, *without, 80, 40, [&](size_t listed, size_t tokens) {
    // The copy is there after 24 rounds; all scores of round 40 are asked for with its first token's.
    CHECK(listed == (round < 24 || (round > 40 && round <= 72) ? 0 : round == 40 ? 1 : tokens));
    ++round;
  });
}

TEST_CASE("shortlist: a draft head guesses with one what it does without") {
  const auto plan = drafting_vocabulary(Codes::kBf16);
  CHECK(shortlist_head(*plan).steps == std::vector<size_t>{6, 2});
  const auto [with, without, options] = make_engines(*plan);
  const Weight& head = plan->weights.front();
  CHECK(bytes_per_token(*plan, options) == plan->bytes_per_token() - head.bytes() + shortlist_bytes(head));
  CHECK(bytes_per_guess(*plan, options) == plan->bytes_per_guess() - head.bytes() + shortlist_bytes(head));
  int found = 0;
  check_guesses(*with, *without, 32, 40, [&](const Scores& scores) { found += !scores.top(1).best.empty(); });
  // Of 96 guesses and 32 tokens those from the 25th on, but for 32 behind the one of which all scores were asked for.
  CHECK(found == 128 - 24 - 32);
}

TEST_CASE("shortlist: only a large head that is not quantized has one") {
  CHECK(shortlist_head(*large_vocabulary(Codes::kBf16)).steps == std::vector<size_t>{1});
  CHECK(shortlist_head(*large_vocabulary(Codes::kF32)).steps == std::vector<size_t>{1});
  CHECK_FALSE(shortlist_head(*large_vocabulary(Codes::kI8)));
  const auto changed = [](const std::function<void(Projection&)>& change) {
    auto plan = large_vocabulary(Codes::kBf16);
    change(std::get<LinearStep>(plan->steps[1].op).projections[0]);
    return bool(shortlist_head(*plan));
  };
  CHECK(changed([](Projection&) {}));
  CHECK(changed([](Projection& p) { p.softcap = 30; }));
  CHECK_FALSE(changed([](Projection& p) { p.scale = -1; }));
  Vector bias;
  CHECK_FALSE(changed([&](Projection& p) { p.bias = &bias; }));
  CHECK_FALSE(shortlist_head(*load_plan(source_folder() / "models/stories260K-FP8")));
}

}  // namespace
}  // namespace qgen::test
