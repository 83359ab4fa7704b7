// How close the weights of one checkpoint are to those of another, in any two formats.
#include <cmath>
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

std::string vector_json(const quantize::VectorDifference& vector) {
  return fmt::format(R"({{"name":{},"size":{},"largest_error":{}}})", json_quote(vector.name), vector.size,
                     std::isfinite(vector.largest_error) ? fmt::format("{:.9g}", vector.largest_error) : "null");
}

// Norms, biases and the like that are not the same: they are in no table, since none may differ.
std::string vectors_text(const std::vector<quantize::VectorDifference>& vectors) {
  std::string out;
  for (const quantize::VectorDifference& vector : vectors)
    out += fmt::format("  FAIL  vector {} differs by up to {:.3g}\n", vector.name, vector.largest_error);
  return out;
}

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
  const auto vectors = quantize::compare_vectors(*plan, *reference);
  const std::string_view verdict = vectors.empty() ? worst_verdict(comparisons) : "FAIL";
  if (options.json) {
    std::vector<std::string> items, differing;
    for (const quantize::Comparison& comparison : comparisons) items.push_back(comparison_json(comparison));
    for (const quantize::VectorDifference& vector : vectors) differing.push_back(vector_json(vector));
    print_stdout(fmt::format(R"({{"schema":1,"model":{},"against":{},"verdict":"{}","comparisons":{},"vectors":{}}})"
                             "\n",
                             json_quote(plan->checkpoint.location().name),
                             json_quote(reference->checkpoint.location().name), verdict, json_list(items),
                             json_list(differing)));
  } else {
    const std::string title =
        one_line(fmt::format("{} ({}) beside {} ({})", plan->checkpoint.location().name, plan->method(),
                             reference->checkpoint.location().name, reference->method()));
    print_table(comparisons_text(title, comparisons) + vectors_text(vectors));
  }
  return verdict == "FAIL" ? int(ErrorKind::kRuntime) : 0;
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
