// An 8-bit checkpoint from an unquantized one, in files that servers load as they are, with a report of how close it
// is.
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/input_text.h"
#include "cli/options.h"
#include "cli/quantize_report.h"
#include "cli/terminal.h"
#include "generate/generation.h"
#include "generate/scoring.h"
#include "quantize/failed_mark.h"
#include "quantize/job.h"

namespace qgen::cli {
namespace {

struct QuantizeOptions {
  ModelOptions model;
  quantize::JobOptions job;
  std::string format, mode = "max", out, statistics, verified = "5", report = "text";
  std::string evaluated;  // a text
  std::optional<double> rms_factor, percentile;
  int mse_steps = 50;
  int64_t block = 128;
  bool compat = false, quiet = false;
};

// Settings that their mode or format does not read would be lost in silence.
void refuse_idle(const QuantizeOptions& options, const TypedOptions& typed) {
  const auto refuse = [&](std::string_view option, bool read, std::string_view where) {
    if (typed.contains(option) && !read)
      fail(ErrorKind::kUsage, fmt::format("--{}: without effect", option), fmt::format("it belongs to {}", where));
  };
  refuse("rms-factor", options.mode == "rms", "--mode rms");
  refuse("percentile", options.mode == "percentile", "--mode percentile");
  refuse("mse-grid", options.mode == "mse", "--mode mse");
  refuse("input-stats", options.mode == "mse" || options.mode == "rms" || options.job.smoothing.has_value(),
         "--mode mse, --mode rms and --smooth");
  refuse("smooth", options.format == "int8" || options.format == "int8-tensor", "--to int8 and --to int8-tensor");
  refuse("resume", options.format != "q8_0", "formats in folders; a GGUF file appears once it is complete");
  refuse("block", options.format == "fp8", "--to fp8");
  refuse("compat", options.format == "fp8", "--to fp8");
}

quantize::JobOptions read_job(const QuantizeOptions& options) {
  if (options.job.smoothing && options.statistics.empty())
    fail(ErrorKind::kUsage, "--smooth: needs --input-stats", "`qgen calibrate` writes that file");
  quantize::JobOptions job = options.job;
  job.model = options.model.model;
  job.trust_tensors = options.model.trust_tensors;
  job.out = options.out;
  job.statistics = options.statistics;
  job.verified = read_number_or_word({"--verify", "all", -1}, options.verified);
  job.recipe.format = quantize::parse_format(options.format, "--to");
  job.recipe.mode = quantize::parse_mode(options.mode, "--mode");
  job.recipe.rms_factor = options.rms_factor.value_or(job.recipe.rms_factor);
  job.recipe.percentile = options.percentile.value_or(job.recipe.percentile);
  job.recipe.mse_steps = options.mse_steps;
  job.recipe.block = options.block;
  job.recipe.compat = options.compat;
  return job;
}

std::vector<TokenId> encode_evaluated(const std::string& text, const Plan& plan) {
  EncodeOptions encode;
  encode.parse_special_tokens = false;
  return load_tokenizer(plan.checkpoint.files())->encode(text, encode).ids;
}

// The text of --eval, before the work: it must be there, and the model must have a tokenizer for it.
std::string read_evaluated(const QuantizeOptions& options) {
  if (options.evaluated.empty()) return "";
  const std::string subject = fmt::format("--eval {}", options.evaluated);
  std::error_code ignored;
  if (options.evaluated != "-" &&
      std::filesystem::symlink_status(options.evaluated, ignored).type() == std::filesystem::file_type::not_found)
    fail(ErrorKind::kUsage, subject + ": no such file");
  std::string text = read_text(options.evaluated, "quantize", {});
  if (text.empty() || encode_evaluated(text, *open_plan(options.model, true)).size() < 2)
    fail(ErrorKind::kUsage, subject + ": fewer than two tokens");
  return text;
}

// Both models on that text.
std::optional<Evaluation> evaluate(const QuantizeOptions& options, const std::string& text, const RunControl& control) {
  if (text.empty()) return {};
  constexpr int64_t kWindow = 1024;
  ModelOptions made;
  made.model = options.out;
  auto plan = open_plan(made);
  const std::vector<TokenId> ids = encode_evaluated(text, *plan);
  check_vocabulary(ids, *plan);
  const int64_t window = std::min({kWindow, int64_t(ids.size()), plan->model.context});
  const LoadedModel model = load_model(std::move(plan), made, window, control.progress);
  const LoadedModel original = load_beside(model, made, options.model.model, "-m", window, control.progress);
  auto scores = score_text(model, &original, ids, {size_t(window), size_t(window)}, control);
  if (!scores) throw Exit{128 + noted_signal()};
  return Evaluation{options.evaluated, std::move(*scores)};
}

int quantize_model(const QuantizeOptions& options, const TypedOptions& typed) {
  require_model(options.model);
  if (options.format.empty())
    fail(ErrorKind::kUsage, "quantize: no format", fmt::format("--to {}", quantize::format_choices()));
  if (options.out.empty())
    fail(ErrorKind::kUsage, "quantize: no folder to write", "--out DIR, or --out FILE.gguf for --to q8_0");
  refuse_idle(options, typed);
  const quantize::JobOptions job = read_job(options);
  const bool text = options.report == "text";
  const std::string evaluated = read_evaluated(options);
  warn(quantize::failed_warning(locate_model(options.model.model)));
  start_answer();
  const RunControl terminal = terminal_control(options.quiet);
  quantize::JobControl control;
  const auto start = std::chrono::steady_clock::now();
  control.stopped = terminal.stopped;
  control.progress = [&](const quantize::ShardReport& shard, uint64_t done, uint64_t total) {
    if (!terminal.progress) return;
    terminal.progress([&] {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      return quantize_progress(shard, done, total, seconds);
    });
  };
  control.comparing = [&](const quantize::ShardReport& shard, size_t done, size_t all) {
    if (!terminal.progress) return;
    terminal.progress([&] {
      return fmt::format("comparing file {} of {}: matrix {} of {}", shard.index, shard.count, done + 1, all);
    });
  };
  control.shard_done = [&](const quantize::ShardReport& shard) {
    if (terminal.progress) terminal.progress({});
    if (text && !options.quiet) print_table(shard_line(shard));
  };
  quantize::JobReport report;
  try {
    report = quantize::run_job(job, control);
  } catch (const Error&) {
    if (noted_signal() == 0) throw;
    if (terminal.progress) terminal.progress({});
    write_stderr(job.recipe.is_gguf()
                     ? std::string("qgen: stopped; nothing was written\n")
                     : fmt::format("qgen: stopped; the same command with --resume goes on in {}\n", options.out));
    throw Exit{128 + noted_signal()};
  }
  const std::optional<Evaluation> evaluation = evaluate(options, evaluated, terminal);
  end_answer();
  for (const std::string& warning : report.warnings) warn(warning);
  if (!text) {
    print_stdout(job_json(job, report, evaluation));
  } else if (!options.quiet) {
    print_table(job_summary(job, report, evaluation));
  } else if (report.failed()) {
    write_stderr(fmt::format("qgen: {}: {}\n", options.out, kNotForUse));
  }
  return report.failed() ? int(ErrorKind::kRuntime) : 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<QuantizeOptions>();
  const auto typed = std::make_shared<TypedOptions>();
  constexpr std::string_view kScales = "How scales are found";
  constexpr std::string_view kFiles = "Files";
  std::vector<Option> options = {
      model_option(o->model),
      model_word(o->model),
      trust_tensors_option(o->model),
      {"--to",
       &o->format,
       "FORMAT",
       "the new format: fp8 (blocks of 128 x 128, as Qwen and DeepSeek publish), fp8-channel, fp8-tensor, int8 (a "
       "scale a row), int8-tensor or mxfp8 (compressed-tensors), or q8_0, a GGUF file for llama.cpp",
       {.choices = quantize::format_choices()}},
      {"--out", &o->out, "DIR", "the folder to write; the file, for q8_0"},
      {"--keep", &o->job.selection.keep, "PATTERN",
       "leave matrices with this in their name, or of this name with * and ?, as they are"},
      {"--only", &o->job.selection.only, "PATTERN", "quantize only matrices with this in their name"},
      {"--mode",
       &o->mode,
       "MODE",
       "where a scale comes from: max (the largest magnitude), rms, percentile, or mse, a search for the least squared "
       "error [max]",
       {.choices = "max,rms,percentile,mse", .group = kScales}},
      {"--rms-factor",
       &o->rms_factor,
       "X",
       "the largest code stands for X times the root mean square, at least for the largest magnitude [3]",
       {.lowest = 0, .highest = 1e6, .group = kScales}},
      {"--percentile",
       &o->percentile,
       "P",
       "the largest code stands for this percentile of the magnitudes [99.9]",
       {.lowest = 0, .highest = 100, .group = kScales}},
      {"--mse-grid",
       &o->mse_steps,
       "N",
       "how many scales the search tries, from half of the largest magnitude up to it [50]",
       {.lowest = 1, .highest = 10000, .group = kScales}},
      {"--input-stats",
       &o->statistics,
       "FILE",
       "weight the errors of rms and mse by these maxima of the inputs, a file of qgen calibrate",
       {.group = kScales}},
      {"--smooth",
       &o->job.smoothing,
       "ALPHA",
       "move the size of inputs into the weights behind a norm (SmoothQuant; 0.5 as published); it needs the inputs",
       {.lowest = 0, .highest = 1, .group = kScales}},
      {"--block",
       &o->block,
       "N",
       "rows and columns of a block of fp8 [128]",
       {.lowest = 16, .highest = 4096, .group = kScales}},
      {"--compat",
       &o->compat,
       "",
       "quantize as QuixiAI's quantize_fp8.py does, to the bit: codes by scales that are rounded afterwards",
       {.group = kScales}},
      {"--verify",
       &o->verified,
       "N|all",
       "read back this many matrices of each file and compare them with the original; 0 for none [5]",
       {.group = kFiles}},
      {"--eval",
       &o->evaluated,
       "FILE|-",
       "run both models on this text afterwards: their perplexities, and the Kullback-Leibler divergence",
       {.group = kFiles}},
      {"--report",
       &o->report,
       "FORM",
       "the form of the report on standard output: text or json [text]",
       {.choices = "text,json", .group = kFiles}},
      {"--resume",
       &o->job.resume,
       "",
       "go on in a folder that an earlier run left unfinished",
       {.group = kFiles, .typed_only = true}},
      {"--force",
       &o->job.force,
       "",
       "write into a folder that holds something, replacing files of the same names",
       {.group = kFiles, .typed_only = true}},
      {"-q,--quiet", &o->quiet, "", "print only warnings and errors", {.group = kFiles}}};
  Command::Bound bound{std::move(options), [o, typed] { return quantize_model(*o, *typed); }};
  bound.typed = typed.get();
  return bound;
}

constexpr Example kExamples[] = {
    {"qgen quantize -m ./finetune --to fp8 --out ./finetune-FP8", "for vLLM, SGLang and qgen"},
    {"qgen quantize -m ./finetune --to int8 --mode mse --verify all --out ./w8a8", "int8, a scale a row"},
    {"qgen quantize -m ./finetune --to q8_0 --out ./finetune-Q8_0.gguf", "for llama.cpp"},
    {"qgen quantize -m ./finetune --to fp8 --out ./finetune-FP8 --resume", "goes on after an interruption"}};

}  // namespace

const Command kQuantizeCommand = {"quantize", "write an 8-bit checkpoint that vLLM and SGLang load as it is", kExamples,
                                  bind};

}  // namespace qgen::cli
