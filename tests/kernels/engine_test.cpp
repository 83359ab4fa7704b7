// The engine that is made of the kernels, against the reference engine and the goldens.
#include "generate/generation.h"
#include "generate/loader.h"
#include "generate/speculation.h"
#include "tests/draft_golden.h"
#include "tests/kernels/on_device.h"
#include "tests/together.h"

namespace qgen::test {
namespace {

TEST_CASE("kernels: smoke, a whole model") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  const auto engine = make_gpu_engine(*plan, 64), reference = make_engine(*plan, "reference", 64);
  std::vector<TokenId> ids;
  for (int i = 0; i < 30; ++i) ids.push_back(TokenId(3 + i * 11 % 500));
  CHECK(normwise_error(engine->prefill(ids), reference->prefill(ids)) < 4e-3);
  for (int i = 0; i < 8; ++i)
    CHECK(normwise_error(engine->decode(ids[size_t(i)]), reference->decode(ids[size_t(i)])) < 4e-3);
}

TEST_CASE("kernels: the engine step by step against the reference engine") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  std::vector<TokenId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(TokenId(3 + i * 11 % 500));
  for (const int count : {1, 5, 40}) {
    const auto steps_of = [&](TestEngine& engine) {
      std::map<size_t, std::vector<float>> steps;
      engine.engine->set_trace(
          [&](size_t step, std::span<const float> values) { steps[step].assign(values.begin(), values.end()); });
      engine.prefill({ids.data(), size_t(count)});
      return steps;
    };
    const auto engine = make_gpu_engine(*plan, 64), reference = make_engine(*plan, "reference", 64);
    const auto found = steps_of(*engine), expected = steps_of(*reference);
    REQUIRE(expected.size() == plan->main_steps());
    REQUIRE(found.size() == plan->main_steps());
    for (const auto& [step, values] : found) {
      INFO(count, " tokens, step ", step, " ", std::string(step_name(plan->steps[step])));
      CHECK(normwise_error(values, expected.at(step)) < (count > LinearDispatch::kMostGemvTokens ? 2e-3 : 2e-5));
    }
  }
}

TEST_CASE("kernels: layers that draft guess as the goldens have it, and change nothing") {
  for (const DraftGolden& golden : DraftGolden::all()) {
    INFO(golden.folder.filename().string());
    const auto plan = load_plan(golden.folder, true);
    EngineOptions options;
    options.batch = 512;
    options.context = 64;
    options.sequences = 2;
    options.marks = Session::kMarks;
    options.kv = KvType::kF32;
    options.activations = Activations::kF32;
    const auto made = make_gpu_engine(*plan, options);
    check_drafts(*made->engine, golden, 1e-4);
    const auto best = [](const Scores& scores) { return scores.top(1).best[0].token; };
    std::vector<TokenId> plain, drafted;
    Scores scores = made->prefill(golden.ids);
    for (int i = 0; i < 12; ++i) {
      plain.push_back(best(scores));
      scores = made->decode(plain.back());
    }
    made->rewind(0);
    Session session(*made->engine, 64);
    Speculation speculation(session, 0, true);
    scores = session.sync(golden.ids);
    for (int i = 0; i < 12; ++i) {
      const std::span<const float> all = scores.all();
      drafted.push_back(TokenId(std::max_element(all.begin(), all.end()) - all.begin()));
      scores = speculation.append(drafted.back(), 11 - i);
    }
    CHECK(drafted == plain);
    CHECK(speculation.drafted() > 0);
  }
}

TEST_CASE("kernels: the engine's best scores are those of all its scores") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  const auto engine = make_gpu_engine(*plan, 64);
  const TokenId prompt[] = {1, 403, 407};
  for (int i = 0; i < 4; ++i) {
    const Scores scores = i == 0 ? engine->prefill(prompt) : engine->decode(TokenId(30 + i));
    CHECK(scores.finite());
    CHECK(scores.top(1).best.size() == 1);
    const TopScores top = scores.top(30, 0.7);
    const std::vector<ScoredToken>& best = top.best;
    CHECK(best.size() >= 30);
    const std::span<const float> all = scores.all();
    CHECK(best[0].token == std::max_element(all.begin(), all.end()) - all.begin());
    CHECK(best[0].token == scores.top(1).best[0].token);
    for (const ScoredToken& b : best) CHECK(b.score == all[size_t(b.token)]);
    double mass = 0;
    for (const float v : all) mass += std::exp((double(v) - best[0].score) / 0.7);
    CHECK(std::abs(top.mass - mass) < mass * kMassError / 10);
    CHECK(std::count_if(all.begin(), all.end(), [&](float v) { return v >= best.back().score; }) ==
          int64_t(best.size()));
    CHECK(scores.top(5000).best.empty());
  }
}

