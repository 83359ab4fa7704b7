// Several answers at a time: each is the same bytes whatever runs beside it, a shared beginning is computed once, and
// an error ends its own line alone.
#include "generate/parallel.h"

#include "cpu/isa/targets.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

struct Job {
  std::string prompt;
  int64_t max_tokens = 20;
  uint64_t seed = 0;
  double temperature = 0;
  std::vector<std::pair<TokenId, double>> logit_bias = {};
  enum class Throws { kNothing, kSink, kDone } throws = Throws::kNothing;  // std::bad_alloc
  std::vector<TokenId> ids = {};                                           // in place of the prompt
};

struct Outcome {
  std::string text, stop;
  uint32_t hash = 0;
  int64_t computed = 0, ends = 0;
  bool operator==(const Outcome& other) const { return text == other.text && stop == other.stop && hash == other.hash; }
};

class Batch {
 public:
  Batch(const std::string& model, const std::string& device, int64_t lines, int64_t cache_tokens = 0) {
    options_.model = (source_folder() / "models" / model).string();
    options_.context = 512;
    options_.device = device;
    options_.threads = 2;
    options_.lines = lines;
    options_.cache_tokens = cache_tokens;
    model_.emplace(options_, true);
    model_->load(1);
  }
  std::vector<Outcome> run(const std::vector<Job>& jobs) {
    std::vector<Outcome> out(jobs.size());
    size_t next = 0;
    ParallelGenerator generator(*model_);
    generator.run(
        [&](bool) {
          NextJob result;
          if (next == jobs.size()) return result;
          const size_t i = next++;
          result.state = NextJob::State::kJob;
          result.job.input = model_->continue_text(jobs[i].prompt);
          if (!jobs[i].ids.empty()) result.job.input.ids = jobs[i].ids;
          result.job.settings.max_tokens = jobs[i].max_tokens;
          result.job.settings.sampling.temperature.value = jobs[i].temperature;
          result.job.settings.sampling.seed.value = jobs[i].seed;
          result.job.settings.sampling.logit_bias = jobs[i].logit_bias;
          result.job.sink = [&, i](const ReasoningPiece& piece) {
            out[i].text += piece.text;
            if (jobs[i].throws == Job::Throws::kSink && out[i].text.size() > 10) throw std::bad_alloc();
          };
          result.job.done = [&, i](Generation g) {
            if (jobs[i].throws == Job::Throws::kDone) throw std::bad_alloc();
            out[i].stop = g.stop;
            out[i].hash = g.logits_hash;
            out[i].computed = g.computed_tokens;
            out[i].ends++;
            finished.push_back(i);
          };
          result.job.failed = [&out, i](const Error& error) {
            out[i].stop = error.message();
            out[i].ends++;
          };
          return result;
        },
        {});
    return out;
  }
  const TextModel& model() const { return *model_; }
  std::vector<size_t> finished;  // in the order in which they were

 private:
  ModelOptions options_;
  std::optional<TextModel> model_;
};

std::vector<Job> mixed_jobs() {
  std::vector<Job> jobs;
  const char* const prompts[] = {"Once upon a time", "The dog was", "Lily and Tom went to the park. They saw",
                                 "One day, a"};
  for (int i = 0; i < 12; ++i)
    jobs.push_back(
        {prompts[i % 4] + std::string(size_t(i / 4), '!'), 5 + i * 7 % 40, uint64_t(i), i % 3 == 0 ? 0.0 : 0.8});
  return jobs;
}

TEST_CASE("a line's bytes depend on the line alone, whatever runs beside it") {
  for (const std::string model : {"stories260K-FP8", "stories260K-w8a8"}) {
    for (const cpu::IsaTarget* target : cpu::targets()) {
      if (!target->supported()) continue;
      INFO(model, " ", std::string(target->name));
      const std::string device = std::string("cpu:") + target->name;
      const std::vector<Job> jobs = mixed_jobs();
      const std::vector<Outcome> expected = Batch(model, device, 2).run(jobs);
      for (const Outcome& outcome : expected) CHECK(!outcome.text.empty());
      for (const int64_t lines : {3, 16}) CHECK(Batch(model, device, lines).run(jobs) == expected);
      // Alone, and in another order.
      for (size_t i = 0; i < jobs.size(); ++i) CHECK(Batch(model, device, 2).run({jobs[i]})[0] == expected[i]);
      std::vector<Job> reversed(jobs.rbegin(), jobs.rend());
      std::vector<Outcome> outcomes = Batch(model, device, 5).run(reversed);
      std::reverse(outcomes.begin(), outcomes.end());
      CHECK(outcomes == expected);
    }
  }
}

