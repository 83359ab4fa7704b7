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
  TestHead(const Weight& weight, const IsaTarget& kernels, double softcap = 0)
      : projection(projection_of(weight, softcap)),
        target(kernels),
        exact(weight, kernels, Activations::k16Bit),
        list(projection, kernels, 1),
        input(std::vector<const cpu::LinearKernel*>{&exact, &list.kernel()}, 1, 1),
        scratch(cpu::scratch_bytes(weight.cols, 1)) {
    exact.load(weight);
    list.allocate();
    input.lay_out(arena);
    arena.allocate("test");
    input.lay_out(arena);
  }
  cpu::Shortlist::Use begin(size_t count) {
    static constexpr int32_t kScored[] = {0};
    choice.count = count;
    Batch batch;
    batch.scored = kScored;
    batch.choices = {&choice, 1};
    return list.begin(batch);
  }
  void grow() {
    while (begin(1) == cpu::Shortlist::Use::kNone) {
    }
    while (begin(1) == cpu::Shortlist::Use::kGrow) {
      const auto [first, end] = list.rows_to_add();
      for (int64_t row = end - 1; row >= first; --row) list.add_row(row, static_cast<float*>(scratch.get()));
      list.end(cpu::Shortlist::Use::kGrow);
    }
  }
  // All scores of x.
  std::vector<float> score(const std::vector<float>& x) {
    std::copy(x.begin(), x.end(), input.row(0));
    input.prepare(target, input.row(0), 0, 1, Kernels::kByCount);
    std::vector<float> out(size_t(exact.rows()));
    multiply(0, exact.rows(), out.data());
    return out;
  }
  void multiply(int64_t begin, int64_t end, float* out) {
    exact.multiply(input.view(0, input.row(0), 1, Kernels::kByCount), Kernels::kByCount, begin, end, out, exact.rows(),
                   scratch.get());
    if (projection.softcap > 0) target.softcap(out, float(projection.softcap), end - begin);
  }
  // Of the input that score() had last; how many rows were multiplied.
  int64_t find(size_t count) {
    REQUIRE(begin(count) == cpu::Shortlist::Use::kFind);
    const auto norms = list.norms_of(input.row(0));
    const Input forms = input.view(1, input.row(0), 1, Kernels::kByCount);
    const int64_t rows = exact.rows(), middle = rows / 2 / cpu::Shortlist::kRows * cpu::Shortlist::kRows;
    list.bound(forms, norms, middle, rows, scratch.get());
    list.bound(forms, norms, 0, middle, scratch.get());
    list.choose_rows();
    std::vector<float> scores(static_cast<size_t>(rows));
    int64_t multiplied = 0;
    for (const auto& [first, end] : {std::pair{int64_t{0}, middle}, std::pair{middle, rows}}) {
      list.for_each_run(first, end, 0, [&](int64_t from, int64_t to) {
        multiplied += to - from;
        multiply(from, to, scores.data() + from);
        return scores.data() + from;
      });
    }
    list.end(cpu::Shortlist::Use::kFind);
    return multiplied;
  }

  using Input = cpu::Input;
  Projection projection;
  TokenChoice choice;
  const IsaTarget& target;
  cpu::LinearKernel exact;
  cpu::Shortlist list;
  cpu::InputForms input;
  cpu::Arena arena;
  Scratch scratch;
};

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
        CHECK(head.begin(size_t(rows)) == cpu::Shortlist::Use::kNone);  // more than it can tell apart
        for (size_t i = 0; i < inputs.size(); ++i) {
          const std::vector<ScoredToken> expected = ranked(head.score(inputs[i]));
          for (const size_t count : {size_t{1}, size_t{7}, size_t{40}, size_t(rows / cpu::Shortlist::kRows)}) {
            INFO(std::string(target->name), " ", codes_name(codes), " ", rows, " x ", cols, ", input ", i, ", ", count,
                 ", softcap ", softcap);
            head.find(count);
            const std::vector<ScoredToken> best = head.list.best();
            CHECK(head.list.all_finite());
            // Of capped scores near zero or the cap all may have to be looked at.
            const float share = softcap > 0 ? std::abs(expected[count - 1].score) / float(softcap) : 0.5f;
            if (share > 0.05f && share < 0.99f) {
              CHECK(best.size() >= count);
              capped += softcap > 0;
            }
            bool same = best.size() <= expected.size();
            for (size_t n = 0; same && n < best.size(); ++n)
              same = best[n].token == expected[n].token && best[n].score == expected[n].score;
            CHECK(same);
            // Where it was of no use it rests.
            while (head.begin(count) != cpu::Shortlist::Use::kFind) {
            }
          }
        }
      }
    }
  }
  CHECK(capped > 100);
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
      head.find(1);
      INFO(std::string(target->name), " ", cols, ": ", expected[0].token, " and ", expected[1].token);
      REQUIRE_FALSE(head.list.best().empty());
      CHECK(head.list.best().front().token == expected[0].token);
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
      CHECK(head.find(1) < 200);
      CHECK(head.find(40) < 3000);
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
        head.find(1);
        INFO(std::string(target->name), " ", value, " ", in_row);
        CHECK_FALSE(std::all_of(scores.begin(), scores.end(), [](float score) { return std::isfinite(score); }));
        CHECK_FALSE(head.list.all_finite());
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

TEST_CASE("shortlist: a draft head guesses with one what it does without") {
  const auto plan = drafting_vocabulary(Codes::kBf16);
  CHECK(shortlist_step(*plan) == 6);
  const auto [with, without, options] = make_engines(*plan);
  const Weight& head = plan->weights.front();
  CHECK(bytes_per_token(*plan, options) == plan->bytes_per_token());
  CHECK(bytes_per_guess(*plan, options) == plan->bytes_per_guess() - head.bytes() + shortlist_bytes(head));
  int found = 0;
  check_guesses(*with, *without, 32, 40, [&](const Scores& scores) { found += !scores.top(1).best.empty(); });
  // Of 96 guesses those from the 25th on, but for 32 behind the one of which all scores were asked for.
  CHECK(found == 96 - 24 - 32);
}

TEST_CASE("shortlist: only a large head that is not quantized has one") {
  CHECK(shortlist_step(*large_vocabulary(Codes::kBf16)) == 1);
  CHECK(shortlist_step(*large_vocabulary(Codes::kF32)) == 1);
  CHECK_FALSE(shortlist_step(*large_vocabulary(Codes::kI8)).has_value());
  const auto changed = [](const std::function<void(Projection&)>& change) {
    auto plan = large_vocabulary(Codes::kBf16);
    change(std::get<LinearStep>(plan->steps[1].op).projections[0]);
    return shortlist_step(*plan).has_value();
  };
  CHECK(changed([](Projection&) {}));
  CHECK(changed([](Projection& p) { p.softcap = 30; }));
  CHECK_FALSE(changed([](Projection& p) { p.scale = -1; }));
  Vector bias;
  CHECK_FALSE(changed([&](Projection& p) { p.bias = &bias; }));
  CHECK_FALSE(shortlist_step(*load_plan(source_folder() / "models/stories260K-FP8")).has_value());
}

}  // namespace
}  // namespace qgen::test