TEST_CASE("kernels: the engine gives a token the same scores alone and among as many as a draft has") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  for (const KvType kv : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    const auto engine = make_gpu_engine(*plan, 100, kv);
    std::vector<TokenId> ids;
    for (int i = 0; i < 20 + LinearDispatch::kMostGemvTokens; ++i) ids.push_back(TokenId(3 + i * 13 % 500));
    engine->prefill({ids.data(), 20});
    std::vector<std::vector<float>> together;
    engine->prefill({ids.data() + 20, LinearDispatch::kMostGemvTokens}, [&](int64_t, std::span<const float> scores) {
      together.emplace_back(scores.begin(), scores.end());
    });
    engine->rewind(20);
    for (size_t i = 0; i < together.size(); ++i) {
      const std::span<const float> alone = engine->decode(ids[20 + i]);
      CHECK(std::equal(alone.begin(), alone.end(), together[i].begin()));
    }
  }
}

TEST_CASE("kernels: a CUDA graph does at another position what single launches do") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  const auto engine = make_gpu_engine(*plan, 100);
  std::vector<TokenId> ids;
  for (int i = 0; i < 60; ++i) ids.push_back(TokenId(3 + i * 17 % 500));
  // By calls of so many tokens, each compared with that of an engine without graphs.
  for (const int at_once : {1, 5}) {
    for (const bool all : {false, true}) {
      engine->rewind(0);
      // The second call is captured as a graph, the third and the fourth run it.
      for (size_t done = 0; done < 4 * size_t(at_once) && done <= size_t(LinearDispatch::kMostGemvTokens);
           done += size_t(at_once)) {
        std::vector<float> rows;
        const LogitsSink sink = [&](int64_t, std::span<const float> row) {
          rows.insert(rows.end(), row.begin(), row.end());
        };
        const Scores scores = engine->prefill({ids.data() + done, size_t(at_once)}, all ? sink : LogitsSink());
        const auto fresh = make_gpu_engine(*plan, 100);
        if (done > 0) fresh->prefill({ids.data(), done});
        const Scores expected = fresh->prefill({ids.data() + done, size_t(at_once)});
        const std::span<const float> found = scores.all(), wanted = expected.all();
        CHECK(std::equal(found.begin(), found.end(), wanted.begin()));
        CHECK(scores.top(1).best[0].token == expected.top(1).best[0].token);
        if (all) CHECK(std::equal(found.begin(), found.end(), rows.end() - plan->model.vocab));
      }
    }
  }
}

#if defined(QGEN_SIMT)
TEST_CASE("kernels: where a GPU has no memory for a CUDA graph its steps are launched one by one") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  const auto decode = [&](bool fails) {
    const auto engine = make_gpu_engine(*plan, 100);
    std::vector<float> out;
    fail_graphs(fails);
    for (int i = 0; i < 5; ++i) {
      const Scores scores = engine->sequence.run(TokenId(20 + i), std::span(kGreedyChoices).first(i % 2 + 1));
      out.insert(out.end(), scores.all().begin(), scores.all().end());
    }
    fail_graphs(false);
    return out;
  };
  CHECK(decode(true) == decode(false));
}
#endif

// What the error of plain bfloat16 arithmetic is, where a golden says so (its tolerance is 2.5 times that); else 0.
// Weights in BF16 meet prompts in BF16.
double bf16_error(const Golden& golden) {
  const auto document = JsonDocument::parse(read_file(golden.folder / "expected/expected.json"), "expected.json");
  const auto tolerance = document->root().at("tolerance").get("logits_normwise_bfloat16_activations");
  return tolerance ? tolerance->as_number() / 2.5 : 0;
}

// Where inputs that are rounded to BF16 tip a choice between experts of nearly the same rank, that token's scores are
// others: one token may be left out of a mixture's error.
double mixture_error(const Plan& plan, std::vector<float> logits, std::span<const float> expected) {
  const auto vocab = size_t(plan.model.vocab);
  const auto of_token = [&](size_t first) {
    return normwise_error(std::span(logits).subspan(first, vocab), expected.subspan(first, vocab));
  };
  size_t worst = 0;
  for (size_t first = vocab; first < logits.size(); first += vocab) {
    if (of_token(first) > of_token(worst)) worst = first;
  }
  std::copy_n(expected.begin() + int64_t(worst), vocab, logits.begin() + int64_t(worst));
  return normwise_error(logits, expected);
}

