// --batch: JSON lines in, JSON lines out in order, flushed one by one, the model loaded once. A bad line gets an
// error object and the run goes on. Every line starts from an empty cache, so its answer does not depend on the
// others.
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/batch_answer.h"
#include "cli/batch_done.h"
#include "cli/batch_request.h"
#include "cli/line_reader.h"
#include "cli/notes.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "generate/generation.h"

namespace qgen::cli {
namespace {

struct Totals {
  int64_t lines = 0, failed = 0, skipped = 0, cut_short = 0;
  int64_t prompt_tokens = 0, output_tokens = 0, drafted_tokens = 0, accepted_tokens = 0;
  double prompt_seconds = 0, output_seconds = 0;
  std::string first_error;

  void add(const BatchAnswer& answer) {
    const Generation& g = answer.generation;
    prompt_tokens += g.prompt_tokens;
    output_tokens += int64_t(g.tokens.size());
    drafted_tokens += g.drafted_tokens;
    accepted_tokens += g.accepted_tokens;
    prompt_seconds += g.prompt_seconds;
    output_seconds += g.output_seconds;
    cut_short += !answer.cut_short.empty();
  }
};

// Runs requests, one after the other. Whatever runs several together takes its place.
class BatchRunner {
 public:
  // `progress` is called while a request runs.
  BatchRunner(const TextModel& model, std::function<void()> progress) : model_(model), progress_(std::move(progress)) {}

  BatchAnswer run(const BatchRequest& request) {
    const AnswerOptions& options = request.options;
    const ModelInput input = batch_input(request, model_);
    GenerationSettings settings;
    settings.sampling = sampling(request);
    settings.stops = options.stops;
    settings.max_tokens = options.max_tokens;
    settings.logprobs = options.logprobs;
    settings.prompt_lookup = options.prompt_lookup;
    settings.split_reasoning = input.chat_template && options.reasoning.show != "show";
    settings.control = {[this](const auto&) { progress_(); }, [] { return noted_signal() != 0; }};
    BatchAnswer answer;
    answer.seed = settings.sampling.seed.value;
    Session session(model_.engine());
    answer.generation = generate(session, model_, input, settings, [&](const ReasoningPiece& piece) {
      (piece.thinking ? answer.reasoning : answer.text) += piece.text;
      progress_();
    });
    answer.cut_short = cut_short(answer.generation, answer.text.find_first_not_of(" \t\r\n") != answer.text.npos);
    if (options.reasoning.show == "hide") answer.reasoning.clear();
    return answer;
  }

 private:
  SamplingSettings sampling(const BatchRequest& request) const {
    SamplingFlags flags = request.options.sampling;
    try {
      flags.logit_bias = model_.logit_bias(request.options.logit_bias);
    } catch (const Error& error) {
      fail(error.kind(), fmt::format("line {}: logit_bias: {}", request.line, error.message()), error.hint());
    }
    return model_.sampling(flags);
  }

  const TextModel& model_;
  std::function<void()> progress_;
};

// How far the batch is, on a terminal.
class BatchProgress {
 public:
  BatchProgress(const AnswerOptions& options, const Totals& totals)
      : line_(options.report.quiet), totals_(totals), clears_(stdout_is_terminal()) {
    if (!options.report.quiet && stderr_is_terminal()) count_lines(options.batch);
  }

  void show() {
    line_.show([this] {
      std::string out = fmt::format("{}{} lines", totals_.lines + totals_.skipped,
                                    expected_ > 0 ? fmt::format(" of {}", expected_) : "");
      if (totals_.failed > 0) out += fmt::format(", {} failed", totals_.failed);
      return out + fmt::format(" · {} tokens written", totals_.output_tokens);
    });
  }
  // Makes room for a line on the same terminal.
  void before_output() {
    if (clears_) line_.clear();
  }
  void end() { line_.clear(); }

 private:
  // Lines of a file that can be read twice.
  void count_lines(const std::string& file) {
    std::error_code ignored;
    if (file == "-" || !std::filesystem::is_regular_file(file, ignored)) return;
    std::ifstream stream(file, std::ios::binary);
    char buffer[1 << 16];
    bool blank = true;
    while (stream.read(buffer, sizeof buffer) || stream.gcount() > 0) {
      for (const char c : std::string_view(buffer, size_t(stream.gcount()))) {
        if (c == '\n') {
          expected_ += !blank;
          blank = true;
        } else if (c != ' ' && c != '\t' && c != '\r') {
          blank = false;
        }
      }
    }
    expected_ += !blank;
  }

