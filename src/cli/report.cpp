#include "cli/report.h"

#include <bit>

#include <fmt/format.h>

namespace qgen::cli {
namespace {

std::string parameters_text(int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", double(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.0f}M", double(count) / 1e6);
  return fmt::format("{:.0f}K", double(count) / 1e3);
}

std::string rate(double per_second) { return fmt::format("{:.{}f}", per_second, per_second < 100 ? 1 : 0); }

std::string duration(double seconds) {
  return seconds < 1 ? fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.01 ? 2 : 0)
                     : fmt::format("{:.2f} s", seconds);
}

}  // namespace

double Report::tokens_per_second() const {
  return output_tokens > 1 && output_seconds > 0 ? double(output_tokens - 1) / output_seconds : 0;
}

double Report::decode_bandwidth() const {
  const Plan& plan = *model->plan;
  const MemoryUse memory = model->engine->memory();
  const double average_length = double(prompt_tokens) + double(output_tokens) / 2;
  const double kv = double(memory.kv) * average_length / double(model->context);
  return tokens_per_second() * (double(plan.bytes_per_token()) + kv);
}

uint32_t hash_logits(std::span<const float> logits) {
  uint32_t hash = 2166136261u;
  for (const float value : logits) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i, bits >>= 8) hash = (hash ^ (bits & 0xFF)) * 16777619u;
  }
  return hash;
}

std::string report_text(const Report& report, bool verbose) {
  const LoadedModel& model = *report.model;
  const Plan& plan = *model.plan;
  const MemoryUse memory = model.engine->memory();
  std::string out = fmt::format("{} {} · {} · {} · context {} · {}", plan.model.family,
                                parameters_text(plan.parameters()), plan.method(), model.engine->description(),
                                model.context, report.chat_template ? "chat template" : "no chat template");
  out += report.sampling.greedy() ? " · greedy" : fmt::format(" · seed {}", report.sampling.seed.value);
  const double weights = double(plan.weight_bytes());
  out += fmt::format("\n  load    {} in {} ({}/s)", format_bytes(weights), duration(model.load_seconds),
                     format_bytes(weights / std::max(model.load_seconds, 1e-9)));
  out += fmt::format("\n  ram     {} weights + {} kv + {} work = {}", format_bytes(double(memory.weights)),
                     format_bytes(double(memory.kv)), format_bytes(double(memory.work)),
                     format_bytes(double(memory.total())));
  out += fmt::format("\n  prompt  {} tokens, {} tok/s, first token {}", report.prompt_tokens,
                     rate(double(report.prompt_tokens) / std::max(report.prompt_seconds, 1e-9)),
                     duration(report.first_token_seconds));
  out += fmt::format("\n  output  {} tokens", report.output_tokens);
  if (report.thinking_tokens > 0)
    out += fmt::format(" ({} thinking{})", report.thinking_tokens, report.thinking_hidden ? ", not shown" : "");
  if (report.tokens_per_second() > 0) {
    out += fmt::format(", {} tok/s, {:.1f} GB/s", rate(report.tokens_per_second()), report.decode_bandwidth() / 1e9);
    if (report.read_bandwidth > 0) {
      out += fmt::format(" ({:.0f}% of the memory's {:.1f})", 100 * report.decode_bandwidth() / report.read_bandwidth,
                         report.read_bandwidth / 1e9);
    }
  }
  out += fmt::format(", stop: {}        logits #{:08x}\n", report.stop, report.logits_hash);
  if (plan.nan_codes() > 0) out += fmt::format("  warning {} fp8 codes of the weights are NaN\n", plan.nan_codes());
  if (verbose) {
    const SamplingSettings& s = report.sampling;
    const auto line = [&](std::string_view name, const auto& setting) {
      out += fmt::format("  {:<19} {} ({})\n", name, setting.value, origin_name(setting.origin));
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
    for (const auto& ignored : plan.ignored) out += fmt::format("  ignored {}: {}\n", ignored.tensor, ignored.reason);
  }
  return out;
}

std::string report_json(const Report& report, const Tokenizer& tokenizer) {
  const LoadedModel& model = *report.model;
  const Plan& plan = *model.plan;
  const MemoryUse memory = model.engine->memory();
  const SamplingSettings& s = report.sampling;
  const auto setting = [](const auto& value) {
    return fmt::format(R"({{"value":{},"origin":{}}})", value.value, json_quote(origin_name(value.origin)));
  };
  std::string out = fmt::format(
      R"({{"schema":1,"model":{},"family":{},"parameters":{},"method":{},"engine":{},"context":{},"chat_template":{},)"
      R"("load":{{"bytes":{},"seconds":{:.6f}}},"memory":{{"weights":{},"kv":{},"work":{},"total":{}}},)"
      R"("prompt":{{"tokens":{},"seconds":{:.6f},"first_token_seconds":{:.6f}}},)"
      R"("output":{{"tokens":{},"thinking_tokens":{},"seconds":{:.6f},"tokens_per_second":{:.3f},"bytes_per_second":{:.0f},)"
      R"("read_bandwidth":{:.0f}}},"stop":{},"stop_string":{},"logits_hash":"{:08x}","nan_weights":{},"ignored_tensors":{},)",
      json_quote(model.name), json_quote(plan.model.family), plan.parameters(), json_quote(plan.method()),
      json_quote(model.engine->description()), model.context, report.chat_template, plan.weight_bytes(),
      model.load_seconds, memory.weights, memory.kv, memory.work, memory.total(), report.prompt_tokens,
      report.prompt_seconds, report.first_token_seconds, report.output_tokens, report.thinking_tokens,
      report.output_seconds, report.tokens_per_second(), report.decode_bandwidth(), report.read_bandwidth,
      json_quote(report.stop), report.stop_string.empty() ? "null" : json_quote(report.stop_string), report.logits_hash,
      plan.nan_codes(), plan.ignored.size());
  out += fmt::format(
      R"("sampling":{{"temperature":{},"top_k":{},"top_p":{},"min_p":{},"typical_p":{},"repetition_penalty":{},"presence_penalty":{},)"
      R"("frequency_penalty":{},"seed":{}}})",
      setting(s.temperature), setting(s.top_k), setting(s.top_p), setting(s.min_p), setting(s.typical_p),
      setting(s.repetition_penalty), setting(s.presence_penalty), setting(s.frequency_penalty), setting(s.seed));
  if (!report.logprobs.empty()) {
    const auto one = [&](const TokenLogprob& entry) {
      return fmt::format(R"({{"id":{},"piece":{},"logprob":{:.6f}}})", entry.token,
                         json_quote(tokenizer.piece_of(entry.token)), entry.logprob);
    };
    out += R"(,"logprobs":[)";
    for (size_t i = 0; i < report.logprobs.size(); ++i) {
      const LogprobEntry& entry = report.logprobs[i];
      out += fmt::format(R"({}{{"chosen":{},"top":[)", i == 0 ? "" : ",", one(entry.chosen));
      for (size_t j = 0; j < entry.top.size(); ++j) out += (j == 0 ? "" : ",") + one(entry.top[j]);
      out += "]}";
    }
    out += "]";
  }
  return out + "}\n";
}

}  // namespace qgen::cli
