// Best scores by a shortlist on the device: those of all scores, to the last bit.
#include <limits>

#include "kernels/kernel_log.h"
#include "kernels/shortlist.h"
#include "tests/kernels/on_device.h"
#include "tests/output_heads.h"

namespace qgen::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

// A plan that is its head alone, and a norm before it.
class TestHead {
 public:
  explicit TestHead(Weight weight, double softcap = 0, double scale = 1, float norm = 1) : device_(0) {
    plan_.weights.push_back(std::move(weight));
    const Weight& head = plan_.weights[0];
    std::mt19937 random(4);
    plan_.vectors.push_back(vector_of(normal(random, size_t(head.cols), norm)));
    LinearStep step;
    step.projections.push_back(projection_of(head, softcap));
    step.projections[0].scale = scale;
    plan_.steps = {{-1, step}};
    weights_.emplace(plan_);
    weights_->load(device_, nullptr);
    list_.emplace(ShortlistHead{&std::get<LinearStep>(plan_.steps[0].op).projections[0], {0}});
    y_ = Buffer<float>(device_, std::vector<float>(size_t(head.rows) * gpu::Shortlist::kTokens, 77.0f));
    projection_ = {
        weights_->matrix(head), {}, {Activation::kNone, float(scale), float(softcap), false}, y_.data(), head.rows};
    list_->load(device_, projection_.weight);
    device_.wait();
  }
  using Rows = std::vector<std::vector<float>>;
  // All scores of inputs that run together, and those that are there once so many of the best were looked for.
  Rows score(const Rows& inputs, bool norm) {
    set_input(inputs, norm);
    GemvArgs args;
    args.part[0] = projection_.weight;
    args.y[0] = y_.data();
    args.y_stride[0] = projection_.y_stride;
    args.x = input_.x;
    args.x_stride = input_.stride;
    args.norm = input_.norm.weight;
    args.norm_eps = input_.norm.eps;
    args.epilogue = projection_.epilogue;
    args.tokens = tokens_;
    gemv(device_.stream(), args);
    return read();
  }
  Rows find(const std::vector<size_t>& counts) {
    REQUIRE(int(counts.size()) == tokens_);
    std::vector<DrawSettings> settings;
    for (const size_t count : counts) settings.push_back({int32_t(count), 0, 1, 0, 1, 0, 0});
    const Buffer<DrawSettings> draw(device_, settings);
    const bool all_one = std::ranges::all_of(counts, [](size_t count) { return count == 1; });
    list_->find(device_.stream(), 0, projection_, input_, tokens_, all_one ? nullptr : draw.data(), side_ = 1 - side_);
    return read();
  }
  std::vector<float> score(const std::vector<float>& x, bool norm) { return score(Rows{x}, norm).front(); }
  std::vector<float> find(size_t count) { return find(std::vector{count}).front(); }
  // As the backend calls it.
  size_t begin(size_t count) {
    static constexpr int32_t kScored[] = {0};
    TokenChoice choice;
    choice.count = count;
    Batch batch;
    batch.scored = kScored;
    batch.choices = {&choice, 1};
    used_ = list_->begin(batch, 0, 1);
    return used_ ? used_.counts[0] : 0;
  }
  int64_t end_of_batch() {
    list_->end(used_, side_);
    return listed();
  }
  int64_t listed() const { return list_->rows_multiplied(side_, size_t(tokens_)); }
  // The input of a token that it has kept.
  std::vector<float> kept(int64_t token = 0) {
    const LinearInput kept = list_->input(0, side_);
    std::vector<float> out(size_t(kept.cols));
    copy_to_host(device_.stream(), out.data(), kept.x + token * kept.stride, out.size() * sizeof(float));
    device_.wait();
    return out;
  }

