// What a model will take in memory and how fast it can be at most, from headers alone.
#include <memory>

#include <fmt/format.h>

#include "base/memory.h"
#include "cli/loader.h"
#include "cli/terminal.h"

namespace qgen::cli {
namespace {

struct PlanOptions {
  ModelOptions model;
  bool json = false;
};

// What a run needs beside the model: the program with its tokenizer, as it stands in this process now. Scales and
// vectors that planning has read already count as weights.
size_t program_bytes(const Plan& plan) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (Tokenizer::exists(plan.checkpoint.location().folder))
    tokenizer = load_tokenizer(plan.checkpoint.location().folder);
  size_t read = 0;
  for (const Weight& weight : plan.weights) {
    read += (weight.scale.values.size() + weight.offset.values.size()) * sizeof(float) + weight.owned.size();
  }
  for (const auto& vector : plan.vectors) read += vector.size() * sizeof(float);
  const size_t resident = resident_memory();
  return resident > read ? resident - read : 0;
}

int plan_command(const PlanOptions& options) {
  require_model(options.model);
  const auto plan = open_plan(options.model);
  const Placement placement = place(*plan, options.model, 1);
  const MemoryUse& use = placement.use;
  const size_t program = program_bytes(*plan);
  const int64_t context = placement.fits ? placement.options.context : placement.wanted;
  const double kv_token = double(use.kv) / double(context);
  const double bytes_empty = double(plan->bytes_per_token()), bytes_full = bytes_empty + double(use.kv);
  if (options.json) {
    write_stdout(fmt::format(
        R"({{"schema":1,"model":{},"family":{},"parameters":{},"method":{},"device":{},"fits":{},"context":{},"model_context":{},)"
        R"("largest_context":{},"memory":{{"weights":{},"kv":{},"work":{},"program":{},"total":{},"free":{}}},"kv_type":{},)"
        R"("kv_bytes_per_token":{:.0f},"bytes_per_token":{{"empty":{:.0f},"full":{:.0f}}}}})"
        "\n",
        json_quote(plan->checkpoint.location().name), json_quote(plan->model.family), plan->parameters(),
        json_quote(plan->method()), json_quote(placement.engine->name), placement.fits, context, placement.native,
        placement.largest, use.weights, use.kv, use.work, program, use.total() + program, placement.free,
        json_quote(kv_name(placement.options.kv)), kv_token, bytes_empty, bytes_full));
  } else {
    std::string out = fmt::format("{} {} · {} · {}\n", plan->model.family, parameters_text(plan->parameters()),
                                  plan->method(), placement.engine->name);
    const auto line = [&](std::string_view name, size_t bytes, const std::string& text) {
      out += fmt::format("  {:<8} {:>9}{}{}\n", name, format_bytes(double(bytes)), text.empty() ? "" : "   ", text);
    };
    line("weights", use.weights, "");
    line("kv", use.kv,
         fmt::format("{} tokens in {}, {} each", context, kv_name(placement.options.kv), format_bytes(kv_token)));
    line("work", use.work, "");
    line("program", program, "with its tokenizer");
    line("total", use.total() + program,
         placement.free > 0 ? fmt::format("of {} free", format_bytes(double(placement.free))) : "");
    write_stdout(out);
  }
  if (!placement.fits) fail_placement(*plan, placement);
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<PlanOptions>();
  std::vector<Option> options = {{"--json", &o->json, "", "one JSON object"}};
  add_model_options(options, o->model);
  return {options, [o] { return plan_command(*o); }};
}

}  // namespace

const Command kPlanCommand = {
    "plan", "what a model will take in memory, from headers only",
    R"(  qgen plan -m Qwen/Qwen3-8B-FP8 -c 32768                does it fit, how fast can it be
  qgen plan -m ./folder-with-config-json --json          before the weights are downloaded
)",
    bind};

}  // namespace qgen::cli
