// From the name of a model to something that can run: the plan, the tokenizer, the memory account, the engine.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/model_files.h"
#include "chat/template.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "model/plan.h"
#include "tokenizer/tokenizer.h"

namespace qgen::cli {

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // of prompts and texts

struct LoadedModel {
  std::string name;
  std::unique_ptr<Plan> plan;
  std::unique_ptr<Engine> engine;
  int64_t context = 0;
  double load_seconds = 0;
  const EngineRow* engine_row = nullptr;
  EngineOptions engine_options;
};

// A text for a command: a file, standard input for "-", and that too where nothing is named and it is no terminal.
// A usage Error that begins with the command's name if there is none.
std::string read_text(const std::string& input, std::string_view command);

// The plan from the files' headers, nothing else. `may_declare`: where the weights are missing, from config.json alone.
std::unique_ptr<Plan> open_plan(const ModelOptions& options, bool may_declare = false);

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
};
// At least `needed` tokens must fit in the context. A context that nobody asked for is made smaller until it fits and
// leaves a tenth of the memory to others.
Placement place(const Plan& plan, const ModelOptions& options, int64_t needed);
// The memory Error that says what a placement needs and what would fit: `hint`, or a smaller --context.
[[noreturn]] void fail_placement(const Plan& plan, const Placement& placement, std::string hint = {});

// Places the plan (exit 4 with what would fit), reads the weights into memory and makes the engine, showing how far
// it is on a terminal unless `quiet`. A `needed` beyond the model's own context is allowed only with an explicit
// --context or `may_exceed`.
LoadedModel load_model(std::unique_ptr<Plan> plan, const ModelOptions& options, int64_t needed, bool quiet,
                       bool may_exceed = false);

// --kv as the engines' type.
KvType parse_kv(const std::string& name);
// --activations as the engines'.
Activations parse_activations(const std::string& name);

// The largest context up to `limit` whose account fits into `memory` bytes; 0 if not even one token does.
int64_t largest_context(const Plan& plan, const EngineRow& engine, EngineOptions options, int64_t limit, double memory);

// Ids between commas, white space or brackets, each below `vocab`; a usage Error that begins with `subject`.
std::vector<TokenId> parse_token_ids(std::string_view text, std::string_view subject, int64_t vocab);

// A model Error if the tokenizer gives ids that the model has no scores for.
void check_vocabulary(std::span<const TokenId> ids, const Plan& plan);

// A line on standard error where weights are not numbers.
void warn_about_weights(const LoadedModel& model);

// The context the model was made for, with the factor of those rotary scalings that extend it.
int64_t model_context(const Description& model);

// generation_config.json, if there is one.
std::unique_ptr<JsonDocument> read_generation_config(const ModelFiles& files);

// The union of the end tokens of config.json, generation_config.json and the tokenizer.
std::vector<TokenId> end_tokens(const Description& model, const JsonDocument* generation_config,
                                const ModelFiles& files, const Tokenizer& tokenizer);

// The tokenizer of a model folder, or a model Error that says what is missing.
std::unique_ptr<Tokenizer> load_tokenizer(const ModelFiles& files);

// "8.8 GiB", "302 KiB"
std::string format_bytes(double bytes);
// "8.2B", "135M", "260K"
std::string parameters_text(int64_t count);

}  // namespace qgen::cli