TEST_CASE("a beginning that lines share is computed once, and changes nothing") {
  std::string beginning =
      "Once upon a time there was a little girl named Lily. She loved to play with her dog in the park. ";
  for (int i = 0; i < 3; ++i) beginning += beginning;  // several pages
  std::vector<Job> jobs;
  for (const char* end : {"One day", "The dog", "Her mom", "They", "A big", "It was"})
    jobs.push_back({beginning + end, 12});
  Batch alone("stories260K-w8a8", "cpu", 2);
  std::vector<Outcome> expected;
  int64_t all = 0;
  for (const Job& job : jobs) {
    expected.push_back(alone.run({job})[0]);
    all += expected.back().computed;
  }
  for (const int64_t lines : {2, 4, 8}) {
    INFO(lines);
    Batch together("stories260K-w8a8", "cpu", lines);
    const std::vector<Outcome> outcomes = together.run(jobs);
    CHECK(outcomes == expected);
    int64_t computed = 0;
    for (const Outcome& outcome : outcomes) computed += outcome.computed;
    CHECK(computed < all / 6 + int64_t(jobs.size()) * 8);
  }
}

TEST_CASE("lines wait for pages, and none is thrown out") {
  const std::vector<Job> jobs = mixed_jobs();
  const std::vector<Outcome> expected = Batch("stories260K-FP8", "cpu", 4).run(jobs);
  // Room for two lines at most, and for one of a whole context.
  CHECK(Batch("stories260K-FP8", "cpu", 8, 512).run(jobs) == expected);
  // Long answers end before short ones that came later only where those fit beside them.
  Batch batch("stories260K-FP8", "cpu", 4);
  batch.run({{"Once upon a time", 60}, {"The dog", 3}, {"A cat", 3}});
  CHECK(batch.finished == std::vector<size_t>{1, 2, 0});
}

// The story model, whose first layer makes values beyond the range of F16 from the embedding of one token alone.
void write_overflowing_model(const fs::path& folder, TokenId token) {
  fs::copy(source_folder() / "models/stories260K-FP8", folder, fs::copy_options::recursive);
  std::string bytes = read_file(folder / "model.safetensors");
  const auto tensors = parse_safetensors(std::as_bytes(std::span(bytes)), "model").tensors;
  const auto bf16_of = [&](std::string_view name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
    REQUIRE(found != tensors.end());
    REQUIRE(found->dtype == Dtype::kBf16);
    const auto offset = reinterpret_cast<const char*>(found->bytes.data()) - bytes.data();
    return std::span(reinterpret_cast<uint16_t*>(bytes.data() + offset), found->bytes.size() / 2);
  };
  const auto embedding = bf16_of("model.embed_tokens.weight");
  for (size_t row = 0; row < embedding.size() / 64; ++row) embedding[row * 64] = TokenId(row) == token ? 0x3F80 : 0;
  bf16_of("model.layers.0.input_layernorm.weight")[0] = 0x4E80;  // 2^30
  std::ofstream(folder / "model.safetensors", std::ios::binary) << bytes;
}

TEST_CASE("keys or values beyond the range of the cache end their own line alone") {
  const TemporaryFolder folder;
  TokenId token = 0;
  {
    const Batch plain("stories260K-FP8", "cpu", 2);
    token = plain.model().continue_text("Z").ids.back();
    for (const Job& job : mixed_jobs()) {
      const std::vector<TokenId> ids = plain.model().continue_text(job.prompt).ids;
      REQUIRE(std::find(ids.begin(), ids.end(), token) == ids.end());
    }
  }
  const fs::path model = folder.path() / "model";
  write_overflowing_model(model, token);
  for (const std::string device : {"cpu", "cpu:portable"}) {
    std::vector<Job> jobs = mixed_jobs();
    for (Job& job : jobs) job.logit_bias = {{token, -1000}};
    const std::vector<Outcome> expected = Batch(model, device, 2).run(jobs);
    for (const int64_t lines : {2, 5, 16}) {
      INFO(device, " ", lines);
      // In a prompt at the beginning and at the end of a batch, and in an answer.
      std::vector<Job> mixed = jobs;
      mixed.insert(mixed.begin(), {"Z Once upon a time"});
      mixed.insert(mixed.begin() + 4, {"The dog was", 9, 0, 0, {{token, 1000}}});
      mixed.push_back({"Once upon a time there was Z"});
      std::vector<Outcome> outcomes = Batch(model, device, lines).run(mixed);
      for (const Outcome& outcome : outcomes) CHECK(outcome.ends == 1);
      for (const size_t bad : {size_t{0}, size_t{4}, mixed.size() - 1})
        CHECK(outcomes[bad].stop == "keys or values of layer 0 are beyond the range of the f16 cache");
      outcomes.erase(outcomes.begin() + 4);
      CHECK(std::equal(expected.begin(), expected.end(), outcomes.begin() + 1));
    }
  }
}