TEST_CASE("kernels: the engine reproduces the goldens") {
  const char* const wanted = std::getenv("QGEN_GOLDENS");  // the beginning of their names
  double worst = 0;
  size_t compared_goldens = 0, tokens = 0;
  [[maybe_unused]] size_t seen = 0;
  for (const Golden& golden : goldens()) {
#if defined(__SANITIZE_ADDRESS__)
    if (seen++ % 3 != 0) continue;  // with its checks all would take hours; neighbours have the same kernels
#endif
    if (wanted != nullptr && !golden.name.starts_with(wanted)) continue;
    INFO(golden.name);
    const auto plan = load_plan(golden.folder);
#if defined(QGEN_SIMT)
    // The executor is slow: the beginning of each prompt, more tokens than go through the kernels of a few, by turns
    // through tiles and through the library. With a dynamic base the first tokens' scores depend on the last.
    const bool all = std::any_of(plan->ropes.begin(), plan->ropes.end(),
                                 [](const Rope& rope) { return rope.scaling == Rope::Scaling::kDynamic; });
    const size_t most =
        (golden.name.size() % 2 == 0) ? LinearDispatch::kMostGemvTokens + 4 : LinearDispatch::kMostGemvTokens + 10;
    const size_t count = std::min(golden.ids.size(), all ? SIZE_MAX : most), answers = 4;
    constexpr double kLimit = 1e-2;
#else
    const size_t count = golden.ids.size(), answers = golden.greedy.size();
    constexpr double kLimit = 1.3e-2;  // sums are rounded in another order than the executor's, whose worst is 8.6e-3
#endif
    const std::span<const TokenId> ids(golden.ids.data(), count);
    const std::span<const float> expected(golden.logits.data(), count * size_t(plan->model.vocab));
    const int64_t context = int64_t(golden.ids.size() + golden.greedy.size());
    for (const Activations activations : {Activations::kF32, Activations::k16Bit}) {
      const bool exact = activations == Activations::kF32;
#if defined(__SANITIZE_ADDRESS__)
      if (exact == (compared_goldens % 2 == 0)) continue;  // one precision, by turns, for the same reason
#endif
      const auto engine = make_gpu_engine(*plan, context, exact ? KvType::kF32 : KvType::kF16, activations);
      std::vector<float> logits;
      engine->prefill(
          ids, [&](int64_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
      const bool mixture = std::any_of(plan->steps.begin(), plan->steps.end(),
                                       [](const Step& step) { return std::holds_alternative<ExpertsStep>(step.op); });
      const bool may_tip = mixture && !exact && golden.name.ends_with("-bf16");
      const double error = may_tip ? mixture_error(*plan, logits, expected) : normwise_error(logits, expected);
      CHECK(error < (exact ? golden.cpu_tolerance : std::max(kLimit, bf16_error(golden))));
      if (!exact) worst = std::max(worst, error);
      if (exact) continue;
      engine->rewind(0);
      std::span<const float> scores = engine->prefill(golden.ids);
      size_t compared = 0;
      for (; compared < std::min(golden.greedy.size(), answers) && golden.margins[compared] > 0.1; ++compared) {
        REQUIRE(std::max_element(scores.begin(), scores.end()) - scores.begin() == golden.greedy[compared]);
        scores = engine->decode(golden.greedy[compared]);
      }
      tokens += compared;
    }
    ++compared_goldens;
  }
  CHECK(tokens > 0);
  MESSAGE(compared_goldens, " goldens, ", tokens, " greedy tokens, largest error with activations of 16 bits: ", worst);
}

TEST_CASE("kernels: the engine with inputs of 8 bits") {
  if (library_is_missing()) return;
  for (const char* name : {"stories260K-w8a8", "stories260K-FP8"}) {
    INFO(std::string(name));
    const auto plan = load_plan(source_folder() / "models" / name);
    std::vector<TokenId> ids;
    for (int i = 0; i < 60; ++i) ids.push_back(TokenId(3 + i * 7 % 500));
    const auto reference = make_engine(*plan, "reference", 80), exact = make_gpu_engine(*plan, 80, KvType::kF16),
               rounded = make_gpu_engine(*plan, 80, KvType::kF16, Activations::k8Bit);
#if !defined(QGEN_SIMT)
    // Older GPUs have no products of 8-bit floats.
    if (rounded->engine->activations() != Activations::k8Bit && std::string_view(name) == "stories260K-FP8") continue;
#endif
    CHECK(rounded->engine->activations() == Activations::k8Bit);
    const std::span<const float> expected = reference->prefill(ids);
    const double most = normwise_error(rounded->prefill(ids), expected);
    CHECK(most < 5e-2);
    CHECK(most > 1.2 * normwise_error(exact->prefill(ids), expected));
    CHECK(normwise_error(rounded->decode(7), reference->decode(7)) < 5e-2);
  }
}

TEST_CASE("kernels: what the engine says it takes, prompts longer than a batch, caches of every type, rewinding") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  std::vector<TokenId> ids;
  for (int i = 0; i < 540; ++i) ids.push_back(TokenId(3 + i * 7 % 500));
  for (const KvType kv : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kFp8, KvType::kInt8}) {
    INFO(std::string(kv_name(kv)));
    const size_t count = kv == KvType::kF16 ? ids.size() : 60;
    const double limit = kv == KvType::kFp8 ? 8e-2 : kv == KvType::kBf16 || kv == KvType::kInt8 ? 2e-2 : 4e-3;
    const int64_t context = int64_t(count) + 10;
    const auto reference = make_engine(*plan, "reference", context);
    const std::span<const float> expected = reference->prefill({ids.data(), count});
    const auto engine = make_gpu_engine(*plan, context, kv);
    CHECK(normwise_error(engine->prefill({ids.data(), count}), expected) < limit);
    CHECK(engine->position() == int64_t(count));
    engine->rewind(int64_t(count) - 10);
    const std::span<const float> again = engine->prefill({ids.data() + count - 10, 10});
    CHECK(normwise_error(again, expected) < limit);
    EngineOptions options;
    options.context = context;
    options.kv = kv;
    options.batch = 512;
    CHECK(engine->engine->memory().total() == gpu::account_backend(*plan, options).total());
    CHECK(contains(error_of([&] { engine->prefill(ids); }), "the context is full"));
  }
}

