// `qgen models`: the tables of families, methods and engines, and the checkpoints in the Hugging Face cache.
// With --markdown the tables alone, as docs/families.md and docs/formats.md; a test holds those files to what is
// printed.
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "generate/loader.h"
#include "model/families/table.h"
#include "model/open.h"
#include "model/planner.h"
#include "quant/formats.h"

namespace qgen::cli {
namespace {

struct ModelsOptions {
  bool json = false;
  std::string markdown;  // which document to print; empty: none
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
  if (problem.starts_with(": ")) problem.erase(0, 2);
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

std::string markdown_row(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string markdown_header(const std::vector<std::string>& names) {
  return markdown_row(names) + markdown_row(std::vector<std::string>(names.size(), "---"));
}

std::string code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

std::string families_markdown() {
  std::string out =
      "# Families\n\n"
      "A family is an architecture. It is chosen by `model_type` in config.json, by the class in `architectures` "
      "where\n"
      "that key is missing, and by `general.architecture` in GGUF files. This file is what `qgen models\n"
      "--markdown=families` prints.\n\n" +
      markdown_header({"`model_type`", "class in `architectures`", "GGUF architecture", "models"});
  for (const Family& family : families()) {
    out += markdown_row({code(family.name), code(family.architecture),
                         family.gguf.empty() ? "none of its own" : code(family.gguf), std::string(family.examples)});
  }
  return out +
         "\nEvery family runs with every method of [formats.md](formats.md), on every engine. Multimodal checkpoints "
         "with a\n"
         "`text_config` of one of these families run as text models; other tensors are left alone. A model that is "
         "not\n"
         "in the table is refused by name. GGUF files of Mistral models say `llama`; with a sliding window they are "
         "read\n"
         "as `mistral`. Those of OLMo 3 say `olmo2`.\n";
}

std::string formats_markdown() {
  std::string out =
      "# Formats\n\n"
      "A method is a layout of quantized tensors. It is recognized by the tensors that are there for each layer;\n"
      "config.json only explains them. This file is what `qgen models --markdown=formats` prints.\n\n" +
      markdown_header({"method", "weights", "tensors of a layer"});
  for (const Format& format : formats()) {
    out += markdown_row({code(format.name), std::string(format.summary), std::string(format.layout)});
  }
  out +=
      "\nA weight is `W = (code - zero_point) * scale + minimum`, where zero points and minimums may be missing. Codes "
      "and "
      "scales\nstay in the mapped file, in their own types, and are never rounded. What cannot be used in place is "
      "copied "
      "when the model\nis loaded, on all cores: columns in activation order, transposed codes and words, FNUZ codes, "
      "unsigned codes and "
      "those of "
      "fewer than 8 bits,\nwhich are held as INT8. `plan` and `inspect` then say \"4 bits, held as 8\" and count the "
      "bytes "
      "that are held. Scales of two levels\n(GGUF's super-blocks, NVFP4) stay so: 1.03 to 1.14 bytes a weight.\n\n"
      "Every tensor that looks like a scale must be used, or be known to have no effect (scales of static activations\n"
      "and of the cache); otherwise loading fails and names it. So it does where the zero points or the order of "
      "columns that\nconfig.json declares are missing (of compressed-tensors, in all modules), unless "
      "`--trust-tensors` is given.\n\n"
      "These layouts are recognized and refused by name:\n\n" +
      markdown_header({"layout", "recognized by the tensor"});
  for (const UnsupportedLayout& layout : unsupported_layouts()) {
    out += markdown_row({std::string(layout.name), code(layout.suffix)});
  }
  out +=
      "\nSo are these methods, whatever their tensors look like, where config.json names them as `quant_method`; a "
      "name that is\n"
      "not known is refused unless `--trust-tensors` is given:\n\n" +
      markdown_header({"method", "why"});
  for (const DeclaredMethod& method : declared_methods()) {
    if (!method.refusal.empty()) out += markdown_row({code(method.name), std::string(method.refusal)});
  }
  return out + "\nGGUF tensors of other types (IQ1 to IQ3, TQ1_0, TQ2_0, NVFP4, Q1_0) are refused by name as well.\n";
}

int models(const ModelsOptions& options) {
  if (!options.markdown.empty()) {
    if (options.json) fail(ErrorKind::kUsage, "--markdown: cannot be combined with --json");
    std::string out;
    if (options.markdown != "formats") out += families_markdown();
    if (options.markdown == "all") out += "\n";
    if (options.markdown != "families") out += formats_markdown();
    write_stdout(out);
    return 0;
  }
  const std::vector<Cached> cache = look_at_cache();
  if (options.json) {
    std::vector<std::string> list;
    for (const Cached& entry : cache) {
      const auto text = [](const std::string& value) { return value.empty() ? "null" : json_quote(value); };
      list.push_back(fmt::format(R"({{"name":{},"folder":{},"family":{},"method":{},"bytes":{},"problem":{}}})",
                                 json_quote(entry.name), json_quote(entry.folder), text(entry.family),
                                 text(entry.method), entry.bytes, text(entry.problem)));
    }
    print_stdout(fmt::format("{{\"schema\":1,{},\"cache\":{{\"folder\":{},\"models\":{}}}}}\n", supported_json(),
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
  print_table(out);
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<ModelsOptions>();
  return {{{"--json", &o->json, "", "print one JSON object"},
           {"--markdown",
            &o->markdown,
            "TABLE",
            "print families or formats (methods) as Markdown: families, formats or all [all]",
            {.choices = "families,formats,all", .alone = "all", .typed_only = true}}},
          [o] { return models(*o); }};
}

constexpr Example kExamples[] = {{"qgen models", "what runs here, and what is in the cache"},
                                 {"qgen models --json | jq -r '.cache.models[].name'"},
                                 {"qgen models --markdown=families > families.md"}};

}  // namespace

const Command kModelsCommand = {
    "models", "families, methods and engines supported; checkpoints in the Hugging Face cache", kExamples, bind};

}  // namespace qgen::cli
