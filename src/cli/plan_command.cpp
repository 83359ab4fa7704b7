// What a model will take in memory and how fast it can be at most, from headers alone.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "engine/shortlist.h"
#include "generate/loader.h"
#include "model/declare.h"
#include "quantize/failed_mark.h"

namespace qgen::cli {
namespace {

struct PlanOptions {
  ModelOptions model;
  std::string parallel = "1";
  bool json = false;
};

// What a run needs beside the model: the program with its tokenizer, as it stands in this process now.
size_t program_bytes(const Plan& plan) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (Tokenizer::exists(plan.checkpoint.files())) tokenizer = load_tokenizer(plan.checkpoint.files());
  // Reading a file's header can bring in much of what follows it, where the system's cache has large pages.
  for (const TensorView& tensor : plan.checkpoint.tensors()) release_pages(tensor.bytes);
  // The pages of the engine's code and its small objects, which planning does not touch (measured, about 1.5 MiB).
  constexpr size_t kEngineBytes = 3 << 19;
  return kEngineBytes + resident_memory();
}

// What one token reads, and so how many a second the memory allows at best.
struct Pace {
  double bytes = 0;  // a token
  double tokens_per_second = 0;
};

struct Outlook {
  std::unique_ptr<Plan> plan;
  bool declared = false;  // no weights there, only what config.json says
  Placement placement;
  size_t program = 0;
  int64_t context = 0;
  int64_t cache_tokens = 0;   // of all lines together
  double kv_token = 0;        // bytes, without state_bytes
  size_t state_bytes = 0;     // of the cache, whatever the tokens
  double read_bandwidth = 0;  // bytes a second, measured now; 0 if the engine is not for speed
  Pace empty, full;           // with an empty and with a full context

  // In the memory that the engine computes in.
  size_t total() const { return placement.use.total() + (placement.engine->in_ram() ? program : 0); }
};

Outlook look_ahead(const ModelOptions& options) {
  Outlook out;
  out.plan = open_plan(options, true);
  warn(incomplete_warning(*out.plan));
  warn(quantize::failed_warning(out.plan->checkpoint.location()));
  out.declared = out.plan->checkpoint.is_blank();
  out.placement = place(*out.plan, options, 1);
  out.program = program_bytes(*out.plan);
  out.context = out.placement.fits ? out.placement.options.context : out.placement.wanted;
  out.cache_tokens = out.placement.lines > 1 ? out.placement.options.cache_tokens : out.context;
  const size_t kv = out.placement.use.kv;
  out.state_bytes = std::min(kv, fixed_state_bytes(*out.plan) * size_t(state_slots(out.placement.options)));
  out.kv_token = double(kv - out.state_bytes) / double(out.cache_tokens);
  if (out.placement.fits && out.placement.engine->measure != nullptr) {
    try {
      out.read_bandwidth = out.placement.engine->measure(out.placement.options, false).read_bytes_per_second;
    } catch (const Error&) {  // no room to measure in: a plan without speed is a plan
    }
  }
  const auto pace = [&](double bytes) { return Pace{bytes, out.read_bandwidth / bytes}; };
  out.empty = pace(double(bytes_per_token(*out.plan, out.placement.options)));
  out.full = pace(out.empty.bytes + kv_bytes_read(*out.plan, out.context - 1, out.placement.options.kv));
  return out;
}

// Whether weights may be copied for NaN codes, which no account from headers can count.
bool may_be_widened(const Outlook& outlook) {
  const auto is_fp8 = [](const Weight& weight) { return weight.codes == Codes::kE4M3; };
  const auto& weights = outlook.plan->weights;
  return outlook.placement.engine->widens_nan_codes && std::any_of(weights.begin(), weights.end(), is_fp8);
}

std::string text(const Outlook& outlook) {
  const Placement& placement = outlook.placement;
  const MemoryUse& use = placement.use;
  std::string out =
      fmt::format("{} {} · {} · {}{}\n", outlook.plan->model.family, parameters_text(outlook.plan->parameters()),
                  outlook.plan->method(), placement.engine->name,
                  outlook.declared ? " · as config.json declares it, the weights are not here" : "");
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](std::string name, double bytes, std::string remark) {
    rows.push_back({std::move(name), format_bytes(bytes), std::move(remark)});
  };
  std::string of_weights = may_be_widened(outlook) ? "threefold for each FP8 matrix with NaN codes" : "";
  if (const size_t copy = shortlist_bytes(*outlook.plan, placement.options); copy > 0) {
    of_weights = fmt::format("{} of them the output head once more, in 8 bits{}{}", format_bytes(double(copy)),
                             of_weights.empty() ? "" : "; ", of_weights);
  }
  row("weights", double(use.weights), of_weights);
  row("kv", double(use.kv),
      fmt::format("{} tokens{} in {}, {} each", outlook.cache_tokens,
                  placement.lines > 1 ? fmt::format(" of {} lines and their common beginning", placement.lines) : "",
                  kv_name(placement.options.kv), format_bytes(outlook.kv_token)) +
          (outlook.state_bytes > 0 ? fmt::format(", and {} of states", format_bytes(double(outlook.state_bytes)))
                                   : ""));
  row("work", double(use.work), "");
  row("program", double(outlook.program),
      placement.engine->in_ram() ? "with its tokenizer" : "with its tokenizer, in ram");
  row("total", double(outlook.total()),
      placement.free > 0 ? fmt::format("of {} free", format_bytes(double(placement.free))) : "");
  out += format_table(rows, {1});
  if (placement.fits) {
    const std::string room = outlook.context == placement.native ? "all the model was made for"
                             : outlook.context > placement.native
                                 ? fmt::format("beyond the {} the model was made for", placement.native)
                             : placement.largest < placement.wanted
                                 ? fmt::format("the largest that fits; the model was made for {}", placement.native)
                                 : fmt::format("of the {} the model was made for", placement.native);
    out += fmt::format("  context  {} tokens, {}\n", outlook.context, room);
  }
  if (outlook.read_bandwidth > 0) {
    out += fmt::format(
        "  speed    {} read for a token, {} with a full context: at most {:.{}f} and {:.{}f} tok/s at {:.1f} GB/s\n",
        format_bytes(outlook.empty.bytes), format_bytes(outlook.full.bytes), outlook.empty.tokens_per_second,
        outlook.empty.tokens_per_second < 100 ? 1 : 0, outlook.full.tokens_per_second,
        outlook.full.tokens_per_second < 100 ? 1 : 0, outlook.read_bandwidth / 1e9);
  }
  return out;
}