TEST_CASE("kernels: a prompt that is stopped between batches goes on where it was stopped") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  std::vector<TokenId> ids;
  for (int i = 0; i < 530; ++i) ids.push_back(TokenId(3 + i * 7 % 500));
  const auto engine = make_gpu_engine(*plan, 540, KvType::kF16), whole = make_gpu_engine(*plan, 540, KvType::kF16);
  engine->engine->set_observer([](double done) { return done > 512; });
  CHECK(engine->prefill(ids).empty());
  REQUIRE(engine->position() == 512);
  engine->engine->set_observer({});
  const std::span<const float> rest = engine->prefill({ids.data() + 512, 18}), all = whole->prefill(ids);
  CHECK(std::equal(rest.begin(), rest.end(), all.begin()));
}

std::vector<TokenId> some_ids(int count, int factor) {
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(TokenId(3 + i * factor % 500));
  return ids;
}

// What the executor knows of its work; a GPU says nothing of it.
struct WorkUnderWay {
#if defined(QGEN_SIMT)
  static constexpr bool kKnown = true;
  size_t waiting = count_work().waiting, done = count_work().done;
#else
  static constexpr bool kKnown = false;
  size_t waiting = 0, done = 0;
#endif
};

struct AheadTest {
  int prompt = 20, tokens = 34;
  int64_t context = 200;
};
// A text on two engines, of which one is told how tokens are chosen, so that it may begin them before they are asked
// for.
void check_begun_ahead(const Plan& plan, const SamplingSettings& settings, const AheadTest& test = {}) {
  INFO(plan.model.family);
  EngineOptions options;
  options.context = test.context;
  options.sequences = 2;
  options.batch = 64;
  const auto told = make_gpu_engine(plan, options), plain = make_gpu_engine(plan, options);
  Sampler sampler(settings), plain_sampler(settings);
  std::vector<TokenId> ids = some_ids(test.prompt, 7);
  for (TokenId& id : ids) id = TokenId(id % plan.model.vocab);
  std::vector<TokenChoice> choices = sampler.upcoming(2);
  REQUIRE(choices.size() == 2);
  const auto start = [&](TestEngine& engine) {
    return engine.sequence.run(Work{.tokens = ids, .choices = choices}, {});
  };
  TokenId token = choose(sampler, start(*told));
  CHECK(choose(plain_sampler, plain->prefill(ids)) == token);
  int guessed_right = 0;
  bool may_be_guessed = false;
  for (int i = 0; i < test.tokens; ++i) {
    INFO("token ", i);
    // Now and then the text goes on with another token, is cut back, or another text comes in between.
    const bool other_token = i % 7 == 5, cut_back = i % 11 == 9, other_text = i % 13 == 12, ends = i % 17 == 16;
    if (other_token) token = TokenId((token + 3) % plan.model.vocab);
    for (TestEngine* engine : {told.get(), plain.get()}) {
      if (cut_back && engine->rewind(engine->position() - 2) == 0) start(*engine);
      if (other_text) Sequence(*engine->engine, 32).run(std::span(ids).first(5));
    }
    may_be_guessed = may_be_guessed && !other_token && !cut_back && !other_text;
    choices = sampler.upcoming(ends ? 1 : 2);
    const Scores expected = plain->decode(token);
    const WorkUnderWay before;
    const Scores found = told->sequence.run(token, choices);
    const WorkUnderWay after;
    // Single launches come first, then a graph is captured for each side.
    if (WorkUnderWay::kKnown && i > 12) {
      CHECK((after.waiting > 0) == !ends);
      const bool was_begun = after.done - before.done == before.waiting;
      CHECK(was_begun <= may_be_guessed);
      guessed_right += was_begun;
      CHECK((guessed_right > 0 || !may_be_guessed));
    }
    token = choose(sampler, found);
    CHECK(choose(plain_sampler, expected) == token);
    const std::span<const float> a = found.all(), b = expected.all();
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    if (ends) CHECK(found.top(5).best.size() == expected.top(5).best.size());
    may_be_guessed = !ends;
  }
  CHECK(told->position() == plain->position());
  if (WorkUnderWay::kKnown) CHECK(guessed_right > 5);
}

