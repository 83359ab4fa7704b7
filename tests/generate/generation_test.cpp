// Answers of the model that ships, with and without drafts.
#include "generate/generation.h"

#include "tests/support.h"

namespace qgen::test {
namespace {

struct Run {
  Generation generation;
  std::string text;
};
class ShippedModel {
 public:
  explicit ShippedModel(const std::string& device, int64_t context = 512) {
    ModelOptions options;
    options.model = (source_folder() / "models/stories260K-FP8").string();
    options.context = context;
    options.device = device;
    options.threads = 1;
    model_.emplace(options, true);
    model_->load(1);
  }
  Run run(const GenerationSettings& settings, const std::string& prompt = "Once upon a time") const {
    Session session(model_->engine(), model_->loaded().context);
    Run out;
    out.generation = generate(session, *model_, model_->continue_text(prompt), settings,
                              [&](const ReasoningPiece& piece) { out.text += piece.text; });
    return out;
  }

 private:
  std::optional<TextModel> model_;
};

void check_same(const Run& drafted, const Run& plain) {
  const Generation &a = drafted.generation, &b = plain.generation;
  CHECK(drafted.text == plain.text);
  CHECK(a.tokens == b.tokens);
  CHECK(a.stop == b.stop);
  CHECK(a.stop_string == b.stop_string);
  CHECK(a.logits_hash == b.logits_hash);
  REQUIRE(a.logprobs.size() == b.logprobs.size());
  for (size_t i = 0; i < a.logprobs.size(); ++i) CHECK(a.logprobs[i].chosen.logprob == b.logprobs[i].chosen.logprob);
}

TEST_CASE("Answers of the reference engine are the same to the last bit of their scores") {
  const ShippedModel model("reference", 200);
  GenerationSettings settings;
  settings.logprobs = 1;
  int64_t accepted = 0;
  const auto compare = [&] {
    settings.prompt_lookup = 0;
    const Run plain = model.run(settings);
    settings.prompt_lookup = 12;
    const Run drafted = model.run(settings);
    check_same(drafted, plain);
    accepted += drafted.generation.accepted_tokens;
    return drafted.generation.stop;
  };
  CHECK(compare() == "context");
  settings.max_tokens = 120;
  CHECK(compare() == "max-tokens");
  settings.stops = {"day", "play"};
  CHECK(compare() == "stop-string");
  settings.stops.clear();
  settings.max_tokens = 60;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    settings.sampling.temperature.value = seed % 2 == 0 ? 0.3 : 1;
    settings.sampling.seed.value = seed;
    compare();
  }
  // A bias makes the model repeat itself, then end.
  settings.sampling.temperature.value = 0;
  settings.sampling.logit_bias = {{261, 100.0}};
  compare();
  settings.sampling.logit_bias = {{261, 12.0}, {2, 8.0}};
  compare();
  CHECK(accepted > 100);
}

TEST_CASE("The CPU engine writes the same text in fewer calls") {
  const ShippedModel model("cpu");
  GenerationSettings settings;
  settings.max_tokens = 300;
  settings.sampling.logit_bias = {{261, 100.0}};  // far from a tie
  const Run plain = model.run(settings);
  settings.prompt_lookup = 16;
  const Run drafted = model.run(settings);
  CHECK(drafted.text == plain.text);
  CHECK(plain.generation.drafted_tokens == 0);
  CHECK(plain.generation.output_calls == 299);
  CHECK(drafted.generation.output_calls == 299 - drafted.generation.accepted_tokens);
  CHECK(drafted.generation.accepted_tokens > 250);
}

}  // namespace
}  // namespace qgen::test