std::string json(const Outlook& outlook) {
  const Placement& placement = outlook.placement;
  const MemoryUse& use = placement.use;
  const auto pace = [](const Pace& p) {
    return fmt::format(R"({{"bytes_per_token":{:.0f},"tokens_per_second":{}}})", p.bytes,
                       p.tokens_per_second > 0 ? fmt::format("{:.3f}", p.tokens_per_second) : "null");
  };
  return fmt::format(
      R"({{"schema":1,"model":{},"family":{},"parameters":{},"method":{},"declared":{},"device":{},"fits":{},"context":{},)"
      R"("model_context":{},"largest_context":{},"parallel":{},"cache_tokens":{},"memory":{{"weights":{},"kv":{},"work":{},"program":{},"total":{},"free":{}}},)"
      R"("kv_type":{},"kv_bytes_per_token":{:.0f},"state_bytes":{},"read_bandwidth":{:.0f},"speed":{{"empty":{},"full":{}}}}})"
      "\n",
      json_quote(outlook.plan->checkpoint.location().name), json_quote(outlook.plan->model.family),
      outlook.plan->parameters(), json_quote(outlook.plan->method()), outlook.declared,
      json_quote(placement.engine->name), placement.fits, outlook.context, placement.native, placement.largest,
      placement.lines, outlook.cache_tokens, use.weights, use.kv, use.work, outlook.program, outlook.total(),
      placement.free, json_quote(kv_name(placement.options.kv)), outlook.kv_token, outlook.state_bytes,
      outlook.read_bandwidth, pace(outlook.empty), pace(outlook.full));
}

int plan_command(const PlanOptions& options) {
  require_model(options.model);
  ModelOptions model = options.model;
  model.lines = read_parallel(options.parallel);
  if (model.drafts()) {
    if (model.lines > 1)
      fail(ErrorKind::kUsage, fmt::format("--parallel {}: no place for --draft", options.parallel),
           "one line at a time may be guessed ahead");
    model.lines = 1;
  }
  const Outlook outlook = look_ahead(model);
  options.json ? print_stdout(json(outlook)) : print_table(text(outlook));
  if (outlook.declared) warn(declared_size_note(outlook.plan->checkpoint));
  if (!outlook.placement.fits) fail_placement(*outlook.plan, outlook.placement);
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<PlanOptions>();
  std::vector<Option> options;
  add_model_options(options, o->model);
  options.push_back(model_word(o->model));
  options.push_back(draft_option(o->model));
  options.push_back(parallel_option(o->parallel, "how many lines of a batch to plan for [1]"));
  options.push_back({"--json", &o->json, "", "print one JSON object"});
  return {options, [o] { return plan_command(*o); }};
}

constexpr Example kExamples[] = {{"qgen plan Qwen/Qwen3-8B-FP8 -c 32768", "does it fit, how fast can it be"},
                                 {"qgen plan ./folder-with-config-json --json", "before the weights are downloaded"}};

}  // namespace

const Command kPlanCommand = {"plan", "what a model will take in memory and how fast it can be, from headers only",
                              kExamples, bind};

}  // namespace qgen::cli
