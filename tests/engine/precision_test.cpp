// What the precision of activations costs: the KL divergence per token of each choice's distribution from that of a
// forward pass in f32, cache included, on trained models. The limits are promises of --activations.
#include <cmath>
#include <fstream>
#include <sstream>

#include "cpu/isa/targets.h"
#include "tests/support.h"
#include "tokenizer/tokenizer.h"

namespace qgen::test {
namespace {

constexpr std::string_view kStory =
    "Once upon a time, there was a little girl named Lily. She had a small red ball and a big brown dog. One day, "
    "Lily and her dog went to the park to play. The sun was warm and the birds were singing in the trees. Lily threw "
    "the ball very far, and the dog ran after it. But the ball rolled into a hole under an old tree. \"Oh no!\" said "
    "Lily. \"My ball is gone!\" The dog looked into the hole and started to dig. He was so happy to help. Soon he "
    "found "
    "the ball and gave it back to Lily. She hugged him and said, \"Thank you! You are the best dog in the world.\" "
    "Then "
    "they went home together. Her mom made a cake, and they all had a big piece. Lily was happy, and she told her mom "
    "about the hole and the tree. \"We can go back tomorrow,\" her mom said with a smile.";

// English and commands, as people write about programs.
std::string manual() {
  std::ifstream file(source_folder() / "tests" / "engine" / "precision.txt");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

using Rows = std::vector<std::vector<double>>;  // log-probabilities after every token

Rows logprobs(const Plan& plan, std::span<const TokenId> ids, const std::string& target, Activations activations,
              KvType kv) {
  EngineOptions options;
  options.context = int64_t(ids.size());
  options.activations = activations;
  options.kv = kv;
  options.threads = 2;
  Rows rows;
  make_engine(plan, "cpu:" + target, options)->prefill(ids, [&](int64_t, std::span<const float> logits) {
    std::vector<double> row(logits.begin(), logits.end());
    const double highest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double value : row) sum += std::exp(value - highest);
    for (double& value : row) value -= highest + std::log(sum);
    rows.push_back(std::move(row));
  });
  return rows;
}

double divergence(const Rows& exact, const Rows& other) {
  double sum = 0;
  for (size_t t = 0; t < exact.size(); ++t) {
    for (size_t i = 0; i < exact[t].size(); ++i) sum += std::exp(exact[t][i]) * (exact[t][i] - other[t][i]);
  }
  return sum / double(exact.size());
}

TEST_CASE("the precision of activations keeps its promises on trained models") {
  struct Model {
    const char* folder;
    std::string text;
    size_t tokens;
  };
  const Model models[] = {{"stories260K-FP8", std::string(kStory), 400}, {"stories260K-w8a8", std::string(kStory), 400},
                          {"SmolLM2-135M-Instruct-FP8", manual(), 600},  {"SmolLM2-135M-Instruct-INT8", manual(), 600},
                          {"SmolLM2-135M-Instruct-BF16", manual(), 600}, {"SmolLM2-135M-Instruct-Q8_0", manual(), 600}};
  for (const Model& model : models) {
    const fs::path folder = source_folder() / "models" / model.folder;
    if (!fs::exists(folder)) {
      skipped(model.folder, "not in models/, make smollm2 brings it");
      continue;
    }
    const std::unique_ptr<Plan> plan = load_plan(folder);
    std::vector<TokenId> ids = Tokenizer::load(plan->checkpoint.files())->encode(model.text).ids;
    ids.resize(std::min(ids.size(), model.tokens));
    REQUIRE(ids.size() > 200);
    for (const cpu::IsaTarget* target : cpu::targets()) {
      // The slow ones on the small models only.
      if (!target->supported() || (plan->weight_bytes() > (16 << 20) && target != &cpu::find_target(""))) continue;
      INFO(std::string(model.folder), " ", std::string(target->name));
      const Rows exact = logprobs(*plan, ids, target->name, Activations::kF32, KvType::kF32);
      const double usual = divergence(exact, logprobs(*plan, ids, target->name, Activations::k16Bit, KvType::kF16));
      const double fast = divergence(exact, logprobs(*plan, ids, target->name, Activations::k8Bit, KvType::kF16));
      MESSAGE(std::string(model.folder), ", ", std::string(target->name), ": ", usual, " with 16 bits, ", fast,
              " with 8");
      CHECK(usual < 1e-4);
      CHECK(fast < 3e-3);
    }
  }
}

}  // namespace
}  // namespace qgen::test
