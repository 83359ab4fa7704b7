#include "cli/batch_report.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/report_file.h"
#include "generate/generation.h"

namespace qgen::cli {
namespace {

// Lines of a file that can be read twice, blank ones left out; 0 for others.
int64_t count_lines(const std::string& file) {
  std::error_code ignored;
  if (file == "-" || !std::filesystem::is_regular_file(file, ignored)) return 0;
  std::ifstream stream(file, std::ios::binary);
  char buffer[1 << 16];
  bool blank = true;
  int64_t count = 0;
  while (stream.read(buffer, sizeof buffer) || stream.gcount() > 0) {
    for (const char c : std::string_view(buffer, size_t(stream.gcount()))) {
      if (c == '\n') {
        count += !blank;
        blank = true;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        blank = false;
      }
    }
  }
  return count + !blank;
}

std::string totals_json(const BatchTotals& t, const TextModel& model, const Warnings& warnings) {
  return fmt::format(
      R"({{"schema":1,"model":{},"engine":{},"activations":{},"parallel":{},"lines":{},"failed":{},"skipped":{},"cut_short":{},"prompt_tokens":{},"computed_tokens":{},"prompt_seconds":{:.6f},"output_tokens":{},"output_seconds":{:.6f},"drafted_tokens":{},"accepted_tokens":{},"warnings":{}}})",
      json_quote(model.name()), json_quote(model.engine().description()),
      json_quote(activations_name(model.engine().activations())), model.loaded().lines, t.lines, t.failed, t.skipped,
      t.cut_short, t.prompt_tokens, t.computed_tokens, t.prompt_seconds, t.output_tokens, t.output_seconds,
      t.drafted_tokens, t.accepted_tokens, texts_json(warnings.all()));
}

std::string totals_text(const BatchTotals& t) {
  const auto per_second = [](int64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; };
  std::string out = fmt::format("{}, {} failed", counted(t.lines, "line"), t.failed);
  if (t.skipped > 0) out += fmt::format(", {} done before", t.skipped);
  return out + fmt::format(" · {} tokens in, {:.0f} tok/s · {} out, {:.0f} tok/s", t.prompt_tokens,
                           per_second(t.prompt_tokens, t.prompt_seconds), t.output_tokens,
                           per_second(t.output_tokens, t.output_seconds));
}

}  // namespace

void BatchTotals::add(const BatchAnswer& answer) {
  const Generation& g = answer.generation;
  prompt_tokens += g.prompt_tokens;
  computed_tokens += g.computed_tokens;
  output_tokens += int64_t(g.tokens.size());
  drafted_tokens += g.drafted_tokens;
  accepted_tokens += g.accepted_tokens;
  prompt_seconds += g.prompt_seconds;
  output_seconds += g.output_seconds;
  cut_short += !answer.cut_short.empty();
}

BatchProgress::BatchProgress(const AnswerOptions& options, const BatchTotals& totals)
    : line_(options.report.quiet), totals_(totals), clears_(stdout_is_terminal()) {
  if (!options.report.quiet && stderr_is_terminal()) expected_ = count_lines(options.batch);
}

void BatchProgress::show() {
  line_.show([this] {
    const int64_t done = totals_.lines + totals_.skipped;
    std::string out = expected_ > 0 ? fmt::format("{} of {}", done, counted(expected_, "line")) : counted(done, "line");
    if (totals_.failed > 0) out += fmt::format(", {} failed", totals_.failed);
    return out + fmt::format(" · {} tokens written", totals_.output_tokens);
  });
}

void BatchProgress::before_output() {
  if (clears_) line_.clear();
}

void print_totals(const AnswerOptions& options, const BatchTotals& totals, const TextModel& model,
                  const Warnings& warnings) {
  const ReportOptions& report = options.report;
  const std::string json = totals_json(totals, model, warnings);
  if (!report.stats_file.empty()) {
    write_report_file(report.stats_file, json + "\n");
  }
  switch (report_form(report)) {
    case ReportForm::kNone: break;
    case ReportForm::kLine: print_stderr(totals_text(totals) + "\n", Style::kDim); break;
    case ReportForm::kText: {
      std::string text =
          fmt::format("{} · {}\n  {}", one_line(model.name()), model.engine().description(), totals_text(totals));
      if (options.prompt_lookup > 0 || options.model.drafts())
        text += fmt::format(" · drafts {}", drafts_text(totals.drafted_tokens, totals.accepted_tokens));
      print_stderr(text + "\n", Style::kDim);
      break;
    }
    case ReportForm::kJson: print_stderr(json + "\n"); break;
  }
}

}  // namespace qgen::cli
