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

// The weight files of `source`, a checkpoint's folder or file, cut behind their headers, with what lies beside them.
fs::path write_cut(const fs::path& source, const TemporaryFolder& cut) {
  const auto write = [&](const fs::path& path) {
    const std::string name = path.filename().string(), bytes = read_file(path);
    const bool weights = name.ends_with(".safetensors") || name.ends_with(".gguf");
    return cut.write(name, weights ? bytes.substr(0, header_end(bytes, name)) : bytes);
  };
  if (!fs::is_directory(source)) return write(source);
  for (const auto& entry : fs::directory_iterator(source)) {
    if (entry.is_regular_file()) write(entry.path());
  }
  return cut.path();
}

TEST_CASE("plans, accounts and shapes come from headers alone") {
  std::vector<fs::path> checkpoints = golden_folders();
  checkpoints.push_back(source_folder() / "models/stories260K-FP8");
  checkpoints.push_back(source_folder() / "models/stories260K-w8a8");
  for (const auto& entry : fs::directory_iterator(source_folder() / "tests/golden-gguf")) {
    if (entry.path().extension() == ".gguf") checkpoints.push_back(entry.path());
  }
  for (const fs::path& checkpoint : checkpoints) {
    INFO(checkpoint.string());
    std::unique_ptr<Plan> whole;
    REQUIRE(error_of([&] { whole = make_plan(open_checkpoint(locate_model(checkpoint.string()))); }) == "");
    const TemporaryFolder cut;
    const ModelLocation location = locate_model(write_cut(checkpoint, cut).string());
    CHECK(!error_of([&] { make_plan(open_checkpoint(location)); }).empty());
    const auto plan = make_plan(open_checkpoint(location, true));
    CHECK(!plan->checkpoint.incomplete().empty());
    CHECK(in_words(*plan) == in_words(*whole));
  }
}

}  // namespace
}  // namespace qgen::test
