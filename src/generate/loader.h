// From the name of a model to something that can run: the plan, the tokenizer, the memory account, the engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/model_files.h"
#include "chat/template.h"
#include "engine/engine_table.h"
#include "model/plan.h"
#include "tokenizer/tokenizer.h"

namespace qgen {

// Which model, and where and how it runs.
struct ModelOptions {
  std::string model;
  std::string device = "auto";
  int threads = 0;           // 0: all physical cores
  int64_t context = 0;       // 0: what the model was made for, as far as it fits
  int64_t lines = 1;         // that are answered at a time (generate/parallel.h); 0: as many as are useful
  int64_t cache_tokens = 0;  // of several lines together; 0: as many whole contexts as fit, up to one for each
  std::string kv = "f16";
  std::string activations = "16bit";
  std::string quantize;        // while loading: a format of quantize/recipe.h, or "int8"; "" for none
  bool quantize_head = false;  // the output head as well
  bool trust_tensors = false;  // read weights as their tensors look, where quant_method is not known or says otherwise
  std::string draft = "off";   // or "mtp": with the model's layer that drafts tokens
  bool drafts() const { return draft == "mtp"; }
};

// Shows how far something is: called now and then with what makes the line, which is made only where it is shown; with
// an empty function the line goes away.
using Progress = std::function<void(const std::function<std::string()>& line)>;
// How a run is followed: it tells `progress` how far it is, and ends early once `stopped` says so. Either may be empty.
struct RunControl {
  Progress progress;
  std::function<bool()> stopped;
};

struct LoadedModel {
  std::string name;
  std::unique_ptr<Plan> plan;
  std::unique_ptr<Engine> engine;
  int64_t context = 0;
  int64_t lines = 1;  // at a time
  double load_seconds = 0;
  const EngineRow* engine_row = nullptr;
  EngineOptions engine_options;
};

// The plan from the files' headers, nothing else. `only_plan`: it will not be run, so the weights may be missing (then
// config.json says what they are) or their files incomplete.
std::unique_ptr<Plan> open_plan(const ModelOptions& options, bool only_plan = false);
// What to warn about where the plan's weight files are not complete; "" where they are.
std::string incomplete_warning(const Plan& plan);

// Where a plan would run, with which context, and what that takes.
struct Placement {
  const EngineRow* engine = nullptr;
  EngineOptions options;  // with the context: the one asked for, or the largest that is sensible and fits
  int64_t native = 0;     // the context the model was made for
  int64_t wanted = 0;     // the context asked for, or else the native one
  int64_t largest = 0;    // the largest context that fits, up to `wanted`
  MemoryUse use;          // with `wanted` tokens if it does not fit, else with options.context
  size_t free = 0;        // bytes; 0 if unknown
  bool fits = true;
  int64_t lines = 1;  // at a time, which share options.cache_tokens
};
// At least `needed` tokens must fit in the context. Without --context, the context is made smaller until it fits and
// leaves a tenth of the free memory to other programs.
Placement place(const Plan& plan, const ModelOptions& options, int64_t needed);
// The memory Error that says what a placement needs and what would fit: `hint`, or a smaller --context.
[[noreturn]] void fail_placement(const Plan& plan, const Placement& placement, std::string hint = {});

// Places the plan (exit 4 with what would fit), reads the weights into memory and makes the engine, telling
// `progress`, where given, how far it is. A `needed` beyond the model's own context is allowed only with an explicit
// --context or `may_exceed`.
LoadedModel load_model(std::unique_ptr<Plan> plan, const ModelOptions& options, int64_t needed,
                       const Progress& progress = {}, bool may_exceed = false);

// --kv as the engines' type.
KvType parse_kv(const std::string& name);
// --activations as the engines'.
Activations parse_activations(const std::string& name);

// The largest context up to `limit` whose account fits into `memory` bytes; 0 if not even one token does.
int64_t largest_context(const Plan& plan, const EngineRow& engine, EngineOptions options, int64_t limit, double memory);
// EngineOptions::batch: EngineRow::large_batch where what it takes beyond other batches is a small share of `memory`
// bytes, else 0.
int64_t fitting_batch(const Plan& plan, const EngineRow& engine, EngineOptions options, double memory);

// Ids between commas, white space or brackets, each below `vocab`; a usage Error that begins with `subject`.
std::vector<TokenId> parse_token_ids(std::string_view text, std::string_view subject, int64_t vocab);

// A model Error if the tokenizer gives ids that the model has no scores for.
void check_vocabulary(std::span<const TokenId> ids, const Plan& plan);

// What to warn about where fp8 codes of the weights are NaN; "" where none is.
std::string nan_warning(const LoadedModel& model);

// generation_config.json, if there is one.
std::unique_ptr<JsonDocument> read_generation_config(const ModelFiles& files);

// The union of the end tokens of config.json, generation_config.json and the tokenizer.
std::vector<TokenId> end_tokens(const ModelInfo& model, const JsonDocument* generation_config,
                                const SpecialTokens& specials, const Tokenizer& tokenizer);

// The tokenizer of a model folder, or a model Error that says what is missing.
std::unique_ptr<Tokenizer> load_tokenizer(const ModelFiles& files);
// TemplateOptions::own_tokens; the tokenizer outlives it.
std::function<std::vector<std::pair<size_t, size_t>>(std::string_view)> own_tokens_of(const Tokenizer& tokenizer);

}  // namespace qgen
