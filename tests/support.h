// What tests share: where files are, golden checkpoints, and small files made on the spot.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/token.h"
#include "checkpoint/safetensors.h"
#include "engine/engine_table.h"
#include "engine/sequence.h"
#include "model/open.h"
#include "model/plan.h"
#include "model/planner.h"
#include "quant/weight_scan.h"
#include "tests/skipped.h"

namespace qgen::test {

namespace fs = std::filesystem;

// The repository, or where its goldens and models were carried to (tools/gpu_bundle.sh).
inline fs::path source_folder() {
  const char* value = std::getenv("QGEN_SOURCE");
  return value != nullptr ? value : QGEN_SOURCE_DIR;
}

// The folder of shared test data, or an empty path where there is none.
inline fs::path shared_folder() {
  const char* value = std::getenv("QGEN_SHARED");
  return value != nullptr && fs::is_directory(value) ? fs::path(value) : fs::path();
}

// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "qgen-test-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }
  fs::path write(const std::string& name, const std::string& content) const {
    const fs::path path = path_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

 private:
  fs::path path_;
};

// A safetensors file from its header and data.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

// The message of the Error that `action` throws, with its hint after a newline; "" if it throws none.
template <typename Action>
std::string error_of(Action&& action, ErrorKind* kind = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (kind != nullptr) *kind = error.kind();
    return error.hint().empty() ? error.message() : error.message() + "\n" + error.hint();
  }
  return "";
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

// ||a - b|| / ||b||
inline double normwise_error(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    norm += double(b[i]) * b[i];
  }
  return std::sqrt(difference / norm);
}

// A checkpoint folder with expected/ answers (the layout of tests/golden).
struct Golden {
  fs::path folder;
  std::string name;
  std::vector<TokenId> ids;
  std::vector<float> logits;  // (ids, vocab)
  std::vector<TokenId> greedy;
  std::vector<double> margins;
  double reference_tolerance = 0, cpu_tolerance = 0;
  std::map<std::string, std::vector<float>> weights;  // (rows, cols)

  static Golden read(const fs::path& folder) {
    Golden golden;
    golden.folder = folder;
    golden.name = folder.filename().string();
    const auto document = JsonDocument::parse(read_file(folder / "expected/expected.json"), "expected.json");
    const Json root = document->root();
    for (const Json& id : root.at("ids").elements()) golden.ids.push_back(TokenId(id.as_integer()));
    const bool cached = root.get("greedy_with_kv_cache").has_value();
    for (const Json& id : root.at(cached ? "greedy_with_kv_cache" : "greedy").elements())
      golden.greedy.push_back(TokenId(id.as_integer()));
    // The margins were measured without a cache; they say nothing there.
    if (const auto margins = root.get("greedy_margins"); margins && !cached) {
      for (const Json& margin : margins->elements()) golden.margins.push_back(margin.as_number());
    } else {
      golden.margins.assign(golden.greedy.size(), 1);
    }
    golden.reference_tolerance = root.at("tolerance").at("logits_normwise_reference").as_number();
    golden.cpu_tolerance = root.at("tolerance").at("logits_normwise_cpu").as_number();
    const auto read_all = [](const fs::path& path, auto&& use) {
      const FileMap file(path);
      for (const TensorView& tensor : parse_safetensors(file.bytes(), path.string()).tensors) use(tensor);
    };
    read_all(folder / "expected/logits.safetensors", [&](const TensorView& tensor) {
      if (tensor.name == "logits") golden.logits = tensor_values(tensor);
    });
    if (fs::exists(folder / "expected/weights.safetensors")) {
      read_all(folder / "expected/weights.safetensors",
               [&](const TensorView& tensor) { golden.weights[tensor.name] = tensor_values(tensor); });
    }
    return golden;
  }
};

// This repository's goldens, and the shared fixtures that have answers, where they are; in the order of their paths.
inline std::vector<fs::path> golden_folders() {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(source_folder() / "tests/golden")) {
    if (entry.is_directory()) out.push_back(entry.path());
  }
  const fs::path shared = shared_folder();
  if (shared.empty()) skipped_without_shared("fixtures");
  for (const char* parent : {"fixtures", "fixtures/arch"}) {
    if (shared.empty()) break;
    for (const auto& entry : fs::directory_iterator(shared / parent)) {
      if (fs::exists(entry.path() / "expected")) out.push_back(entry.path());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline std::vector<Golden> goldens() {
  std::vector<Golden> out;
  for (const fs::path& folder : golden_folders()) out.push_back(Golden::read(folder));
  return out;
}

inline void scan_weights(std::span<Weight* const> weights) {
  WeightScan scan(weights);
  scan.run();
  scan.finish();
}

inline std::unique_ptr<Plan> load_plan(const fs::path& model, bool draft_head = false) {
  auto plan = make_plan(open_checkpoint(locate_model(model.string())), false, draft_head);
  std::vector<Weight*> weights;
  for (Weight& weight : plan->weights) weights.push_back(&weight);
  repack_weights(weights);
  scan_weights(weights);
  return plan;
}

// An engine with one open sequence.
struct TestEngine {
  std::unique_ptr<Engine> engine;
  Sequence sequence;

  TestEngine(std::unique_ptr<Engine> made, int64_t context) : engine(std::move(made)), sequence(*engine, context) {}
  Scores prefill(std::span<const TokenId> tokens, const LogitsSink& each = {}) { return sequence.run(tokens, each); }
  Scores decode(TokenId token) { return sequence.run(token); }
  int64_t rewind(int64_t position) { return sequence.rewind(position); }
  int64_t position() const { return sequence.position(); }
};

inline std::unique_ptr<TestEngine> make_engine(const Plan& plan, std::string_view device, EngineOptions options) {
  const EngineRow& row = find_engine(device, options);
  return std::make_unique<TestEngine>(row.make_engine(plan, options), options.context);
}

inline std::unique_ptr<TestEngine> make_engine(const Plan& plan, std::string_view device, int64_t context,
                                               KvType kv = KvType::kF16, int threads = 2) {
  EngineOptions options;
  options.context = context;
  options.kv = kv;
  options.threads = threads;
  return make_engine(plan, device, options);
}

// The scores of every token of a text, by the reference engine.
inline std::vector<float> reference_logits(const Plan& plan, std::span<const TokenId> ids, int64_t context) {
  auto engine = make_engine(plan, "reference", context);
  std::vector<float> out;
  engine->prefill(ids, [&](int64_t, std::span<const float> row) { out.insert(out.end(), row.begin(), row.end()); });
  return out;
}

}  // namespace qgen::test
