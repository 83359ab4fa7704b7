// How close the weights of one checkpoint are to those of another, in any two formats.
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/options.h"
#include "cli/quantize_report.h"
#include "cli/terminal.h"
#include "quantize/compare_models.h"

namespace qgen::cli {
namespace {

struct VerifyOptions {
  ModelOptions model;
  std::string against;
  bool json = false;
};

int verify(const VerifyOptions& options) {
  require_model(options.model);
  if (options.against.empty())
    fail(ErrorKind::kUsage, "verify: nothing to compare with", "--against MODEL, the one it was made from");
  ModelOptions other = options.model;
  other.model = options.against;
  const auto plan = open_plan(options.model), reference = open_plan(other);
  const RunControl terminal = terminal_control(false);
  const auto comparisons = quantize::compare_models(*plan, *reference, [&](size_t done, size_t all) {
    if (terminal.progress) terminal.progress([&] { return fmt::format("comparing {} of {} matrices", done, all); });
  });
  if (terminal.progress) terminal.progress({});
  if (options.json) {
    std::vector<std::string> items;
    for (const quantize::Comparison& comparison : comparisons) items.push_back(comparison_json(comparison));
    print_stdout(fmt::format(R"({{"schema":1,"model":{},"against":{},"verdict":"{}","comparisons":{}}})"
                             "\n",
                             json_quote(plan->checkpoint.location().name),
                             json_quote(reference->checkpoint.location().name), worst_verdict(comparisons),
                             json_list(items)));
  } else {
    print_table(comparisons_text(fmt::format("{} ({}) beside {} ({})", plan->checkpoint.location().name, plan->method(),
                                             reference->checkpoint.location().name, reference->method()),
                                 comparisons));
  }
  return worst_verdict(comparisons) == "FAIL" ? int(ErrorKind::kRuntime) : 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<VerifyOptions>();
  std::vector<Option> options = {model_option(o->model),
                                 model_word(o->model),
                                 trust_tensors_option(o->model),
                                 {"--against", &o->against, "MODEL",
                                  "the model to compare with: the one it was made from, or another quantization"},
                                 {"--json", &o->json, "", "print one JSON object, with every matrix"}};
  return {options, [o] { return verify(*o); }};
}

constexpr Example kExamples[] = {
    {"qgen verify -m ./finetune-FP8 --against ./finetune", "exit code 1 where a matrix is beyond a limit"},
    {"qgen verify -m ./model-Q8_0.gguf --against ./model --json", "every matrix"}};

}  // namespace

const Command kVerifyCommand = {"verify", "how close the weights of two checkpoints of one model are", kExamples, bind};

}  // namespace qgen::cli
