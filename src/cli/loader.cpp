#include "cli/loader.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "cli/terminal.h"

namespace qgen::cli {
KvType parse_kv(const std::string& name) {
  for (const KvType type : {KvType::kF16, KvType::kBf16, KvType::kF32}) {
    if (name == kv_name(type)) return type;
  }
  fail(ErrorKind::kUsage, fmt::format("--kv {}: unknown type", name), "known: f16, bf16, f32");
}

int64_t largest_context(const Plan& plan, const EngineRow& engine, EngineOptions options, int64_t limit,
                        double memory) {
  options.context = limit;
  if (double(engine.account(plan, options).total()) <= memory) return limit;
  int64_t low = 0, high = limit - 1;
  while (low < high) {
    options.context = low + (high - low + 1) / 2;
    if (double(engine.account(plan, options).total()) <= memory) {
      low = options.context;
    } else {
      high = options.context - 1;
    }
  }
  return low;
}

std::string format_bytes(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, decimals, units[unit]);
}

std::unique_ptr<Plan> open_plan(const ModelOptions& options) {
  return make_plan(Checkpoint::open(locate_model(options.model)));
}

int64_t model_context(const Description& model) {
  const bool extends = model.rope.scaling == Rope::Scaling::kLinear || model.rope.scaling == Rope::Scaling::kDynamic ||
                       (model.rope.scaling == Rope::Scaling::kYarn && model.rope.original_context == model.context);
  constexpr double kMax = double(int64_t{1} << 31);
  return extends ? int64_t(std::min(kMax, double(model.context) * std::max(1.0, model.rope.factor))) : model.context;
}

LoadedModel load_model(std::unique_ptr<Plan> plan, const ModelOptions& options, int64_t needed, bool quiet,
                       bool may_exceed) {
  LoadedModel loaded;
  loaded.name = plan->checkpoint.location().name;
  const int64_t native = model_context(plan->model);
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
         fmt::format("--context {} would go beyond what the model was made for", needed));
  }
  EngineOptions engine_options;
  engine_options.threads = options.threads;
  engine_options.kv = parse_kv(options.kv);
  const EngineRow& engine = find_engine(options.device, engine_options);
  engine_options.context = options.context > 0 ? options.context : std::max(native, needed);
  const double memory = double(engine.free_memory());
  if (memory > 0) {
    // A context that nobody asked for leaves some memory to others.
    const double budget = options.context > 0 ? memory : 0.9 * memory;
    const int64_t fits = largest_context(*plan, engine, engine_options, engine_options.context, budget);
    if (fits < (options.context > 0 ? options.context : needed)) {
      const MemoryUse use = engine.account(*plan, engine_options);
      fail(ErrorKind::kMemory,
           fmt::format(
               "{}: does not fit: needs {}, {} of memory are free\n  weights {}   kv {} ({} tokens, {})   work {}",
               loaded.name, format_bytes(double(use.total())), format_bytes(memory), format_bytes(double(use.weights)),
               format_bytes(double(use.kv)), engine_options.context, options.kv, format_bytes(double(use.work))),
           fits > 0 ? fmt::format("--context {} fits", fits) : "the weights alone are too large for this machine");
    }
    engine_options.context = fits;
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<Weight*> weights;
  for (Weight& weight : plan->weights) weights.push_back(&weight);
  Progress progress(quiet);
  const double bytes = double(plan->weight_bytes());
  scan_weights(weights, [&](size_t done) {
    progress.show([&] {
      return fmt::format("loading {}: {} of {}", loaded.name, format_bytes(double(done)), format_bytes(bytes));
    });
  });
  loaded.engine = engine.make(*plan, engine_options);
  loaded.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  loaded.context = engine_options.context;
  loaded.engine_row = &engine;
  loaded.engine_options = engine_options;
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
      fail(ErrorKind::kUsage, fmt::format("{}: '{}' is no token id (expected 0 to {})", subject,
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
                     plan.checkpoint.location().folder.string(), id, plan.model.vocab),
         "the tokenizer and the weights do not belong together");
  }
}

void warn_about_weights(const LoadedModel& model) {
  for (const Weight& weight : model.plan->weights) {
    if (weight.nan_codes == 0) continue;
    write_stderr(fmt::format("qgen: warning: {}: {} fp8 codes of the weights are NaN, the first in {}\n", model.name,
                             model.plan->nan_codes(), weight.name));
    return;
  }
}

std::unique_ptr<JsonDocument> read_generation_config(const std::filesystem::path& folder) {
  const auto path = folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return nullptr;
  return JsonDocument::parse(read_file(path, 16 << 20), path.string());
}

std::vector<TokenId> end_tokens(const Description& model, const JsonDocument* generation_config,
                                const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  std::vector<TokenId> out = model.end_tokens;
  if (generation_config != nullptr) {
    const auto more = read_end_tokens(generation_config->root());
    out.insert(out.end(), more.begin(), more.end());
  }
  if (const auto id = tokenizer.id_of(ChatTemplate::special_tokens(folder).second)) out.push_back(*id);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  if (!Tokenizer::exists(folder)) {
    fail(ErrorKind::kModel,
         fmt::format("{}: no tokenizer (expected tokenizer.json, vocab.json with merges.txt, or tokenizer.model)",
                     folder.string()),
         "fetch the whole model folder, not only the weights");
  }
  return Tokenizer::load(folder);
}

}  // namespace qgen::cli
