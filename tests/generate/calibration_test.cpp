// What calibrate() sees is what transformers' linear layers are given (tools/calibration_oracle.py).
#include "generate/calibration.h"

#include "generate/loader.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

void check(const std::string& name, const std::string& device, double tolerance) {
  CAPTURE(name);
  CAPTURE(device);
  const fs::path folder = source_folder() / "tests/golden" / name;
  const Golden golden = Golden::read(folder);
  ModelOptions options;
  options.model = folder.string();
  options.device = device;
  options.threads = 2;
  options.activations = "f32";
  options.kv = "f32";
  LoadedModel model = load_model(open_plan(options), options, int64_t(golden.ids.size()));
  const Calibration seen = calibrate(model, golden.ids, int64_t(golden.ids.size()), {});
  CHECK(seen.tokens == int64_t(golden.ids.size()));

  const auto expected =
      JsonDocument::parse(read_file(source_folder() / "tests/golden-calibration" / (name + ".json")), "expected");
  const auto found = JsonDocument::parse(seen.statistics.json(), "found");
  CHECK(found->root().members().size() == expected->root().members().size());
  for (const auto& [tensor, entry] : expected->root().members()) {
    CAPTURE(tensor);
    const auto ours = found->root().find(tensor);
    REQUIRE(ours);
    const auto a = ours->at("input_channel_max").elements(), b = entry.at("input_channel_max").elements();
    REQUIRE(a.size() == b.size());
    for (size_t k = 0; k < a.size(); ++k)
      CHECK(a[k].as_number() == doctest::Approx(b[k].as_number()).epsilon(tolerance));
  }
}

}  // namespace

TEST_CASE("calibrate: the inputs of a dense model's matrices and of a mixture's") {
  for (const char* name : {"llama-bf16", "qwen3_moe-bf16"}) {
    check(name, "reference", 1e-5);
    check(name, "cpu", 5e-3);
  }
}

TEST_CASE("calibrate: a window forgets the tokens before it") {
  const fs::path folder = source_folder() / "tests/golden/llama-bf16";
  const Golden golden = Golden::read(folder);
  ModelOptions options;
  options.model = folder.string();
  options.threads = 2;
  const auto seen = [&](std::span<const TokenId> ids, int64_t window) {
    LoadedModel model = load_model(open_plan(options), options, window);
    return calibrate(model, ids, window, {}).statistics.json();
  };
  const std::span<const TokenId> ids = golden.ids;
  CHECK(seen(ids, 10) != seen(ids, 20));
  // The maxima of two windows are those of each, joined.
  auto joined = quantize::InputStatistics();
  LoadedModel model = load_model(open_plan(options), options, 10);
  for (const auto part : {ids.first(10), ids.subspan(10)}) {
    const auto document = JsonDocument::parse(calibrate(model, part, 10, {}).statistics.json(), "part");
    for (const auto& [tensor, entry] : document->root().members()) {
      std::vector<float> maxima;
      for (const Json& value : entry.at("input_channel_max").elements()) maxima.push_back(float(value.as_number()));
      joined.add(std::string(tensor), maxima);
    }
  }
  CHECK(joined.json() == seen(ids, 10));
}

}  // namespace qgen::test
