#include "cli/report.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/report_file.h"
#include "cli/terminal.h"
#include "cli/text_width.h"
#include "cpu/isa/targets.h"
#include "engine/shortlist.h"
#include "generate/sampler.h"
#include "quantize/failed_mark.h"

namespace qgen::cli {
namespace {

std::string rate(double per_second) { return fmt::format("{:.{}f}", per_second, per_second < 100 ? 1 : 0); }

std::string duration(double seconds) {
  return seconds < 1 ? fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.01 ? 2 : 0)
                     : fmt::format("{:.2f} s", seconds);
}

// The speed of memory, on the CPU measured on the weights themselves; not for models that fit into caches.
double measure_read_bandwidth(const Plan& plan, const EngineRow& engine, const EngineOptions& options) {
  if (!engine.in_ram()) return engine.measure(options, false).read_bytes_per_second;
  constexpr size_t kSmallest = 64 << 20, kLargest = 1 << 30;
  const Weight* largest = &plan.weights.front();
  for (const Weight& weight : plan.weights) {
    if (weight.data.size() > largest->data.size()) largest = &weight;
  }
  // Tensors lie one after the other in a mapped file, so the bytes after the largest one are weights as well.
  const auto& tensors = plan.checkpoint.tensors();
  size_t bytes = largest->data.size();
  for (const TensorView& tensor : tensors) {
    if (tensor.bytes.data() == largest->data.data() + bytes) bytes += tensor.bytes.size();
  }
  if (bytes < kSmallest) return 0;
  cpu::ThreadPool pool(options.threads);
  return cpu::read_bandwidth(pool, cpu::find_target(options.target), {largest->data.data(), std::min(bytes, kLargest)});
}

}  // namespace

double Report::decode_bandwidth() const {
  const Plan& plan = *model->plan;
  const int64_t average_position = generation.prompt_tokens + int64_t(generation.tokens.size()) / 2;
  if (generation.output_calls == 0 || generation.output_seconds == 0) return 0;
  // Drafts, and a shortlist's first tokens and rests, in which the whole head is read, are left out of account.
  const std::vector<TokenChoice> choices = Sampler(sampling).upcoming(1);
  const bool shortlist = generation.logprobs.empty() && !choices.empty() && takes_shortlist(choices[0]);
  const size_t weights = shortlist ? bytes_per_token(plan, model->engine_options) : plan.bytes_per_token();
  const double bytes = double(generation.output_calls) *
                           (double(weights) + kv_bytes_read(plan, average_position, model->engine_options.kv)) +
                       double(generation.guessed_tokens) * double(bytes_per_guess(plan, model->engine_options));
  return bytes / generation.output_seconds;
}

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string drafts_text(int64_t drafted, int64_t accepted) {
  std::string out = fmt::format("{} tokens", drafted);
  if (drafted > 0) out += fmt::format(", {} accepted ({:.0f}%)", accepted, 100.0 * double(accepted) / double(drafted));
  return out;
}

std::string_view cut_short(const Generation& generation, bool answered) {
  if (generation.stop == "interrupted") return "";
  if (generation.stop == "context") return "context";
  return !answered && generation.thinking_tokens > 0 ? "thinking" : "";
}

std::string cut_short_warning(std::string_view why, const Generation& generation, const LoadedModel& model) {
  if (why == "context")
    return fmt::format("{}: the context of {} tokens is full, the answer is not complete", model.name, model.context);
  if (why == "thinking") {
    return fmt::format("{}: no answer, all {} tokens were thinking (more --max-tokens, or --think off)", model.name,
                       generation.tokens.size());
  }
  return {};
}

std::string report_line(const Report& report) {
  constexpr size_t kMostColumns = 79, kLeastName = 16;
  const Generation& g = report.generation;
  const std::string name = one_line(report.model->name);
  std::string prompt = fmt::format(" · {} in", g.prompt_tokens);
  if (g.first_token_seconds > 0) prompt += fmt::format(", {}", duration(g.first_token_seconds));
  std::string output = fmt::format(" · {} out", g.tokens.size());
  const std::string thinking = g.thinking_tokens > 0 ? fmt::format(" ({} thinking)", g.thinking_tokens) : "";
  const std::string speed = g.tokens_per_second() > 0 ? fmt::format(", {} tok/s", rate(g.tokens_per_second())) : "";
  const std::string stop = fmt::format(" · {}", g.stop);
  const std::string seed = report.sampling.greedy() ? "" : fmt::format(" · seed {}", report.sampling.seed.value);
  // Where the line is too long the least important parts are left out first.
  for (const auto& line : {prompt + output + thinking + speed + stop + seed, prompt + output + thinking + speed + stop,
                           prompt + output + speed + stop, prompt + output + stop}) {
    const size_t columns = columns_of(line);
    if (columns + std::min(kLeastName, columns_of(name)) <= kMostColumns)
      return shortened(name, kMostColumns - columns) + line + "\n";
  }
  return shortened(name, kMostColumns) + "\n";
}