SamplingSettings sampling(double temperature, int64_t top_k, double top_p) {
  SamplingSettings settings;
  settings.temperature.value = temperature;
  settings.top_k.value = top_k;
  settings.top_p.value = top_p;
  settings.seed.value = 5;
  return settings;
}

TEST_CASE("kernels: a token that is begun before it is asked for comes out as any other, or leaves no trace") {
  const std::filesystem::path goldens = source_folder() / "tests/golden";
  check_begun_ahead(*load_plan(source_folder() / "models/stories260K-FP8"), sampling(0.7, 20, 0.8));
  for (const SamplingSettings& settings : {sampling(0, 0, 1), sampling(0.3, 0, 0.95)}) {
    INFO("temperature ", settings.temperature.value, ", top-p ", settings.top_p.value);
    check_begun_ahead(*load_plan(goldens / "llama-rope-dynamic"), settings);
  }
  // At the end of a page, with pages that are a ring.
  check_begun_ahead(*load_plan(goldens / "mistral-window"), sampling(0.7, 20, 0.8), {.prompt = 743, .context = 1400});
  // States of fixed size, in two slots by turns: delta nets, convolutions, Mamba.
  for (const char* golden : {"qwen3_next-bf16", "lfm2-bf16", "falcon_h1-bf16"})
    check_begun_ahead(*load_plan(goldens / golden), sampling(0.7, 20, 0.8));
}

TEST_CASE("kernels: what was begun of a text that is closed is not another text's, and the text may end there") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  EngineOptions options;
  options.context = 32;
  options.sequences = 2;
  Engine engine(*plan, options, gpu::make_backend(*plan, options));
  const auto plain = make_gpu_engine(*plan, options);
  const std::vector<TokenId> ids = some_ids(20, 7), others = some_ids(20, 11);
  const SequenceId closed = *engine.open(32), other = *engine.open(32);
  const auto run = [&](SequenceId sequence, std::span<const TokenId> tokens, std::span<const TokenChoice> choices) {
    const Work work{.sequence = sequence, .tokens = tokens, .choices = choices};
    REQUIRE(engine.run({&work, 1}));
    return engine.last_scores();
  };
  run(other, others, {});
  const TokenId guess = run(closed, ids, kGreedyChoices).best().value();
  // A fork of another text that takes its place, its pages and its length, and is given the same token.
  engine.close(closed);
  const SequenceId fork = *engine.fork(other, 20, 32);
  REQUIRE(fork == closed);
  const Scores found = run(fork, {&guess, 1}, kGreedyChoices);
  plain->prefill(others);
  const Scores expected = plain->decode(guess);
  const std::span<const float> a = found.all(), b = expected.all();
  CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  // Asked for otherwise than was said, while the next token is under way, the best scores are found among all.
  CHECK(found.top(7, 0.5).best.empty());
  // As long as there is room for what may be begun.
  for (int i = 0; engine.position(fork) < 32; ++i) {
    const TokenId token = engine.last_scores().best().value();
    run(fork, {&token, 1}, kGreedyChoices);
    const Scores after = plain->decode(token);
    CHECK(engine.last_scores().best() == after.best());
  }
  const TokenId token = 5;
  const Work work{.sequence = fork, .tokens = {&token, 1}};
  CHECK(contains(error_of([&] { engine.run({&work, 1}); }), "the context is full"));
}

