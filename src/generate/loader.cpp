#include "generate/loader.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/numa.h"
#include "base/units.h"
#include "generate/session.h"
#include "model/declare.h"
#include "model/families/common.h"
#include "model/open.h"
#include "model/planner.h"
#include "quantize/at_load.h"

namespace qgen {

KvType parse_kv(const std::string& name) {
  for (const KvType type : {KvType::kF16, KvType::kBf16, KvType::kF32, KvType::kFp8, KvType::kInt8}) {
    if (name == kv_name(type)) return type;
  }
  fail(ErrorKind::kUsage, fmt::format("--kv {}: unknown type", name), "known: f16, bf16, f32, fp8, int8");
}

Activations parse_activations(const std::string& name) {
  for (const Activations type : {Activations::kF32, Activations::k16Bit, Activations::k8Bit}) {
    if (name == activations_name(type)) return type;
  }
  fail(ErrorKind::kUsage, fmt::format("--activations {}: unknown type", name), "known: f32, 16bit, 8bit");
}

namespace {

// The share of free memory that a size chosen by default may take; the rest is left to other programs.
constexpr double kSharedMemory = 0.9;
// The share that a larger batch may take.
constexpr double kBatchShare = 1.0 / 64;

// The largest value from `low` to `limit` for which `fits` says yes, as it does for all smaller ones; `low` is not
// asked.
int64_t largest_fitting(int64_t low, int64_t limit, const std::function<bool(int64_t)>& fits) {
  if (fits(limit)) return limit;
  int64_t high = limit - 1;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Tokens of all sequences together, up to `limit`, whose account fits into `memory` bytes; at least one context.
int64_t largest_cache(const Plan& plan, const EngineRow& engine, EngineOptions options, int64_t limit, double memory) {
  return largest_fitting(options.context, limit, [&](int64_t tokens) {
    options.cache_tokens = tokens;
    return double(engine.account(plan, options).total()) <= memory;
  });
}

}  // namespace

int64_t largest_context(const Plan& plan, const EngineRow& engine, EngineOptions options, int64_t limit,
                        double memory) {
  return largest_fitting(0, limit, [&](int64_t tokens) {
    options.context = tokens;
    return double(engine.account(plan, options).total()) <= memory;
  });
}

int64_t fitting_batch(const Plan& plan, const EngineRow& engine, EngineOptions options, double memory) {
  if (engine.large_batch == 0) return 0;
  options.batch = 0;
  const double other = double(engine.account(plan, options).total());
  options.batch = engine.large_batch;
  return double(engine.account(plan, options).total()) - other <= kBatchShare * memory ? options.batch : 0;
}

std::unique_ptr<Plan> open_plan(const ModelOptions& options, bool only_plan) {
  const ModelLocation location = locate_model(options.model);
  auto plan = make_plan(only_plan && lacks_weights(location) ? declare_checkpoint(location, options.drafts(), true)
                                                             : open_checkpoint(location, only_plan),
                        options.trust_tensors, options.drafts());
  if (!options.quantize.empty()) {
    quantize::quantize_at_load(*plan, quantize::parse_format(options.quantize, "--quantize"), options.quantize_head);
  } else if (options.quantize_head) {
    fail(ErrorKind::kUsage, "--quantize-head: without effect", "it belongs to --quantize");
  }
  return plan;
}

std::string incomplete_warning(const Plan& plan) {
  const std::string& file = plan.checkpoint.incomplete();
  return file.empty() ? file : fmt::format("{}: not all of its weights are there (an unfinished download?)", file);
}

Placement place(const Plan& plan, const ModelOptions& options, int64_t needed) {
  Placement out;
  out.options.threads = options.threads;
  out.options.kv = parse_kv(options.kv);
  out.options.activations = parse_activations(options.activations);
  out.engine = &find_engine(options.device, out.options);
  if (out.options.threads == 0) out.options.threads = out.engine->useful_threads(plan);
  out.native = plan.model.context;
  out.wanted = options.context > 0 ? options.context : std::max(out.native, needed);
  check_context(plan, out.wanted);
  out.options.context = out.largest = out.wanted;
  if (options.lines == 1) out.options.marks = Session::kMarks;
  // A step reads each weight once for all lines. 16 lines on a CPU are measured (docs/speed.md), 64 on a GPU are not.
  out.lines = options.lines > 0 ? options.lines : out.engine->in_ram() ? 16 : 64;
  out.options.shortlist = out.engine->shortlist_tokens != nullptr && out.lines <= out.engine->shortlist_tokens(plan);
  out.free = out.engine->free_memory(out.options);
  if (out.free > 0) {
    const double budget = options.context > 0 ? double(out.free) : kSharedMemory * double(out.free);
    out.options.batch = fitting_batch(plan, *out.engine, out.options, double(out.free));
    const auto try_context = [&] {
      out.largest = largest_context(plan, *out.engine, out.options, out.wanted, budget);
      out.fits = out.largest >= (options.context > 0 ? out.wanted : needed);
    };
    try_context();
    // A context comes before a faster output head.
    if (out.options.shortlist && out.largest < out.wanted) {
      out.options.shortlist = false;
      try_context();
    }
    if (!out.fits && out.options.batch > 0) {
      out.options.batch = 0;
      try_context();
    }
    if (out.fits) out.options.context = out.largest;
  }
  if (out.lines > 1) {
    out.options.sequences = out.lines + 1;  // and one for what their beginnings have in common
    const int64_t all = out.options.context * out.options.sequences;
    out.options.cache_tokens = options.cache_tokens;
    const double budget = out.free > 0 ? kSharedMemory * double(out.free) : INFINITY;
    if (options.cache_tokens == 0)
      out.options.cache_tokens = largest_cache(plan, *out.engine, out.options, all, budget);
  }
  out.use = out.engine->account(plan, out.options);
  return out;
}

void fail_placement(const Plan& plan, const Placement& placement, std::string hint) {
  const MemoryUse& use = placement.use;
  if (placement.largest == 0) {
    hint = "the weights alone are too large for this machine";
  } else if (hint.empty()) {
    hint = fmt::format("--context {} fits", placement.largest);
  }
  fail(ErrorKind::kMemory,
       fmt::format("{}: does not fit: needs {}, {} of {} are free\n  weights {}   kv {} ({} tokens, {})   work {}",
                   plan.checkpoint.location().name, format_bytes(double(use.total())),
                   format_bytes(double(placement.free)),
                   placement.engine->in_ram() ? "memory" : placement.engine->memory, format_bytes(double(use.weights)),
                   format_bytes(double(use.kv)), placement.wanted, kv_name(placement.options.kv),
                   format_bytes(double(use.work))),
       std::move(hint));
}

LoadedModel load_model(std::unique_ptr<Plan> plan, const ModelOptions& options, int64_t needed,
                       const Progress& progress, bool may_exceed) {
  LoadedModel loaded;
  loaded.name = plan->checkpoint.location().name;
  const int64_t native = plan->model.context;
  const int64_t limit = plan->model.context_limit.tokens > 0 ? plan->model.context_limit.tokens : INT64_MAX;
  if (options.context > 0 && needed > options.context) {
    fail(ErrorKind::kUsage,
         fmt::format("{}: the prompt does not fit in the context (expected at most {} tokens, found {})", loaded.name,
                     options.context, needed),
         needed <= native ? fmt::format("--context {} or more fits it", needed) : "a shorter prompt");
  }
  if (options.context == 0 && needed > native && !may_exceed) {
    fail(ErrorKind::kUsage,
         fmt::format("{}: the prompt does not fit in the context (expected at most {} tokens, found {})", loaded.name,
                     native, needed),
         needed > limit ? "a shorter prompt"
                        : fmt::format("--context {} would go beyond what the model was made for", needed));
  }
  const Placement placement = place(*plan, options, needed);
  if (!placement.fits) fail_placement(*plan, placement);
  const auto start = std::chrono::steady_clock::now();
  std::vector<Weight*> weights;
  for (Weight& weight : plan->weights) weights.push_back(&weight);
  repack_weights(weights);
  WeightScan scan(weights, [&, bytes = double(plan->weight_bytes())](size_t done) {
    if (progress)
      progress([&] {
        return fmt::format("loading {}: {} of {}", loaded.name, format_bytes(double(done)), format_bytes(bytes));
      });
  });
  EngineOptions engine_options = placement.options;
  if (placement.engine->in_ram()) {
    const InterleavedPages interleaved;  // those of the weights
    scan.run();
    scan.finish();
  } else {
    engine_options.scan = &scan;
  }
  loaded.engine = placement.engine->make_engine(*plan, engine_options);
  if (engine_options.scan != nullptr) scan.finish();
  if (progress) progress({});
  loaded.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  loaded.engine_row = placement.engine;
  loaded.context = placement.options.context;
  loaded.lines = placement.lines;
  loaded.engine_options = placement.options;
  loaded.plan = std::move(plan);
  return loaded;
}

std::vector<TokenId> parse_token_ids(std::string_view text, std::string_view subject, int64_t vocab) {
  std::vector<TokenId> ids;
  size_t i = 0;
  const auto separator = [](char c) {
    return c == ',' || c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '[' || c == ']';
  };
  while (i < text.size()) {
    if (separator(text[i])) {
      ++i;
      continue;
    }
    const size_t start = i;
    int64_t id = 0;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9' && id <= vocab) id = id * 10 + (text[i++] - '0');
    if (i == start || (i < text.size() && !separator(text[i])) || id >= vocab) {
      size_t end = start;
      while (end < text.size() && !separator(text[end])) ++end;
      fail(ErrorKind::kUsage, fmt::format("{}: '{}' is not a token id (expected 0 to {})", subject,
                                          text.substr(start, end - start), vocab - 1));
    }
    ids.push_back(TokenId(id));
  }
  return ids;
}

void check_vocabulary(std::span<const TokenId> ids, const Plan& plan) {
  for (const TokenId id : ids) {
    if (id < plan.model.vocab) continue;
    fail(ErrorKind::kModel,
         fmt::format("{}: the tokenizer gives id {} (expected below {}, the model's vocab_size)",
                     plan.checkpoint.files().place(), id, plan.model.vocab),
         "the tokenizer and the weights do not belong together");
  }
}

std::string nan_warning(const LoadedModel& model) {
  for (const Weight& weight : model.plan->weights) {
    if (weight.nan_codes > 0)
      return fmt::format("{}: {} fp8 codes of the weights are NaN, the first in {}", model.name,
                         model.plan->nan_codes(), weight.name);
  }
  return {};
}

std::unique_ptr<JsonDocument> read_generation_config(const ModelFiles& files) {
  constexpr std::string_view kName = "generation_config.json";
  if (!files.has(kName)) return nullptr;
  return JsonDocument::parse(files.read(kName, 16 << 20), files.subject(kName));
}

std::vector<TokenId> end_tokens(const ModelInfo& model, const JsonDocument* generation_config,
                                const SpecialTokens& specials, const Tokenizer& tokenizer) {
  std::vector<TokenId> out = model.end_tokens;
  if (generation_config != nullptr) {
    const auto more = read_end_tokens(generation_config->root());
    out.insert(out.end(), more.begin(), more.end());
  }
  if (const auto end = specials.find("eos_token"); end != specials.end()) {
    if (const auto id = tokenizer.id_of(end->second)) out.push_back(*id);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::function<std::vector<std::pair<size_t, size_t>>(std::string_view)> own_tokens_of(const Tokenizer& tokenizer) {
  return [&tokenizer](std::string_view text) {
    std::vector<std::pair<size_t, size_t>> out;
    for (const TokenOffset& token : tokenizer.guarded_in(text)) out.emplace_back(token.begin, token.end);
    return out;
  };
}

std::unique_ptr<Tokenizer> load_tokenizer(const ModelFiles& files) {
  if (!Tokenizer::exists(files)) {
    fail(ErrorKind::kModel,
         fmt::format(
             "{}: no tokenizer (expected tokenizer.json, vocab.json with merges.txt, tekken.json, or tokenizer.model)",
             files.place()),
         "fetch the whole model folder, not only the weights");
  }
  return Tokenizer::load(files);
}

}  // namespace qgen