std::string report_text(const Report& report, bool verbose) {
  const LoadedModel& model = *report.model;
  const Plan& plan = *model.plan;
  const MemoryUse memory = model.engine->memory();
  std::string out = fmt::format("{} · {} {} · {} · {} · context {} · {}", one_line(model.name), plan.model.family,
                                parameters_text(plan.parameters()), plan.method(), model.engine->description(),
                                model.context, report.chat_template ? "chat template" : "no chat template");
  out += report.sampling.greedy() ? " · greedy" : fmt::format(" · seed {}", report.sampling.seed.value);
  const double weights = double(plan.weight_bytes());
  out += fmt::format("\n  load    {} in {} ({}/s)", format_bytes(weights), duration(model.load_seconds),
                     format_bytes(weights / std::max(model.load_seconds, 1e-9)));
  out += fmt::format("\n  {:<7} {} weights + {} kv + {} work = {}; ", model.engine_row->memory,
                     format_bytes(double(memory.weights)), format_bytes(double(memory.kv)),
                     format_bytes(double(memory.work)), format_bytes(double(memory.total())));
  const std::string touched = format_bytes(double(peak_resident_memory()));
  out += model.engine_row->in_ram() ? touched + " touched, program included" : touched + " of ram touched";
  const Generation& g = report.generation;
  out += fmt::format("\n  prompt  {} tokens", g.prompt_tokens);
  if (g.computed_tokens < g.prompt_tokens) out += fmt::format(" ({} new)", g.computed_tokens);
  out += fmt::format(", {} tok/s", rate(double(g.computed_tokens) / std::max(g.prompt_seconds, 1e-9)));
  if (g.first_token_seconds > 0) out += fmt::format(", first token {}", duration(g.first_token_seconds));
  out += fmt::format("\n  output  {} tokens", g.tokens.size());
  if (g.thinking_tokens > 0)
    out += fmt::format(" ({} thinking{})", g.thinking_tokens, report.thinking_hidden ? ", not shown" : "");
  if (g.tokens_per_second() > 0) {
    out += fmt::format(", {} tok/s, {:.1f} GB/s", rate(g.tokens_per_second()), report.decode_bandwidth() / 1e9);
    if (report.read_bandwidth > 0) {
      out += fmt::format(" ({:.0f}% of the memory's {:.1f})", 100 * report.decode_bandwidth() / report.read_bandwidth,
                         report.read_bandwidth / 1e9);
    }
  }
  out += fmt::format(", stop: {}", g.stop);
  if (g.logits_hash != 0) out += fmt::format("        logits #{:08x}", g.logits_hash);
  out += '\n';
  if (report.drafts) out += fmt::format("  drafts  {}\n", drafts_text(g.drafted_tokens, g.accepted_tokens));
  if (plan.nan_codes() > 0) out += fmt::format("  warning {} fp8 codes of the weights are NaN\n", plan.nan_codes());
  if (verbose) {
    const SamplingSettings& s = report.sampling;
    const auto line = [&](std::string_view name, const auto& setting) {
      out += fmt::format("  {:<19} {} ({})\n", name, setting.value, s.origin_text(setting.origin));
    };
    line("temperature", s.temperature);
    line("top-k", s.top_k);
    line("top-p", s.top_p);
    line("min-p", s.min_p);
    line("typical-p", s.typical_p);
    line("repeat-penalty", s.repetition_penalty);
    line("presence-penalty", s.presence_penalty);
    line("frequency-penalty", s.frequency_penalty);
    line("seed", s.seed);
    for (const EngineRow& row : engines()) {
      if (!row.available()) out += fmt::format("  {} not used: {}\n", row.name, row.problem());
    }
    for (const auto& ignored : plan.ignored)
      out += fmt::format("  ignored {}: {}\n", one_line(ignored.tensor), ignored.reason);
  }
  return out;
}

std::string logprobs_json(const Generation& generation, const Tokenizer& tokenizer) {
  const auto one = [&](const TokenLogprob& entry) {
    return fmt::format(R"({{"id":{},"piece":{},"logprob":{:.6f}}})", entry.token,
                       json_quote(tokenizer.piece_of(entry.token)), entry.logprob);
  };
  std::string out = "[";
  for (size_t i = 0; i < generation.logprobs.size(); ++i) {
    const LogprobEntry& entry = generation.logprobs[i];
    out += fmt::format(R"({}{{"chosen":{},"top":[)", i == 0 ? "" : ",", one(entry.chosen));
    for (size_t j = 0; j < entry.top.size(); ++j) out += (j == 0 ? "" : ",") + one(entry.top[j]);
    out += "]}";
  }
  return out + "]";
}

std::string texts_json(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(json_quote(text));
  return json_list(quoted);
}

std::string text_or_null(std::string_view text) { return text.empty() ? "null" : json_quote(text); }

