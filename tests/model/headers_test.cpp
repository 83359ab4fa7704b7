// Plans come from headers alone: a file that is cut behind its header gives the plan of the whole one.
#include <cstring>

#include <fmt/format.h>

#include "checkpoint/gguf.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

// Where the data of a weight file begins.
size_t header_end(const std::string& bytes, const std::string& name) {
  if (!name.ends_with(".gguf")) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    return size_t(length) + sizeof length;
  }
  const Gguf file = Gguf::parse(std::as_bytes(std::span(bytes)), name);
  const std::byte* first = std::as_bytes(std::span(bytes)).data() + bytes.size();
  for (const TensorView& tensor : file.tensors()) first = std::min(first, tensor.bytes.data());
  return size_t(first - std::as_bytes(std::span(bytes)).data());
}

std::string in_words(const Plan& plan) {
  std::string out =
      fmt::format("{} {} {} {}", plan.model.family, plan.method(), plan.parameters(), plan.weight_bytes());
  for (const Weight& weight : plan.weights)
    out += fmt::format("\n{} {} {} {}", weight.name, weight.rows, weight.cols, method_name(weight));
  for (const Vector& vector : plan.vectors) out += fmt::format("\n{} {}", vector.name, vector.size);
  for (const Step& step : plan.steps) out += "\n" + step_name(step);
  for (const EngineRow& engine : engines()) {
    if (!engine.in_ram()) continue;
    EngineOptions options{.context = 64, .threads = 1};
    const MemoryUse use = engine.account(plan, options);
    out += fmt::format("\n{} {} {} {}", engine.name, use.weights, use.kv, use.work);
  }
  return out;
}

TEST_CASE("plans, accounts and shapes come from headers alone") {
  int compared = 0;
  std::vector<fs::path> folders = {source_folder() / "models/stories260K-FP8",
                                   source_folder() / "models/stories260K-w8a8"};
  for (const fs::path& parent : {source_folder() / "tests/golden", shared_folder() / "fixtures"}) {
    if (!fs::is_directory(parent)) {
      MESSAGE(parent.string(), " is not there: skipped");
      continue;
    }
    for (const auto& entry : fs::directory_iterator(parent)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
  }
  for (const fs::path& folder : folders) {
    INFO(folder.string());
    std::unique_ptr<Plan> whole;
    if (!error_of([&] { whole = make_plan(open_checkpoint(locate_model(folder.string()))); }).empty()) continue;
    TemporaryFolder cut;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string name = entry.path().filename().string();
      const std::string bytes = read_file(entry.path());
      const bool weights = name.ends_with(".safetensors") || name.ends_with(".gguf");
      cut.write(name, weights ? bytes.substr(0, header_end(bytes, name)) : bytes);
    }
    const ModelLocation location = locate_model(cut.path().string());
    CHECK(!error_of([&] { make_plan(open_checkpoint(location)); }).empty());
    const auto plan = make_plan(open_checkpoint(location, true));
    CHECK(!plan->checkpoint.incomplete().empty());
    CHECK(in_words(*plan) == in_words(*whole));
    ++compared;
  }
  CHECK(compared > 60);
}

}  // namespace
}  // namespace qgen::test