  ProgressLine line_;
  const Totals& totals_;
  bool clears_;
  int64_t expected_ = 0;  // 0: unknown
};

std::string totals_json(const Totals& t, const TextModel& model, const Warnings& warnings) {
  return fmt::format(
      R"({{"schema":1,"model":{},"engine":{},"activations":{},"lines":{},"failed":{},"skipped":{},"cut_short":{},"prompt_tokens":{},"prompt_seconds":{:.6f},"output_tokens":{},"output_seconds":{:.6f},"drafted_tokens":{},"accepted_tokens":{},"warnings":{}}})",
      json_quote(model.name()), json_quote(model.engine().description()),
      json_quote(activations_name(model.engine().activations())), t.lines, t.failed, t.skipped, t.cut_short,
      t.prompt_tokens, t.prompt_seconds, t.output_tokens, t.output_seconds, t.drafted_tokens, t.accepted_tokens,
      texts_json(warnings.all()));
}

std::string totals_text(const Totals& t) {
  const auto per_second = [](int64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; };
  std::string out = fmt::format("{} lines, {} failed", t.lines, t.failed);
  if (t.skipped > 0) out += fmt::format(", {} done before", t.skipped);
  return out + fmt::format(" · {} tokens in, {:.0f} tok/s · {} out, {:.0f} tok/s", t.prompt_tokens,
                           per_second(t.prompt_tokens, t.prompt_seconds), t.output_tokens,
                           per_second(t.output_tokens, t.output_seconds));
}

void print_totals(const AnswerOptions& options, const Totals& totals, const TextModel& model,
                  const Warnings& warnings) {
  const ReportOptions& report = options.report;
  const std::string json = totals_json(totals, model, warnings);
  if (!report.stats_file.empty()) {
    std::ofstream file(report.stats_file);
    if (!(file << json << '\n').flush())
      fail(ErrorKind::kRuntime, fmt::format("--stats-file {}: cannot write", report.stats_file));
  }
  switch (report_form(report)) {
    case ReportForm::kNone: break;
    case ReportForm::kLine: write_stderr(totals_text(totals) + "\n", Style::kDim); break;
    case ReportForm::kText: {
      std::string text = fmt::format("{} · {}\n  {}", model.name(), model.engine().description(), totals_text(totals));
      if (options.prompt_lookup > 0)
        text += fmt::format(" · drafts {}", drafts_text(totals.drafted_tokens, totals.accepted_tokens));
      write_stderr(text + "\n", Style::kDim);
      break;
    }
    case ReportForm::kJson: write_stderr(json + "\n"); break;
  }
}

// Whether standard output appends to this very file.
bool stdout_is(const std::string& file) {
  struct stat out {
  }, other{};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::stat(file.c_str(), &other) == 0 && out.st_dev == other.st_dev &&
         out.st_ino == other.st_ino && S_ISREG(out.st_mode);
}

void refuse_other_tasks(const AnswerOptions& options) {
  if (options.prompt || options.file)
    fail(ErrorKind::kUsage, "--batch: no place for --prompt or --file", "write them as lines: {\"prompt\": \"…\"}");
  if (options.resume || options.save)
    fail(ErrorKind::kUsage, "--batch: no place for --resume or --save",
         "a line may hold a whole conversation: \"messages\"");
}

// All of a run but where its lines come from.
class Batch {
 public:
  // Loads the model; what is wrong with the options ends the run here, not each line.
  Batch(const AnswerOptions& options, DoneLines done, Warnings& warnings)
      : options_(options), done_(std::move(done)), warnings_(warnings), model_(options.model, false) {
    SamplingFlags flags = options.sampling;
    flags.logit_bias = model_.logit_bias(options.logit_bias);
    model_.sampling(flags);
    note_reasoning(options.reasoning, options.typed, options.raw, model_, warnings);
    if (options.typed.contains("json")) warnings.add("--json: no effect, --batch writes JSON as it is");
    if (done_.missing()) warnings.add(fmt::format("--done {}: no such file, no line is left out", options.done));
    load(model_, 1, options.report.quiet, warnings);
    note_context(options.model, model_, warnings);
    torn_ = done_.torn() && stdout_is(options.done);
  }

  // Writes the answer to a line, which may be an error.
  void take(std::string_view line, int64_t number) {
    BatchRequest request;
    std::string out;
    try {
      read_batch_request(line, number, options_, request);
      if (done_.take(request.id, number)) {
        ++totals_.skipped;
        return;
      }
      const BatchAnswer answer = runner_.run(request);
      totals_.add(answer);
      out = answer_line(request, answer, model_.name(), model_.tokenizer());
    } catch (const Error& error) {
      out = failed_line(request, error);
    } catch (const std::bad_alloc&) {
      out = failed_line(request, Error(ErrorKind::kMemory, fmt::format("line {}: out of memory", number), ""));
    }
    ++totals_.lines;
    progress_.before_output();
    print_stdout((std::exchange(torn_, false) ? "\n" : "") + out + "\n");
  }

  // Reports the whole run; its exit code, or an Error that says how many lines failed.
  int finish() {
    progress_.end();
    const Totals& t = totals_;
    if (t.cut_short > 0) {
      warnings_.add(
          fmt::format("{} of {} answers are cut short, their lines say how (\"cut_short\", \"finish_reason\")",
                      t.cut_short, t.lines));
    }
    print_totals(options_, t, model_, warnings_);
    if (noted_signal() != 0) return 128 + noted_signal();
    if (t.failed == 0) return 0;
    fail(ErrorKind::kRuntime, fmt::format("{} of {} lines failed", t.failed, t.lines),
         fmt::format("the first: {}", t.first_error));
  }

 private:
  std::string failed_line(const BatchRequest& request, const Error& error) {
    if (totals_.failed++ == 0) totals_.first_error = error.message();
    return error_line(request, error);
  }

  const AnswerOptions& options_;
  DoneLines done_;
  Warnings& warnings_;
  TextModel model_;
  Totals totals_;
  BatchProgress progress_{options_, totals_};
  BatchRunner runner_{model_, [this] { progress_.show(); }};
  bool torn_ = false;  // the file that the first answer is appended to ends within a line
};

}  // namespace

int answer_batch(const AnswerOptions& options) {
  refuse_other_tasks(options);
  check_report_file(options.report);
  DoneLines done;
  if (!options.done.empty()) done = DoneLines::read(options.done);
  LineReader input(options.batch, fmt::format("--batch {}", options.batch));
  Warnings warnings(options.report);
  Batch batch(options, std::move(done), warnings);
  start_answer();
  std::string line;
  for (int64_t number = 1; noted_signal() == 0 && input.next(line); ++number) {
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (line.find_first_not_of(" \t\r") != line.npos) batch.take(line, number);
  }
  end_answer();
  return batch.finish();
}

}  // namespace qgen::cli