TEST_CASE("kernels: keys of a token that is begun before it is asked for may overflow, and count when it is") {
  const TokenId prompt[] = {1, 2, 3};
  EngineOptions options;
  options.context = 32;
  const auto harmless = overflowing_plan(-1, false);
  const TokenId best = make_gpu_engine(*harmless, options)->prefill(prompt).best().value();
  const auto plan = overflowing_plan(best, false);
  const auto engine = make_gpu_engine(*plan, options), plain = make_gpu_engine(*plan, options);
  const Work work{.tokens = prompt, .choices = kGreedyChoices};
  for (int i = 0; i < 4; ++i) {
    for (TestEngine* each : {engine.get(), plain.get()}) each->rewind(0);
    CHECK(engine->sequence.run(work, {}).best() == best);
    plain->prefill(prompt);
    if (i % 2 == 1) {
      CHECK(contains(error_of([&] { engine->sequence.run(best, kGreedyChoices); }), "beyond the range"));
      continue;
    }
    const TokenId other = best == 0 ? 1 : 0;
    const Scores found = engine->sequence.run(other, kGreedyChoices), expected = plain->decode(other);
    const std::span<const float> a = found.all(), b = expected.all();
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

TEST_CASE("kernels: several sequences together come out as each alone, bit by bit") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  const std::vector<std::vector<TokenId>> prompts = {some_ids(262, 7), some_ids(3, 11), some_ids(40, 13)};
  constexpr int kAnswers = 2;
  const auto answer = [](size_t sequence, int i) { return TokenId(20 + 31 * i + 7 * int(sequence)); };
  for (const auto& [kv, activations] :
       {std::pair{KvType::kF16, Activations::k16Bit}, {KvType::kInt8, Activations::kF32}}) {
    INFO(std::string(kv_name(kv)));
    EngineOptions options;
    options.context = 600;
    options.sequences = 4;
    options.kv = kv;
    options.activations = activations;
    options.batch = 128;
    Engine engine(*plan, options, gpu::make_backend(*plan, options));
    // Pages that do not lie in order: 0 and 1 are free again when the second sequence has 2, 3 and 4.
    const SequenceId first = *engine.open(300), second = *engine.open(600);
    engine.close(first);
    engine.close(second);
    const SequenceId small = *engine.open(256);
    std::vector<SequenceId> ids = {*engine.open(600)};
    engine.close(small);
    ids.push_back(*engine.open(600));
    ids.push_back(*engine.open(100));
    std::vector<Work> work;
    for (size_t i = 0; i < prompts.size(); ++i) work.push_back({ids[i], prompts[i], Wanted::kLast});
    std::vector<std::vector<std::vector<float>>> together = {scores_of_items(engine, work, Kernels::kPrompt)};
    for (int i = 0; i < kAnswers; ++i) {
      std::vector<TokenId> tokens;
      for (size_t s = 0; s < prompts.size(); ++s) tokens.push_back(answer(s, i));
      for (size_t s = 0; s < prompts.size(); ++s) work[s].tokens = {&tokens[s], 1};
      together.push_back(scores_of_items(engine, work, Kernels::kGenerate));
    }
    for (size_t s = 0; s < prompts.size(); ++s) {
      options.sequences = 1;
      options.batch = 50;
      Engine alone(*plan, options, gpu::make_backend(*plan, options));
      const SequenceId id = *alone.open(600);
      const Work prompt{id, prompts[s], Wanted::kLast};
      CHECK(scores_of_items(alone, {&prompt, 1}, Kernels::kPrompt)[0] == together[0][s]);
      for (int i = 0; i < kAnswers; ++i) {
        const TokenId token = answer(s, i);
        const Work next{id, {&token, 1}, Wanted::kLast};
        CHECK(scores_of_items(alone, {&next, 1}, Kernels::kGenerate)[0] == together[size_t(i) + 1][s]);
      }
    }
  }
}

TEST_CASE("kernels: the best scores of many sequences come with their batch, as they would be asked for") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  EngineOptions options;
  options.context = 64;
  options.sequences = LinearDispatch::kMostGemvTokens + 4;
  Engine engine(*plan, options, gpu::make_backend(*plan, options));
  options.sequences = 1;
  Engine alone(*plan, options, gpu::make_backend(*plan, options));
  const SequenceId single = *alone.open(64);
  CHECK(engine.memory().work > alone.memory().work);
  std::vector<TokenId> tokens;
  std::vector<TokenChoice> choices;
  std::vector<Work> work;
  for (int i = 0; i < LinearDispatch::kMostGemvTokens + 4; ++i) {
    tokens.push_back(TokenId(3 + 23 * i));
    TokenChoice choice;  // of some the best alone, of others the mass too
    if (i % 3 > 0) choice.count = size_t(10 + i);
    if (i % 3 == 2) choice.mass_temperature = 0.5 + 0.1 * i;
    choices.push_back(choice);
  }
  for (size_t i = 0; i < tokens.size(); ++i)
    work.push_back({.sequence = *engine.open(64), .tokens = {&tokens[i], 1}, .choices = {&choices[i], 1}});
  // Single launches, then a graph that is captured, then one that is run again, at another place of the texts.
  for (int call = 0; call < 3; ++call) {
    size_t seen = 0;
    engine.run(
        work,
        [&](size_t item, int64_t, const Scores& scores) {
          INFO("call ", call, ", item ", item);
          ++seen;
          const TokenChoice& choice = choices[item];
          const WorkUnderWay before;
          const TopScores top = scores.top(choice.count, choice.mass_temperature);
          if (WorkUnderWay::kKnown) CHECK(WorkUnderWay().done == before.done);
          REQUIRE(top.best.size() >= choice.count);
          // Asked for otherwise, they are found for that.
          const TopScores more = scores.top(choice.count + 1, 0.9);
          REQUIRE(more.best.size() > choice.count);
          for (size_t n = 0; n < choice.count; ++n) CHECK(top.best[n].token == more.best[n].token);
          const std::span<const float> all = scores.all();
          CHECK(top.best[0].token == std::max_element(all.begin(), all.end()) - all.begin());
          double mass = 0;
          for (const float v : all) mass += std::exp((double(v) - top.best[0].score) / choice.mass_temperature);
          if (choice.mass_temperature > 0) CHECK(std::abs(top.mass - mass) < mass * kMassError / 10);
          if (call > 0 || item % 7 != 0) return;
          alone.rewind(single, 0);
          const Work same{.sequence = single, .tokens = work[item].tokens};
          CHECK(scores_of_items(alone, {&same, 1}, Kernels::kGenerate)[0] ==
                std::vector<float>(all.begin(), all.end()));
        },
        Kernels::kGenerate);
    CHECK(seen == tokens.size());
  }
}

