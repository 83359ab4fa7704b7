// What qgen supports, from its tables, and what lies in the Hugging Face cache.
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "generate/loader.h"
#include "model/families/table.h"
#include "model/open.h"

namespace qgen::cli {
namespace {

struct ModelsOptions {
  bool json = false;
};

struct Cached {
  std::string name;
  std::string folder;
  std::string family, method;  // empty if it cannot be run
  std::string problem;
  size_t bytes = 0;  // of weights
};

// Why a model cannot be run, without the folder that is in the table already.
std::string without_folder(std::string problem, const std::string& folder) {
  if (const size_t at = problem.find(folder); !folder.empty() && at != std::string::npos)
    problem.erase(at, folder.size() + (problem[at + folder.size()] == '/'));
  return problem;
}

std::vector<Cached> look_at_cache() {
  std::vector<Cached> out;
  for (const CachedModel& model : cached_models()) {
    Cached& entry = out.emplace_back();
    entry.name = model.location.name;
    entry.folder = model.location.folder.string();
    entry.problem = model.problem;
    if (!entry.problem.empty()) continue;
    try {
      const auto plan = make_plan(open_checkpoint(model.location));
      entry.family = plan->model.family;
      entry.method = plan->method();
      for (const TensorView& tensor : plan->checkpoint.tensors()) entry.bytes += tensor.bytes.size();
      if (!Tokenizer::exists(plan->checkpoint.files())) entry.problem = "its tokenizer is missing";
    } catch (const Error& error) {
      entry.problem = without_folder(error.message(), entry.folder);
    } catch (const std::filesystem::filesystem_error& error) {
      entry.problem = error.code().message();
    }
  }
  return out;
}

std::string supported_text() {
  std::string out = "Families\n";
  std::vector<std::vector<std::string>> rows;
  for (const Family& family : families()) rows.push_back({std::string(family.name), std::string(family.examples)});
  out += format_table(rows) + "\nMethods\n";
  rows.clear();
  for (const Format& format : formats()) rows.push_back({std::string(format.name), std::string(format.summary)});
  out += format_table(rows) + "\nEngines\n";
  rows.clear();
  for (const EngineRow& engine : engines()) {
    rows.push_back({std::string(engine.name), engine.available() ? "here" : "not here", std::string(engine.summary)});
  }
  return out + format_table(rows);
}

std::string supported_json() {
  std::vector<std::string> family_list, format_list, engine_list;
  for (const Family& family : families()) {
    family_list.push_back(fmt::format(R"({{"name":{},"architecture":{},"examples":{}}})", json_quote(family.name),
                                      json_quote(family.architecture), json_quote(family.examples)));
  }
  for (const Format& format : formats()) {
    format_list.push_back(
        fmt::format(R"({{"name":{},"summary":{}}})", json_quote(format.name), json_quote(format.summary)));
  }
  for (const EngineRow& engine : engines()) {
    engine_list.push_back(fmt::format(R"({{"name":{},"summary":{},"available":{}}})", json_quote(engine.name),
                                      json_quote(engine.summary), engine.available()));
  }
  return fmt::format(R"("families":{},"methods":{},"engines":{})", json_list(family_list), json_list(format_list),
                     json_list(engine_list));
}

int models(const ModelsOptions& options) {
  const std::vector<Cached> cache = look_at_cache();
  if (options.json) {
    std::vector<std::string> list;
    for (const Cached& entry : cache) {
      const auto text = [](const std::string& value) { return value.empty() ? "null" : json_quote(value); };
      list.push_back(fmt::format(R"({{"name":{},"folder":{},"family":{},"method":{},"bytes":{},"problem":{}}})",
                                 json_quote(entry.name), json_quote(entry.folder), text(entry.family),
                                 text(entry.method), entry.bytes, text(entry.problem)));
    }
    write_stdout(fmt::format("{{\"schema\":1,{},\"cache\":{{\"folder\":{},\"models\":{}}}}}\n", supported_json(),
                             json_quote(cache_root().string()), json_list(list)));
    return 0;
  }
  std::string out = supported_text() + fmt::format("\nHugging Face cache ({})\n", cache_root().string());
  std::vector<std::vector<std::string>> rows;
  for (const Cached& entry : cache) {
    if (entry.problem.empty()) {
      rows.push_back(
          {entry.name, format_bytes(double(entry.bytes)), fmt::format("{} · {}", entry.family, entry.method)});
    } else {
      rows.push_back({entry.name, "-", fmt::format("cannot be run: {}", entry.problem)});
    }
  }
  out += rows.empty() ? "  no models; `hf download org/name` puts one there\n" : format_table(rows, {1});
  print_stdout(out);
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<ModelsOptions>();
  return {{{"--json", &o->json, "", "print one JSON object"}}, [o] { return models(*o); }};
}

constexpr Example kExamples[] = {{"qgen models", "what runs here, and what is in the cache"},
                                 {"qgen models --json | jq -r '.cache.models[].name'"}};

}  // namespace

const Command kModelsCommand = {
    "models", "families, methods and engines supported; checkpoints in the Hugging Face cache", kExamples, bind};

}  // namespace qgen::cli
