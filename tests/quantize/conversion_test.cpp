// Quantized checkpoints of every method become int8, fp8-channel and q8_0, and score nearly as they did.
#include <optional>

#include "quantize/job.h"
#include "quantize/source.h"
#include "tests/quantize/job_options.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

using namespace quantize;

struct Target {
  quantize::Format format;
  // Of logits, normwise: what the new codes add. Most of the models are random, and rounding is more to them.
  double tolerance;
};
constexpr Target kTargets[] = {
    {quantize::Format::kInt8, 0.1}, {quantize::Format::kFp8Channel, 0.33}, {quantize::Format::kQ8_0, 0.1}};
// Times as much: a router may choose another expert, a recurrence keeps what was rounded.
constexpr double kUnstable = 2;

// Checkpoints that cannot be converted to any format, and a part of what is said about them.
std::string_view refusal_of(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
      {"gpt_oss", "a stack of quantized experts of this family cannot be converted"},
      {"granite_hybrid-fp8", "a stack of quantized experts of this family cannot be converted"}};
  for (const auto& [part, message] : kRefused) {
    if (contains(name, part)) return message;
  }
  return {};
}

bool is_quantized(const fs::path& folder) {
  const auto plan = make_plan(open_checkpoint(locate_model(folder.string())));
  return std::ranges::any_of(plan->weights, [](const Weight& weight) { return weight.quantized(); });
}

}  // namespace

TEST_CASE("quantize: every quantized checkpoint becomes another that scores like it") {
  size_t converted = 0;
  for (const fs::path& model : golden_folders()) {
    const std::string name = model.filename().string();
    if (!is_quantized(model)) continue;
    CAPTURE(name);
    const Golden golden = Golden::read(model);
    const int64_t context = int64_t(golden.ids.size());
    std::vector<float> scores;
    for (const Target& target : kTargets) {
      const std::string format(format_name(target.format));
      CAPTURE(format);
      TemporaryFolder folder;
      const fs::path out = folder.path() / (target.format == quantize::Format::kQ8_0 ? "out.gguf" : "out");
      ErrorKind kind{};
      std::optional<JobReport> report;
      const std::string error = error_of([&] { report = run_job(options_for(model, out, target.format, -1)); }, &kind);
      if (!error.empty()) {
        CHECK(kind == ErrorKind::kModel);
        const std::string_view refusal = refusal_of(name);
        const bool no_gguf =
            target.format == quantize::Format::kQ8_0 &&
            (contains(error, "GGUF file") || contains(error, "llama.cpp") || contains(error, "such files"));
        CHECK_MESSAGE((no_gguf || (!refusal.empty() && contains(error, refusal))), error);
        continue;
      }
      CHECK_FALSE(report->failed());
      if (scores.empty()) scores = reference_logits(*load_plan(model), golden.ids, context);
      const auto written = load_plan(out);
      const bool unstable = std::ranges::any_of(written->steps, [](const Step& step) {
        return std::holds_alternative<RouteStep>(step.op) || std::holds_alternative<RecurStep>(step.op);
      });
      CHECK(normwise_error(reference_logits(*written, golden.ids, context), scores) <
            target.tolerance * (unstable ? kUnstable : 1));
      ++converted;
    }
  }
  CHECK(converted > 100);
}

}  // namespace qgen::test
