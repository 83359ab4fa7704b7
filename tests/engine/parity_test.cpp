// Whole models against the numbers of an independent implementation: weights bit for bit, logits and greedy
// tokens within each golden's tolerance, for every engine and instruction set this machine has.
#include <algorithm>

#include "cpu/isa/targets.h"
#include "model/names.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

std::vector<std::string> cpu_devices() {
  std::vector<std::string> devices;
  for (const cpu::IsaTarget* target : cpu::targets()) {
    if (target->supported()) devices.push_back(std::string("cpu:") + target->name);
  }
  return devices;
}

// The scores of the whole prompt, one call.
std::vector<float> logits_of(TestEngine& engine, std::span<const TokenId> ids) {
  std::vector<float> out;
  engine.prefill(ids, [&](int64_t, std::span<const float> row) { out.insert(out.end(), row.begin(), row.end()); });
  return out;
}

TokenId best(std::span<const float> logits) {
  return TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Greedy tokens after the prompt, up to the first whose margin could be bridged by two scores' errors.
void check_greedy(TestEngine& engine, const Golden& golden, double score_error) {
  std::span<const float> logits = engine.prefill(golden.ids);
  size_t compared = 0;
  for (; compared < golden.greedy.size() && golden.margins[compared] > 2 * score_error; ++compared) {
    INFO("greedy token ", compared);
    REQUIRE(best(logits) == golden.greedy[compared]);
    logits = engine.decode(golden.greedy[compared]);
  }
  CHECK(compared > 0);
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (size_t i = 0; i < b.size(); ++i) most = std::max(most, std::abs(double(a[i]) - b[i]));
  return most;
}

// GGUF files and Mistral's own have names of their own, and for some families q and k in an order of their own: rows of
// a head that rotate together are neighbours.
std::string hugging_face_name(const std::string& name, const Plan& plan) {
  const Names ours = Names::hugging_face();
  for (const Names& theirs : {Names::gguf(), Names::mistral()}) {
    for (int64_t layer = 0; layer < plan.model.layers; ++layer) {
      for (size_t role = 0; role < size_t(Role::kCount); ++role) {
        if (theirs.of(Role(role), layer) == name) return ours.of(Role(role), layer);
      }
    }
  }
  return name;
}
int64_t hugging_face_row(const Weight& weight, int64_t n, const Plan& plan) {
  const bool rotated = weight.name.ends_with("attn_q") || weight.name.ends_with("attn_k") ||
                       weight.name.ends_with("attention.wq") || weight.name.ends_with("attention.wk");
  if (!rotated || plan.ropes[0].pairs != Rope::Pairs::kAdjacent) return n;
  const int64_t dim = plan.ropes[0].dim, i = n % dim;
  return n - i + i % 2 * (dim / 2) + i / 2;
}

TEST_CASE("dequantized weights equal the goldens bit for bit") {
  for (const Golden& golden : goldens()) {
    INFO(golden.name);
    const auto plan = load_plan(golden.folder);
    size_t found = 0;
    // Parts of a matrix follow each other under its name.
    for (auto first = plan->weights.begin(); first != plan->weights.end();) {
      const auto end =
          std::find_if(first, plan->weights.end(), [&](const Weight& weight) { return weight.name != first->name; });
      const auto expected = golden.weights.find(hugging_face_name(first->name, *plan) + ".weight");
      if (expected == golden.weights.end()) {
        first = end;
        continue;
      }
      ++found;
      INFO(first->name);
      const float* wanted = expected->second.data();
      int64_t elements = 0, different = 0;
      for (; first != end; ++first) {
        const Weight& weight = *first;
        elements += weight.rows * weight.cols;
        REQUIRE(int64_t(expected->second.size()) >= elements);
        std::vector<double> row(size_t(weight.cols));
        for (int64_t n = 0; n < weight.rows; ++n) {
          dequantize_row(weight, n, row);
          const float* const wanted_row = wanted + hugging_face_row(weight, n, *plan) * weight.cols;
          for (int64_t k = 0; k < weight.cols; ++k) different += float(row[size_t(k)]) != wanted_row[k];
        }
        wanted += weight.rows * weight.cols;
      }
      CHECK(int64_t(expected->second.size()) == elements);
      CHECK(different == 0);
    }
    CHECK(found == golden.weights.size());
  }
}

TEST_CASE("the reference engine reproduces the goldens' logits and greedy tokens") {
  for (const Golden& golden : goldens()) {
    INFO(golden.name);
    const auto plan = load_plan(golden.folder);
    const int64_t context = int64_t(golden.ids.size() + golden.greedy.size());
    auto engine = make_engine(*plan, "reference", context);
    CHECK(normwise_error(logits_of(*engine, golden.ids), golden.logits) < golden.reference_tolerance);
    engine->rewind(0);
    check_greedy(*engine, golden, 1e-5);
  }
}

TEST_CASE("the CPU engine reproduces the goldens with every instruction set") {
  for (const std::string& device : cpu_devices()) {
    double worst = 0;
    std::string worst_name;
    for (const Golden& golden : goldens()) {
      INFO(device, " ", golden.name);
      const auto plan = load_plan(golden.folder);
      const int64_t context = int64_t(golden.ids.size() + golden.greedy.size());
      auto engine = make_engine(*plan, device, context);
      const std::vector<float> logits = logits_of(*engine, golden.ids);
      const double error = normwise_error(logits, golden.logits);
      CHECK(error < golden.cpu_tolerance);
      if (!(error <= worst)) {
        worst = error;
        worst_name = golden.name;
      }
      engine->rewind(0);
      check_greedy(*engine, golden, largest_difference(logits, golden.logits));
    }
    MESSAGE(device, ": largest normwise error ", worst, " (", worst_name, ")");
  }
}

// Token by token (the decoding kernels) instead of the whole prompt at once.
TEST_CASE("decoding gives what prefill gives") {
  for (const std::string& device : cpu_devices()) {
    double worst = 0;
    for (const Golden& golden : goldens()) {
      // The whole prompt's length sets a dynamic rotation; token by token it cannot be known.
      if (contains(golden.name, "dynamic")) continue;
      INFO(device, " ", golden.name);
      const auto plan = load_plan(golden.folder);
      auto engine = make_engine(*plan, device, int64_t(golden.ids.size()));
      std::vector<float> logits;
      for (const TokenId id : golden.ids) {
        const std::span<const float> row = engine->decode(id);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      const double error = normwise_error(logits, golden.logits);
      CHECK(error < golden.cpu_tolerance);
      worst = std::max(worst, error);
    }
    MESSAGE(device, ": largest normwise error when decoding ", worst);
  }
}

// A really trained model against the program it came from (llama2.c, run.c in float32).
TEST_CASE("stories260K writes what llama2.c writes") {
  const fs::path shared = shared_folder();
  if (shared.empty()) {
    skipped_without_shared("stories260K and its reference.json");
    return;
  }
  const fs::path folder = shared / "data/models/stories260K";
  const auto document = JsonDocument::parse(read_file(folder / "ref/reference.json"), "reference.json");
  std::vector<TokenId> text;  // the prompt and what follows it
  for (const Json& id : document->root().at("greedy_ids").elements()) text.push_back(TokenId(id.as_integer()));
  const size_t prompt = document->root().at("prompt_ids").elements().size();
  const auto positions = document->root().at("logits_positions").elements();
  const auto rows = document->root().at("logits").elements();

  struct Case {
    fs::path model;
    std::string device;
    double tolerance;
  };
  std::vector<Case> cases = {{folder / "hf", "reference", 1e-5},
                             {source_folder() / "models/stories260K-FP8", "cpu", 0.15},
                             {source_folder() / "models/stories260K-w8a8", "cpu", 0.05}};
  for (const std::string& device : cpu_devices()) cases.push_back({folder / "hf", device, 5e-3});
  for (const auto& [model, device, tolerance] : cases) {
    INFO(model.string(), " ", device);
    const auto plan = load_plan(model);
    auto engine = make_engine(*plan, device, int64_t(text.size()));
    std::vector<std::vector<float>> logits;
    engine->prefill(text, [&](int64_t, std::span<const float> row) { logits.emplace_back(row.begin(), row.end()); });
    for (size_t i = 0; i < positions.size(); ++i) {
      std::vector<float> expected;
      for (const Json& value : rows[i].elements()) expected.push_back(float(value.as_number()));
      CHECK(normwise_error(logits[size_t(positions[i].as_integer())], expected) < tolerance);
    }
    if (model != folder / "hf") continue;
    size_t different = 0;
    for (size_t t = prompt; t < text.size(); ++t) different += best(logits[t - 1]) != text[t];
    CHECK(different == 0);
  }
}

}  // namespace
}  // namespace qgen::test