// A golden with the tokenizer of the story model: its ids are those of that model's first tokens.
fs::path golden_with_tokenizer(const TemporaryFolder& folder, const std::string& golden) {
  const fs::path model = folder.path() / golden;
  fs::create_directory(model);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(source_folder() / "tests/golden" / golden / file, model / file);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(source_folder() / "models/stories260K-FP8" / file, model / file);
  return model;
}

TEST_CASE("a beginning that lines share is computed once in recurrent models, too, and changes nothing") {
  const TemporaryFolder folder;
  for (const std::string golden : {"qwen3_next-bf16", "granite_hybrid-fp8", "lfm2-fp8"}) {
    const fs::path model = golden_with_tokenizer(folder, golden);
    // Two groups of lines, each with 40 tokens in common.
    std::vector<Job> jobs;
    for (int i = 0; i < 8; ++i) {
      Job job;
      for (int t = 0; t < 40; ++t) job.ids.push_back(TokenId((5 + t * t + (i < 5 ? 0 : 17)) % 48));
      for (int t = 0; t < 3; ++t) job.ids.push_back(TokenId((7 * i + t + 1) % 48));
      job.max_tokens = 6;
      jobs.push_back(job);
    }
    std::vector<Outcome> expected;
    Batch alone(model, "cpu", 2);
    for (const Job& job : jobs) expected.push_back(alone.run({job})[0]);
    for (const int64_t lines : {2, 3, 8}) {
      INFO(golden, " ", lines);
      const std::vector<Outcome> outcomes = Batch(model, "cpu", lines).run(jobs);
      CHECK(outcomes == expected);
      int64_t computed = 0;
      for (const Outcome& outcome : outcomes) computed += outcome.computed;
      CHECK(computed == 2 * 40 + 8 * 3);
    }
  }
}

TEST_CASE("lines do not share what a dynamic rotation has turned") {
  const TemporaryFolder folder;
  const fs::path model = golden_with_tokenizer(folder, "llama-rope-dynamic");
  std::vector<Job> jobs;
  for (const int length : {60, 20, 30, 70}) {
    Job job;
    for (int t = 0; t < length; ++t) job.ids.push_back(TokenId((3 + t * 5) % 48));
    job.max_tokens = 8;
    jobs.push_back(job);
  }
  std::vector<Outcome> expected;
  Batch alone(model, "cpu", 2);
  for (const Job& job : jobs) expected.push_back(alone.run({job})[0]);
  for (const int64_t lines : {2, 4}) CHECK(Batch(model, "cpu", lines).run(jobs) == expected);
}

TEST_CASE("a line whose text does not fit in memory ends alone") {
  const std::vector<Job> jobs = mixed_jobs();
  const std::vector<Outcome> expected = Batch("stories260K-FP8", "cpu", 2).run(jobs);
  std::vector<Job> poor = jobs;
  poor[1].throws = Job::Throws::kSink;
  poor[6].throws = Job::Throws::kDone;
  for (const int64_t lines : {2, 5}) {
    std::vector<Outcome> outcomes = Batch("stories260K-FP8", "cpu", lines).run(poor);
    for (const size_t i : {size_t{1}, size_t{6}}) {
      CHECK(contains(outcomes[i].stop, "the answer: "));
      CHECK(outcomes[i].ends == 1);
      outcomes[i] = expected[i];
    }
    CHECK(outcomes == expected);
  }
}

TEST_CASE("the reference engine answers several lines as one") {
  std::vector<Job> jobs = mixed_jobs();
  jobs.resize(4);
  const std::vector<Outcome> expected = Batch("stories260K-FP8", "reference", 2).run(jobs);
  CHECK(Batch("stories260K-FP8", "reference", 4).run(jobs) == expected);
}

}  // namespace
}  // namespace qgen::test