TEST_CASE("kernels: a larger batch where it takes little of the memory that is free") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  EngineOptions options;
  options.context = 8192;
  EngineRow row;
  row.account = gpu::account_backend;
  CHECK(fitting_batch(*plan, row, options, 1e12) == 0);
  row.large_batch = 4096;
  CHECK(fitting_batch(*plan, row, options, 1e12) == 4096);
  EngineOptions large = options;
  large.batch = 4096;
  const auto more = double(gpu::account_backend(*plan, large).total() - gpu::account_backend(*plan, options).total());
  REQUIRE(more > 1e6);
  CHECK(fitting_batch(*plan, row, options, 64.01 * more) == 4096);
  CHECK(fitting_batch(*plan, row, options, 63.99 * more) == 0);
  CHECK(fitting_batch(*plan, row, options, 0) == 0);
}

TEST_CASE("kernels: the scores after each token of a draft are found with their call, and stay until the next one") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  EngineOptions options;
  options.context = 64;
  Engine engine(*plan, options, gpu::make_backend(*plan, options));
  Engine undrafted(*plan, options, gpu::make_backend(*plan, options));
  Session session(engine, 64);
  Sequence single(undrafted, 64);
  const std::vector<TokenId> start = {1, 10, 20};
  session.sync(start);
  single.run(start);
  const TokenChoice choice{.count = 12, .mass_temperature = 0.8};
  // Single launches, a graph, and a call with more tokens than keep their scores.
  for (const int drafted : {3, 5, 3, 3, int(engine.scored_at_once())}) {
    std::vector<TokenId> tokens;
    for (int i = 0; i <= drafted; ++i) tokens.push_back(TokenId(7 + 11 * i + drafted));
    for (int i = 0; i <= drafted; ++i) {
      INFO(drafted, " drafted, token ", i);
      const Scores scores = i == 0 ? session.append(tokens[0], std::span(tokens).subspan(1), {&choice, 1})
                                   : session.append(tokens[size_t(i)]);
      const Scores expected = single.run(tokens[size_t(i)]);
      const WorkUnderWay before;
      const TopScores top = scores.top(choice.count, choice.mass_temperature);
      if (WorkUnderWay::kKnown) CHECK(WorkUnderWay().done == before.done);
      const bool are_kept = drafted < engine.scored_at_once();
      const TopScores alike = expected.top(choice.count, choice.mass_temperature);
      CHECK(top.best.empty() != are_kept);
      REQUIRE(alike.best.size() >= choice.count);
      for (size_t n = 0; n < (are_kept ? choice.count : 0); ++n) CHECK(top.best.at(n).token == alike.best[n].token);
      if (are_kept) CHECK(std::abs(top.mass - alike.mass) <= alike.mass * kMassError);
      CHECK(scores.finite());
      CHECK(normwise_error(scores, expected) <= (are_kept ? 0 : 4e-3));
    }
  }
}

TEST_CASE("kernels: several sequences of every kind of model come out as each alone, bit by bit") {
  for (const char* golden : kMixedGoldens) {
    INFO(std::string(golden));
    const auto plan = load_plan(source_folder() / "tests/golden" / golden);
    check_together(*plan, [](const Plan& p, const EngineOptions& options) {
      return std::make_unique<Engine>(p, options, gpu::make_backend(p, options));
    });
  }
}

TEST_CASE("kernels: a sequence whose keys or values overflow the cache ends alone") {
  check_overflow([](const Plan& plan, const EngineOptions& options) {
    return std::make_unique<Engine>(plan, options, gpu::make_backend(plan, options));
  });
}

