// Any bytes as the config.json of a model whose weights are not there: refused, or planned, with an account of what it
// takes.
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "engine/engine_table.h"
#include "model/declare.h"
#include "model/families/table.h"
#include "model/planner.h"
#include "tests/fuzz/support.h"

namespace {

namespace fs = std::filesystem;

// A folder in memory that goes away with the process.
struct Folder {
  fs::path path;
  Folder() {
    std::string pattern = "/dev/shm/qgen-fuzz-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
};

constexpr int64_t kMostMatrices = 4000;

// About how many a model has.
int64_t matrices(const qgen::Description& model) {
  int64_t out = 0;
  for (const auto& layer : model.layers) {
    for (const qgen::BlockSpec& block : layer) {
      const auto* mixture = std::get_if<qgen::MixtureSpec>(&block.mixer);
      const auto* both = std::get_if<qgen::DoubleFeedForwardSpec>(&block.mixer);
      if (both != nullptr) mixture = &both->mixture;
      out += 4 + (mixture != nullptr ? 3 * mixture->experts : 0);
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  const std::string_view text = qgen::fuzz::text_of(data, size);
  const qgen::fuzz::MemoryLimit limit(size, 1024, 64 << 20);
  qgen::fuzz::expect_error({qgen::ErrorKind::kModel, qgen::ErrorKind::kMemory}, [&] {
    const auto config = qgen::JsonDocument::parse(text, "config.json");
    const qgen::Description model = qgen::describe(config->root());
    // A tensor of the list, its name and its shape take some hundred bytes, whatever the model's size.
    if (matrices(model) > kMostMatrices) return;
    std::ofstream(folder.path / "config.json", std::ios::binary) << text;
    const auto plan = qgen::make_plan(qgen::declare_checkpoint({"fuzz", folder.path, {}, {}}));
    if (plan->parameters() <= 0 || plan->weight_bytes() == 0) std::abort();
    for (const int64_t context : {int64_t{1}, int64_t{1} << 20}) {
      qgen::EngineOptions options;
      options.context = context;
      options.threads = 1;
      if (qgen::account_reference(*plan, options).total() == 0) std::abort();
      if (qgen::account_cpu(*plan, options).total() == 0) std::abort();
    }
  });
  return 0;
}