 private:
  void set_input(const Rows& inputs, bool norm) {
    const int64_t cols = int64_t(inputs.front().size()), stride = round_up(cols, kPad);
    tokens_ = int(inputs.size());
    std::vector<float> padded(size_t(tokens_ * stride));
    for (int64_t t = 0; t < tokens_; ++t) std::ranges::copy(inputs[size_t(t)], padded.begin() + t * stride);
    x_ = Buffer<float>(device_, padded);
    const Vector& weight = plan_.vectors[0];
    DeviceNorm rms;
    if (norm) rms = weights_->norm({Norm::Kind::kRms, &weight, nullptr, 1e-6, weight.size});
    input_ = {x_.data(), stride, int(cols), true, rms, 0};
  }
  Rows read() {
    const std::vector<float> all = y_.read();
    Rows out;
    for (int64_t t = 0; t < tokens_; ++t) {
      const auto first = all.begin() + t * projection_.y_stride;
      out.emplace_back(first, first + projection_.y_stride);
    }
    return out;
  }

  Plan plan_;
  gpu::Device device_;
  std::optional<WeightStore> weights_;
  std::optional<gpu::Shortlist> list_;
  Buffer<float> x_, y_;
  LinearInput input_;
  DeviceProjection projection_;
  gpu::Shortlist::Use used_;
  int side_ = 0, tokens_ = 1;
};

// How many of the best scores are there: as many as were wanted at least, and all others are marked.
size_t check_found(const std::vector<float>& found, const std::vector<float>& all, size_t count) {
  REQUIRE(found.size() == all.size());
  std::vector<ScoredToken> kept;
  bool same = true;
  for (size_t n = 0; n < found.size(); ++n) {
    if (found[n] == kNotListed) continue;
    kept.push_back({TokenId(n), found[n]});
    same = same && found[n] == all[n];
  }
  CHECK(same);
  CHECK(kept.size() >= count);
  std::sort(kept.begin(), kept.end(), better);
  const std::vector<ScoredToken> best = ranked(all);
  CHECK(std::equal(kept.begin(), kept.end(), best.begin(), [](const ScoredToken& a, const ScoredToken& b) {
    return a.token == b.token && a.score == b.score;
  }));
  return kept.size();
}