TEST_CASE("kernels: prompts and single tokens of several sequences in one batch, and scores of tokens apart") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  EngineOptions options;
  options.context = 300;
  options.sequences = 3;
  Engine engine(*plan, options, gpu::make_backend(*plan, options));
  Engine reference(*plan, options, make_reference_backend(*plan, options));
  const auto first = some_ids(30, 7), second = some_ids(5, 11), more = some_ids(40, 17);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(*engine.open(300));
    REQUIRE(reference.open(300) == ids.back());
  }
  const TokenId token = 77;
  const std::vector<std::vector<Work>> calls = {
      {{ids[0], first, Wanted::kLast}, {ids[1], second, Wanted::kAll}, {ids[2], {&token, 1}, Wanted::kLast}},
      {{ids[2], {&token, 1}, Wanted::kLast}, {ids[0], more, Wanted::kLast}, {ids[1], second, Wanted::kNone}},
      {{ids[0], {&token, 1}, Wanted::kLast},
       {ids[1], {&token, 1}, Wanted::kLast},
       {ids[2], {&token, 1}, Wanted::kLast}}};
  for (const std::vector<Work>& work : calls) {
    const auto scores_of = [&](Engine& one) {
      std::vector<float> out;
      one.run(work, [&](size_t, int64_t, const Scores& scores) {
        const std::span<const float> all = scores.all();
        out.insert(out.end(), all.begin(), all.end());
        const auto top = scores.top(1).best;
        if (!top.empty()) CHECK(top[0].token == std::max_element(all.begin(), all.end()) - all.begin());
      });
      return out;
    };
    CHECK(normwise_error(scores_of(engine), scores_of(reference)) < 4e-3);
  }
}

TEST_CASE("kernels: a fork goes on as its origin does, and pages of windows are copied") {
  for (const char* model : {"models/stories260K-FP8", "tests/golden/mistral-window"}) {
    const auto plan = load_plan(source_folder() / model);
    for (const KvType kv : {KvType::kF16, KvType::kInt8}) {
      INFO(std::string(model), " ", std::string(kv_name(kv)));
      EngineOptions options;
      options.context = 600;
      options.sequences = 2;
      options.kv = kv;
      Engine engine(*plan, options, gpu::make_backend(*plan, options));
      std::vector<TokenId> prompt = some_ids(280, 7);
      for (TokenId& id : prompt) id = TokenId(id % plan->model.vocab);
      const SequenceId origin = *engine.open(600);
      const Work work{origin, prompt, Wanted::kLast};
      engine.run({&work, 1});
      const SequenceId fork = *engine.fork(origin, 270, 600);
      REQUIRE(engine.position(fork) == 270);
      engine.rewind(origin, 270);
      const std::vector<TokenId> rest(prompt.begin() + 100, prompt.begin() + 110);
      const Work both[] = {{origin, rest, Wanted::kLast}, {fork, rest, Wanted::kLast}};
      const auto scores = scores_of_items(engine, both, Kernels::kGenerate);
      CHECK(scores[0] == scores[1]);
    }
  }
}

TEST_CASE("kernels: a window's pages are a ring") {
  const auto plan = load_plan(source_folder() / "tests/golden/mistral-window");
  EngineOptions options;
  options.context = 1800;
  options.batch = 64;
  options.kv = KvType::kF32;
  const CacheLayout layout(*plan, cache_limits(options, options.batch));
  REQUIRE(layout.groups()[0].window > 0);
  std::vector<TokenId> ids = some_ids(1700, 7);
  for (TokenId& id : ids) id = TokenId(id % plan->model.vocab);
  REQUIRE(layout.groups()[0].ring * layout.page_tokens() < int64_t(ids.size()));
  const auto engine = make_gpu_engine(*plan, options), reference = make_engine(*plan, "reference", options);
  CHECK(normwise_error(engine->prefill(ids), reference->prefill(ids)) < 5e-3);
  CHECK(normwise_error(engine->decode(7), reference->decode(7)) < 5e-3);
  engine->rewind(1200);
  reference->rewind(1200);
  CHECK(engine->position() == 1200);
  CHECK(normwise_error(engine->decode(7), reference->decode(7)) < 5e-3);
}

TEST_CASE("kernels: keys and values beyond the range of F16 are found, and BF16 holds them") {
  auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  for (Step& step : plan->steps) {
    auto* const linear = std::get_if<LinearStep>(&step.op);
    if (linear != nullptr && step.layer == 2 && linear->projections.size() == 3) linear->projections[2].scale = 1e7;
  }
  const auto ids = some_ids(20, 7);
  CHECK(contains(error_of([&] { make_gpu_engine(*plan, 64, KvType::kF16)->prefill(ids); }),
                 "keys or values of layer 2 are beyond the range of the f16 cache"));
  CHECK(make_gpu_engine(*plan, 64, KvType::kBf16)->prefill(ids).finite());
}

}  // namespace
}  // namespace qgen::test