std::string report_json(const Report& report, const Tokenizer& tokenizer) {
  const LoadedModel& model = *report.model;
  const Plan& plan = *model.plan;
  const MemoryUse memory = model.engine->memory();
  const SamplingSettings& s = report.sampling;
  const Generation& g = report.generation;
  const auto setting = [&](const auto& value) {
    return fmt::format(R"({{"value":{},"origin":{}}})", value.value, json_quote(s.origin_text(value.origin)));
  };
  std::string out = fmt::format(
      R"({{"schema":1,"model":{},"family":{},"parameters":{},"method":{},"engine":{},"activations":{},"context":{},"chat_template":{},)"
      R"("load":{{"bytes":{},"seconds":{:.6f}}},"memory":{{"weights":{},"kv":{},"work":{},"total":{},"peak":{}}},)"
      R"("prompt":{{"tokens":{},"computed":{},"seconds":{:.6f},"first_token_seconds":{}}},)"
      R"("output":{{"tokens":{},"thinking_tokens":{},"drafted_tokens":{},"accepted_tokens":{},"seconds":{:.6f},"tokens_per_second":{:.3f},"bytes_per_second":{:.0f},)"
      R"("read_bandwidth":{:.0f}}},"stop":{},"stop_string":{},"cut_short":{},"warnings":{},"logits_hash":{},"nan_weights":{},"ignored_tensors":{},)",
      json_quote(model.name), json_quote(plan.model.family), plan.parameters(), json_quote(plan.method()),
      json_quote(model.engine->description()), json_quote(activations_name(model.engine->activations())), model.context,
      report.chat_template, plan.weight_bytes(), model.load_seconds, memory.weights, memory.kv, memory.work,
      memory.total(), peak_resident_memory(), g.prompt_tokens, g.computed_tokens, g.prompt_seconds,
      g.tokens.empty() ? "null" : fmt::format("{:.6f}", g.first_token_seconds), g.tokens.size(), g.thinking_tokens,
      g.drafted_tokens, g.accepted_tokens, g.output_seconds, g.tokens_per_second(), report.decode_bandwidth(),
      report.read_bandwidth, json_quote(g.stop), text_or_null(g.stop_string), text_or_null(report.cut_short),
      texts_json(report.warnings), g.logits_hash == 0 ? "null" : fmt::format("\"{:08x}\"", g.logits_hash),
      plan.nan_codes(), plan.ignored.size());
  out += fmt::format(
      R"("sampling":{{"temperature":{},"top_k":{},"top_p":{},"min_p":{},"typical_p":{},"repetition_penalty":{},"presence_penalty":{},)"
      R"("frequency_penalty":{},"seed":{}}})",
      setting(s.temperature), setting(s.top_k), setting(s.top_p), setting(s.min_p), setting(s.typical_p),
      setting(s.repetition_penalty), setting(s.presence_penalty), setting(s.frequency_penalty), setting(s.seed));
  if (!g.logprobs.empty()) out += fmt::format(",\"logprobs\":{}", logprobs_json(g, tokenizer));
  return out + "}\n";
}

void refuse_dash(const std::string& file, std::string_view option) {
  if (file == "-")
    fail(ErrorKind::kUsage, fmt::format("{} -: standard output is for text", option), "a file; ./- if it is called so");
}

void check_report_file(const ReportOptions& options) {
  refuse_dash(options.stats_file, "--stats-file");
  if (!options.stats_file.empty()) prepare_report_file(options.stats_file);
}

ReportForm report_form(const ReportOptions& options) {
  if (options.stats == "json") return ReportForm::kJson;
  if (!options.stats.empty()) return ReportForm::kText;
  if (options.quiet) return ReportForm::kNone;
  if (options.verbose) return ReportForm::kText;
  return stdout_is_terminal() && stderr_is_terminal() ? ReportForm::kLine : ReportForm::kNone;
}

void print_report(const ReportOptions& options, Report& report, const Tokenizer& tokenizer) {
  const ReportForm form = report_form(options);
  const bool whole = form == ReportForm::kText || form == ReportForm::kJson || !options.stats_file.empty();
  if (whole && report.generation.tokens_per_second() > 0 && report.read_bandwidth == 0) {
    report.read_bandwidth =
        measure_read_bandwidth(*report.model->plan, *report.model->engine_row, report.model->engine_options);
  }
  if (!options.stats_file.empty()) write_report_file(options.stats_file, report_json(report, tokenizer));
  switch (form) {
    case ReportForm::kNone: break;
    case ReportForm::kLine: print_stderr(report_line(report), Style::kDim); break;
    case ReportForm::kText: print_stderr(report_text(report, options.verbose), Style::kDim); break;
    case ReportForm::kJson: print_stderr(report_json(report, tokenizer)); break;
  }
}

void load(TextModel& model, int64_t needed, bool quiet, Warnings& warnings) {
  model.load(needed, terminal_control(quiet).progress);
  warnings.add(nan_warning(model.loaded()));
  warnings.add(quantize::failed_warning(model.loaded().plan->checkpoint.location()));
}

}  // namespace qgen::cli