TEST_CASE("kernels: a shortlist has the best scores of odd matrices and inputs") {
  std::mt19937 random(5);
  struct Shape {
    Codes codes;
    int64_t rows, cols;
  };
  for (const auto& [codes, rows, cols] :
       {Shape{Codes::kBf16, 2113, 64},
        {Codes::kF16, 1100, 136},
        {Codes::kBf16, 600, 520},
        // Several rounds of a ring, more groups than a warp has lanes, and inputs that gemv() takes in slabs.
        {Codes::kF16, 460, 1100},
        {Codes::kBf16, 150, 4424},
        {Codes::kBf16, 70, kMostListedCols}}) {
    const bool wide = cols > 1000;
    for (const auto& [softcap, scale] : {std::pair{0.0, 1.0}, {50.0, 0.7}, {3.0, 1.0}}) {
      if (wide && softcap > 0) continue;
      TestHead head(odd_head(random, codes, rows, cols), softcap, scale);
      int number = 0;
      for (const float deviation : {1.0f, 1e-30f, 1e-38f, 1e4f, 0.0f}) {
        for (const int column : {0, 2, 13}) {
          if ((deviation != 1 || wide) && column > 0) continue;
          std::vector<float> x = normal(random, size_t(cols), deviation);
          if (column > 0) x[size_t(column)] = column == 2 ? -50 : 1000;
          for (const bool norm : {false, true}) {
            const std::vector<float> all = head.score(x, norm);
            for (const auto count : {size_t{1}, size_t{7}, size_t(rows / kBoundWarpRows)}) {
              if (count > size_t(rows / kBoundWarpRows)) continue;
              if (++number % 3 == 0) set_order(Order::kShuffled);
              INFO(std::string(codes_name(codes)), " ", rows, " x ", cols, ", softcap ", softcap, ", input of ",
                   deviation, ", column ", column, norm ? ", normalized, " : ", ", count);
              check_found(head.find(count), all, count);
              CHECK(head.kept() == x);
              set_order(Order::kAscending);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("kernels: a shortlist of each of several tokens together") {
  std::mt19937 random(13);
  struct Shape {
    Codes codes;
    int64_t rows, cols;
  };
  for (const auto& [codes, rows, cols] :
       {Shape{Codes::kBf16, 1200, 136}, {Codes::kF16, 460, 1100}, {Codes::kBf16, 150, 4424}}) {
    TestHead head(odd_head(random, codes, rows, cols));
    for (const size_t tokens : {size_t{2}, size_t{3}, size_t{5}, gpu::Shortlist::kTokens}) {
      TestHead::Rows inputs;
      std::vector<size_t> counts;
      for (size_t t = 0; t < tokens; ++t) {
        inputs.push_back(normal(random, size_t(cols), t % 4 == 3 ? 1e-30f : float(t + 1)));
        counts.push_back(tokens != 5 && t % 2 == 1 ? size_t(rows / kBoundWarpRows) : 1);
      }
      for (const bool norm : {false, true}) {
        const TestHead::Rows all = head.score(inputs, norm);
        set_order(norm ? Order::kShuffled : Order::kAscending);
        const TestHead::Rows found = head.find(counts);
        set_order(Order::kAscending);
        CHECK(head.listed() < int64_t(tokens) * rows);
        for (size_t t = 0; t < tokens; ++t) {
          INFO(std::string(codes_name(codes)), " ", rows, " x ", cols, ", token ", t, " of ", tokens,
               norm ? ", normalized" : "");
          check_found(found[t], all[t], counts[t]);
          CHECK(head.kept(int64_t(t)) == inputs[t]);
        }
      }
    }
  }
}

// An input in the direction of what rounding leaves of row 0, so that its score is off by all of the bound, and row 1
// with a score between.
TEST_CASE("kernels: a shortlist has a row that its codes put far below another") {
  std::mt19937 random(9);
  for (const int64_t cols : {96, 128, 777}) {
    Weight weight = random_weight(random, Codes::kF16, 300, cols, 1, 0, false);
    std::vector<double> row(static_cast<size_t>(cols)), left(static_cast<size_t>(cols));
    dequantize_row(weight, 0, row);
    double largest = 0, coded = 0, squares = 0;
    for (const double value : row) largest = std::max(largest, std::abs(value));
    for (size_t k = 0; k < row.size(); ++k) {
      const double code = std::round(row[k] / largest * 127) * largest / 127;
      left[k] = row[k] - code;
      coded += code * left[k];
      squares += left[k] * left[k];
    }
    for (int64_t n = 1; n < 300; ++n) {
      for (int64_t k = 0; k < cols; ++k) {
        const double between = (coded + 0.9 * squares) / squares * left[size_t(k)];
        set_element(weight, n, k, n == 1 ? float(between) : 0);
      }
    }
    TestHead head(std::move(weight));
    const std::vector<float> all = head.score(std::vector<float>(left.begin(), left.end()), false);
    INFO(cols, ": ", all[0], ", ", all[1]);
    REQUIRE(all[0] > all[1]);
    REQUIRE(all[0] - all[1] < 0.2 * squares);
    check_found(head.find(1), all, 1);
  }
}

TEST_CASE("kernels: a shortlist is short") {
  std::mt19937 random(6);
  TestHead head(random_weight(random, Codes::kBf16, 20000, 128, 1, 0, false));
  for (const float outlier : {0.0f, 40.0f}) {
    std::vector<float> x = normal(random, 128);
    x[1] += outlier;
    const std::vector<float> all = head.score(x, false);
    INFO(outlier);
    CHECK(check_found(head.find(1), all, 1) < 20);
    CHECK(head.listed() < 200);
    CHECK(check_found(head.find(40), all, 40) < 400);
    CHECK(head.listed() < 3000);
  }
}

TEST_CASE("kernels: a shortlist of rows and inputs that are not numbers") {
  std::mt19937 random(7);
  for (const float value : {kNaN, kInfinity, -kInfinity}) {
    for (const bool in_row : {true, false}) {
      Weight weight = random_weight(random, Codes::kBf16, 300, 96, 1, 0, false);
      if (in_row) set_element(weight, 123, 5, value);
      TestHead head(std::move(weight));
      std::vector<float> x = normal(random, 96);
      if (!in_row) x[7] = value;
      const std::vector<float> all = head.score(x, true);
      INFO(value, " ", in_row);
      const auto is_number = [](float score) { return std::isfinite(score); };
      CHECK_FALSE(std::all_of(all.begin(), all.end(), is_number));
      const std::vector<float> found = head.find(1);
      CHECK_FALSE(std::all_of(found.begin(), found.end(), is_number));
    }
  }
}

// What normalizes the input comes behind its products.
TEST_CASE("kernels: a shortlist where products with codes are beyond the range of numbers") {
  std::mt19937 random(8);
  TestHead head(random_weight(random, Codes::kBf16, 300, 96, 1, 0, false), 0, 1, 1e18f);
  const std::vector<float> all = head.score(normal(random, 96, 1e18f), true);
  REQUIRE(std::all_of(all.begin(), all.end(), [](float score) { return std::isfinite(score); }));
  check_found(head.find(1), all, 1);
  CHECK(head.listed() > 10);
  CHECK(head.listed() < 290);
}

TEST_CASE("kernels: a shortlist that has become long rests") {
  std::mt19937 random(9);
  Weight weight = random_weight(random, Codes::kBf16, 300, 96, 1, 0, false);
  for (int64_t n = 1; n < 300; ++n)
    std::memcpy(weight.owned.data() + n * weight.row_bytes, weight.owned.data(), size_t(weight.row_bytes));
  TestHead head(std::move(weight));
  const std::vector<float> all = head.score(normal(random, 96), false);
  for (int round = 0; round < 2; ++round) {
    CHECK(head.begin(3) == 3);
    check_found(head.find(3), all, 300);
    CHECK(head.end_of_batch() == 300);
    for (int64_t i = 0; i < ShortlistRest::kBatches; ++i) CHECK(head.begin(3) == 0);
  }
  CHECK(head.begin(5) == 0);  // more than parts of kBoundWarpRows rows
}

// Products of rows on a shortlist that were launched. The executor knows; tests on a GPU have no times of kernels.
struct ListedLaunches {
#if defined(QGEN_SIMT)
  static constexpr bool kKnown = true;
  gpu::Device device{0};
  KernelLog log{device, 1 << 20};
  size_t count() {
    const std::vector<KernelTimes> launches = log.read();
    return size_t(
        std::ranges::count_if(launches, [](const KernelTimes& one) { return one.kernel == "multiply listed"; }));
  }
#else
  static constexpr bool kKnown = false;
  static size_t count() { return 0; }
#endif
};

// So many steps; all scores are asked for at those from `all_from` on.
void check_engines(const Plan& plan, int steps, int all_from) {
  EngineOptions options;
  options.context = 100;
  auto without = make_gpu_engine(plan, options);
  options.shortlist = true;
  auto with = make_gpu_engine(plan, options);
  const size_t copy = with->engine->memory().weights - without->engine->memory().weights;
  CHECK(copy >= shortlist_bytes(plan.weights.front()));
  CHECK(copy < shortlist_bytes(plan.weights.front()) + 2 * size_t(kAllocationUnit));
  CHECK(gpu::account_backend(plan, options).weights == with->engine->memory().weights);
  ListedLaunches launches;

  // Some of the best; the best; both of a text whose next token is begun at once; and some with the mass of all.
  TokenChoice few, mass;
  few.count = 60;
  few.top_k = 50;
  few.temperature = 0.8;
  few.random = 0.3;
  mass = few;
  mass.mass_temperature = 0.7;
  constexpr int kGreedy = 5, kMass = 11;  // steps from which on
  const auto wanted_at = [&](int step) -> std::vector<TokenChoice> {
    if (step == 0) return {few};
    if (step == 1) return {{}};
    return step < kGreedy ? std::vector{few, few}
           : step < kMass ? std::vector<TokenChoice>(2)
                          : std::vector{mass, mass};
  };
  TokenId token = 17;
  size_t launched = 0;
  for (int step = 0; step < steps; ++step) {
    const std::vector<TokenChoice> wanted = wanted_at(step);
    const TokenChoice& choice = wanted.front();
    INFO("token ", step);
    if (step == kGreedy) launched = launches.count();
    const Scores expected = without->decode(token);
    const Scores scores = with->sequence.run(token, wanted);
    REQUIRE(scores.finite());
    CHECK(scores.best() == expected.best());
    const std::vector<ScoredToken> all = ranked({expected.all().begin(), expected.all().end()});
    const TopScores top = scores.top(choice.count, choice.mass_temperature);
    REQUIRE(top.best.size() >= choice.count);
    for (size_t i = 0; i < top.best.size(); ++i) {
      REQUIRE(top.best[i].token == all[i].token);
      REQUIRE(top.best[i].score == all[i].score);
    }
    // Others are not there where a shortlist was used, but all can still be had. It rests then, but for the token that
    // has begun.
    if (wanted.size() == 1) CHECK(scores.top(choice.count + 2).best.empty());
    if (step >= all_from) CHECK(std::ranges::equal(scores.all(), expected.all()));
    token = step == 2 ? TokenId((int64_t{token} * 31 + step) % plan.model.vocab) : *scores.best();
    // The first greedy token and one of each side, which are captured the second time.
    if (ListedLaunches::kKnown && step == kMass - 1) CHECK(launches.count() == launched + 5);
  }
}

TEST_CASE("kernels: an engine with a shortlist finds what an engine without does") {
  const auto plan = large_vocabulary(Codes::kBf16, 60);
  LinearStep& head = std::get<LinearStep>(plan->steps[1].op);
  check_engines(*plan, 4, 3);
  // Few scores within 64 of the best.
  head.projections[0].softcap = 0;
  head.projections[0].scale = 1;
  check_engines(*plan, 4, 3);
  std::mt19937 random(3);
  plan->vectors.push_back(vector_of(normal(random, size_t(plan->model.hidden))));
  head.norm.weight = &plan->vectors.back();
  head.projections[0].scale = 0.3;
  check_engines(*plan, 12, 9);
}

TEST_CASE("kernels: an engine with a shortlist finds what one without does, of several tokens together") {
  const auto plan = large_vocabulary(Codes::kBf16, 60);
  EngineOptions options;
  options.context = 100;
  options.sequences = 8;
  const auto without = make_gpu_engine(*plan, options);
  options.shortlist = true;
  const auto with = make_gpu_engine(*plan, options);
  ListedLaunches launches;
  int round = 0;
  check_together(*with, *without, 12, 10, [&](size_t, size_t) {
    // All scores of a round are asked for with its first token's, and it rests then.
    if (ListedLaunches::kKnown) CHECK(launches.count() == size_t(round > 10 ? 11 : round + 1));
    ++round;
  });
}

TEST_CASE("kernels: a draft head guesses with a shortlist what it does without") {
  const auto plan = drafting_vocabulary(Codes::kBf16);
  // It rests for the last token where all scores of the guess before it were asked for.
  for (const auto& [tokens, all_at, expected] : {std::tuple{2, 5, 7}, {1, -1, 4}}) {
    EngineOptions options;
    options.context = 100;
    const auto without = make_gpu_engine(*plan, options);
    options.shortlist = true;
    const auto with = make_gpu_engine(*plan, options);
    int found = 0;
    check_guesses(*with, *without, tokens, all_at, [&](const Scores& scores) { found += scores.top(3).best.empty(); });
    CHECK(found == expected);
  }
}

TEST_CASE("kernels: a head of F32 or of too many columns has no shortlist") {
  CHECK(gpu::Shortlist::head_of(*large_vocabulary(Codes::kBf16)).steps == std::vector<size_t>{1});
  CHECK_FALSE(gpu::Shortlist::head_of(*large_vocabulary(Codes::kF32)));
  const auto wide = large_vocabulary(Codes::kBf16);
  wide->weights.front().cols = kMostListedCols;
  CHECK(gpu::Shortlist::head_of(*wide));
  wide->weights.front().cols = kMostListedCols + 1;
  CHECK_FALSE(gpu::Shortlist::head_of(*wide));
}

}  // namespace
}  // namespace qgen::test
