// --batch: JSON lines in, JSON lines out in order, flushed one by one, the model loaded once. A bad line gets an
// error object and the run goes on. Every line starts from an empty cache, so its answer does not depend on the
// others.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "cli/answer.h"
#include "cli/batch_request.h"
#include "cli/line_reader.h"
#include "cli/report.h"
#include "cli/report_file.h"
#include "cli/terminal.h"
#include "generate/generation.h"

namespace qgen::cli {
namespace {

struct Totals {
  int64_t lines = 0, failed = 0, prompt_tokens = 0, output_tokens = 0, drafted_tokens = 0, accepted_tokens = 0;
  double prompt_seconds = 0, output_seconds = 0;
};

class Batch {
 public:
  explicit Batch(const AnswerOptions& options) : options_(options), model_(options.model, false) {
    model_.logit_bias(options.logit_bias);  // a wrong one ends the run, not each line
    load(model_, 1, options.report.quiet);
  }

  // A line too long to be read gets its error, and the run goes on.
  bool refuse(int64_t number, size_t most) {
    ++totals_.lines;
    ++totals_.failed;
    number_ = number;
    write_error(
        Error(ErrorKind::kUsage, fmt::format("line {}: too long (expected at most {} bytes)", number, most), ""),
        "null");
    return noted_signal() == 0;
  }

  // Answers line `number`; false once a signal came.
  bool take(const std::string& text, int64_t number) {
    ++totals_.lines;
    number_ = number;
    BatchRequest request;
    std::string out;
    try {
      const std::string subject = fmt::format("line {}", number);
      out = with_memory_for(subject, text.size(), [&] {
        read_batch_request(text, number, options_, request);
        return answer_line(request);
      });
    } catch (const Error& error) {
      ++totals_.failed;
      write_error(error, request.id);
      return noted_signal() == 0;
    }
    print_stdout(out + "\n");
    return noted_signal() == 0;
  }

  void print_totals() const;
  int exit_code() const { return noted_signal() != 0 ? 128 + noted_signal() : totals_.failed > 0 ? 1 : 0; }

 private:
  void write_error(const Error& error, const std::string& id) const {
    print_stdout(fmt::format(R"({{"schema":1,"line":{},"id":{},"error":{{"code":{},"message":{},"hint":{}}}}})"
                             "\n",
                             number_, id, int(error.kind()), json_quote(error.message()),
                             error.hint().empty() ? "null" : json_quote(error.hint())));
  }

  std::string answer_line(const BatchRequest& request) {
    const AnswerOptions& options = request.options;
    SamplingFlags flags = options.sampling;
    flags.logit_bias = model_.logit_bias(options.logit_bias);
    const ModelInput input = batch_input(request, model_);
    check_fits(input, model_);
    GenerationSettings settings;
    settings.sampling = model_.sampling(flags);
    settings.stops = options.stops;
    settings.max_tokens = options.max_tokens;
    settings.logprobs = options.logprobs;
    settings.prompt_lookup = options.prompt_lookup;
    settings.split_reasoning = input.chat_template && options.reasoning.show != "show";
    settings.control = terminal_control(options.report.quiet);
    std::string answer, thinking;
    Session session(model_.engine());
    const Generation g = generate(session, model_, input, settings, [&](const ReasoningPiece& piece) {
      (piece.thinking ? thinking : answer) += piece.text;
    });
    totals_.prompt_tokens += g.prompt_tokens;
    totals_.output_tokens += int64_t(g.tokens.size());
    totals_.drafted_tokens += g.drafted_tokens;
    totals_.accepted_tokens += g.accepted_tokens;
    totals_.prompt_seconds += g.prompt_seconds;
    totals_.output_seconds += g.output_seconds;
    std::string out =
        fmt::format(R"({{"schema":1,"line":{},"id":{},"text":{})", number_, request.id, json_quote(answer));
    if (!thinking.empty() && options.reasoning.show == "auto")
      out += fmt::format(",\"reasoning\":{}", json_quote(thinking));
    out += fmt::format(
        R"(,"stop":{},"stop_string":{},"prompt_tokens":{},"output_tokens":{},"thinking_tokens":{},"seed":{},"seconds":{:.6f},"logits_hash":{})",
        json_quote(g.stop), g.stop_string.empty() ? "null" : json_quote(g.stop_string), g.prompt_tokens,
        g.tokens.size(), g.thinking_tokens, settings.sampling.seed.value, g.prompt_seconds + g.output_seconds,
        g.logits_hash == 0 ? "null" : fmt::format("\"{:08x}\"", g.logits_hash));
    if (options.logprobs > 0) out += fmt::format(",\"logprobs\":{}", logprobs_json(g, model_.tokenizer()));
    return out + "}";
  }

  const AnswerOptions& options_;
  TextModel model_;
  Totals totals_;
  int64_t number_ = 0;  // of the line at hand, in the file
};

void Batch::print_totals() const {
  const ReportOptions& report = options_.report;
  const bool wanted = report_wanted(report);
  const Totals& t = totals_;
  const auto per_second = [](int64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; };
  const std::string json = fmt::format(
      R"({{"schema":1,"model":{},"engine":{},"activations":{},"lines":{},"failed":{},"prompt_tokens":{},"prompt_seconds":{:.6f},"output_tokens":{},"output_seconds":{:.6f},"drafted_tokens":{},"accepted_tokens":{}}})",
      json_quote(model_.name()), json_quote(model_.engine().description()),
      json_quote(activations_name(model_.engine().activations())), t.lines, t.failed, t.prompt_tokens, t.prompt_seconds,
      t.output_tokens, t.output_seconds, t.drafted_tokens, t.accepted_tokens);
  if (!report.stats_file.empty()) {
    write_report_file(report.stats_file, json + "\n");
  }
  if (!wanted) return;
  if (report.stats == "json") return print_stderr(json + "\n");
  std::string text = fmt::format(
      "{} · {} lines, {} failed · prompts {} tokens, {:.0f} tok/s · answers {} tokens, {:.0f} tok/s",
      model_.engine().description(), t.lines, t.failed, t.prompt_tokens, per_second(t.prompt_tokens, t.prompt_seconds),
      t.output_tokens, per_second(t.output_tokens, t.output_seconds));
  if (options_.prompt_lookup > 0) text += fmt::format(" · drafts {}", drafts_text(t.drafted_tokens, t.accepted_tokens));
  print_stderr(text + "\n", Style::kDim);
}

}  // namespace

int answer_batch(const AnswerOptions& options) {
  if (options.prompt || options.file)
    fail(ErrorKind::kUsage, "--batch: no place for --prompt or --file", "write them as lines: {\"prompt\": \"…\"}");
  check_report_file(options.report);
  // A document takes some fifteen times the memory of its text.
  constexpr size_t kMaxLineBytes = size_t{64} << 20;
  LineReader input(options.batch, fmt::format("--batch {}", options.batch), kMaxLineBytes);
  Batch batch(options);
  start_answer();
  std::string line;
  for (int64_t number = 1; input.next(line); ++number) {
    if (!input.cut() && line.find_first_not_of(" \t\r") == line.npos) continue;
    if (!(input.cut() ? batch.refuse(number, kMaxLineBytes) : batch.take(line, number))) break;
  }
  end_answer();
  batch.print_totals();
  return batch.exit_code();
}

}  // namespace qgen::cli
