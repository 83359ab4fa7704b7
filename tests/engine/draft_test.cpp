// Layers that draft tokens, on every engine, against an independent implementation.
#include "tests/draft_golden.h"

#include "cpu/isa/targets.h"
#include "generate/speculation.h"

namespace qgen::test {
namespace {

EngineOptions options_for(const DraftGolden& golden, Activations activations) {
  EngineOptions options;
  options.context = int64_t(golden.ids.size()) + 4;
  options.sequences = 2;
  options.marks = Session::kMarks;
  options.kv = KvType::kF32;
  options.activations = activations;
  options.threads = 2;
  return options;
}

TEST_CASE("layers that draft guess as the goldens have it, on every engine") {
  const std::vector<DraftGolden> goldens = DraftGolden::all();
  REQUIRE(goldens.size() >= 3);
  size_t gguf_files = 0;
  for (const DraftGolden& golden : goldens) {
    // The same weights by llama.cpp's own converter.
    if (const fs::path file = golden.folder / "expected/model.gguf"; fs::exists(file)) {
      ++gguf_files;
      const auto plan = load_plan(file, true);
      const auto reference = make_engine(*plan, "reference", options_for(golden, Activations::kF32));
      check_drafts(*reference->engine, golden, 1e-5);
    }
    const auto plan = load_plan(golden.folder, true);
    REQUIRE(plan->draft);
    const auto reference = make_engine(*plan, "reference", options_for(golden, Activations::kF32));
    check_drafts(*reference->engine, golden, 1e-5);
    for (const cpu::IsaTarget* target : cpu::targets()) {
      if (!target->supported()) continue;
      INFO(target->name);
      for (const auto& [activations, limit] :
           {std::pair(Activations::kF32, 1e-4), std::pair(Activations::k16Bit, 5e-3)}) {
        const auto engine = make_engine(*plan, std::string("cpu:") + target->name, options_for(golden, activations));
        check_drafts(*engine->engine, golden, limit);
      }
    }
  }
  CHECK(gguf_files == 2);
}

TEST_CASE("a plan with a draft head is that of the model, and what the head takes") {
  for (const DraftGolden& golden : DraftGolden::all()) {
    INFO(golden.folder.filename().string());
    const auto with = load_plan(golden.folder, true), without = load_plan(golden.folder);
    CHECK(!without->draft);
    CHECK(without->main_steps() == without->steps.size());
    CHECK(with->main_steps() == without->steps.size() + 1);  // the hidden row
    CHECK(with->states.size() == without->states.size() + 1);
    CHECK(with->parameters() > without->parameters());
    // A token of the model reads no more than the final norm once again.
    CHECK(with->bytes_per_token() - without->bytes_per_token() == size_t(with->model.hidden) * sizeof(float));
    CHECK(kv_bytes_read(*with, 10, KvType::kF16) == kv_bytes_read(*without, 10, KvType::kF16));
    for (const Binder::Ignored& ignored : with->ignored) CHECK(ignored.reason == "a copy of the model's own");
    // Its own scores are the same to the bit.
    const auto a = make_engine(*with, "cpu", options_for(golden, Activations::k16Bit));
    const auto b = make_engine(*without, "cpu", options_for(golden, Activations::k16Bit));
    const Scores found = a->prefill(golden.ids), expected = b->prefill(golden.ids);
    CHECK(std::equal(found.all().begin(), found.all().end(), expected.all().begin()));
  }
}

TEST_CASE("a model without a layer that drafts is refused by name") {
  const fs::path golden = source_folder() / "tests/golden";
  CHECK(error_of([&] { load_plan(golden / "qwen3-bf16", true); }) ==
        "qwen3-bf16: no layer that drafts tokens is known of a qwen3 model\n--draft off runs it without");
  CHECK(error_of([&] { load_plan(golden / "qwen3_next-fp8", true); }) ==
        "qwen3_next-fp8: no layer that drafts tokens (no tensor mtp.fc.weight)\n--draft off runs it without");
}

TEST_CASE("text drafted by the model's own layer is that without drafts") {
  for (const DraftGolden& golden : DraftGolden::all()) {
    INFO(golden.folder.filename().string());
    const auto plan = load_plan(golden.folder, true);
    EngineOptions options = options_for(golden, Activations::kF32);
    options.context = 200;
    const auto made = make_engine(*plan, "reference", options);
    const auto best = [](const Scores& scores) {
      return TokenId(std::max_element(scores.all().begin(), scores.all().end()) - scores.all().begin());
    };
    std::vector<TokenId> plain, drafted;
    {
      Scores scores = made->prefill(golden.ids);
      for (int i = 0; i < 60; ++i) {
        plain.push_back(best(scores));
        scores = made->decode(plain.back());
      }
    }
    Session session(*made->engine, 200);
    Speculation speculation(session, 0, true);
    Scores scores = session.sync(golden.ids);
    for (int i = 0; i < 60; ++i) {
      drafted.push_back(best(scores));
      scores = speculation.append(drafted.back(), 59 - i);
    }
    CHECK(drafted == plain);
    CHECK(speculation.drafted() > 10);
    CHECK(session.tokens().size() == golden.ids.size() + 60);
    // And goes on from an earlier place as if nothing had been drafted.
    std::vector<TokenId> text(session.tokens().begin(), session.tokens().begin() + 30);
    text.push_back(5);
    const Scores again = session.sync(text);
    const std::vector<float> found(again.all().begin(), again.all().end());
    made->rewind(0);
    const Scores expected = made->prefill(text);
    CHECK(normwise_error(found, expected.all()) < 1e-9);
  }
}

}  // namespace
}  // namespace qgen::test
