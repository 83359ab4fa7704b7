// --batch: JSON lines in, JSON lines out, flushed one by one, the model loaded once. A bad line gets an error object
// and the run goes on. Lines are answered one at a time, or several together (generate/parallel.h); either way an
// answer does not depend on the other lines.
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/answer.h"
#include "cli/batch_answer.h"
#include "cli/batch_done.h"
#include "cli/batch_report.h"
#include "cli/batch_request.h"
#include "cli/input_text.h"
#include "cli/line_reader.h"
#include "cli/notes.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "generate/generation.h"
#include "generate/parallel.h"

namespace qgen::cli {
namespace {

// A document takes some fifteen times the memory of its text.
constexpr size_t kMaxLineBytes = size_t{64} << 20;

// Whether standard output is this very file.
bool stdout_is(const std::string& file) {
  struct stat out {
  }, other{};
  return ::fstat(STDOUT_FILENO, &out) == 0 && ::stat(file.c_str(), &other) == 0 && out.st_dev == other.st_dev &&
         out.st_ino == other.st_ino && S_ISREG(out.st_mode);
}

// Where the shell has made standard output of a file that is read, its lines are gone; appended ones would be read.
void refuse_same_files(const AnswerOptions& options) {
  if (options.batch != "-" && stdout_is(options.batch))
    fail(ErrorKind::kUsage, fmt::format("--batch {}: standard output is the same file", options.batch),
         "> another file");
  if (!options.done.empty() && stdout_is(options.done) && (::fcntl(STDOUT_FILENO, F_GETFL) & O_APPEND) == 0) {
    fail(ErrorKind::kUsage,
         fmt::format("--done {}: standard output is the same file and does not append to it", options.done),
         fmt::format(">> {} does, and the first run may have it so too", options.done));
  }
}

// Takes a last line that was not finished off the file that standard output appends to.
void cut_half_line(const AnswerOptions& options, const DoneLines& done) {
  if (::ftruncate(STDOUT_FILENO, off_t(done.whole_bytes())) == 0) return;
  fail(ErrorKind::kRuntime, fmt::format("--done {}: cannot take off its last line, which is half a one: {}",
                                        options.done, std::strerror(errno)));
}

void refuse_other_tasks(const AnswerOptions& options) {
  if (options.prompt || options.file)
    fail(ErrorKind::kUsage, "--batch: no place for --prompt or --file", "write them as lines: {\"prompt\": \"…\"}");
  // Of variables of the environment --batch takes no notice, as of QGEN_PROMPT.
  if (options.typed.contains("resume") || options.typed.contains("save"))
    fail(ErrorKind::kUsage, "--batch: no place for --resume or --save",
         "a line may hold a whole conversation: \"messages\"");
}

// The model's options, with the lines that are answered at a time.
ModelOptions model_options(const AnswerOptions& options) {
  ModelOptions out = options.model;
  out.lines = read_parallel(options.parallel);
  const std::string_view drafts = options.prompt_lookup > 0 ? "--prompt-lookup" : out.drafts() ? "--draft" : "";
  if (drafts.empty()) return out;
  if (out.lines > 1) {
    fail(ErrorKind::kUsage, fmt::format("--parallel {}: no place for {}", options.parallel, drafts),
         "one line at a time may be guessed ahead, --parallel 1; several together are faster");
  }
  out.lines = 1;
  return out;
}

// Lines of output in the order of those they answer, or, `unordered`, as they come.
class OrderedOutput {
 public:
  OrderedOutput(bool unordered, std::function<void(const std::string&)> write)
      : unordered_(unordered), write_(std::move(write)) {}

  // The place of the next answer.
  int64_t reserve() { return reserved_++; }
  void put(int64_t place, std::string text) {
    if (unordered_) return write_(text);
    waiting_.emplace(place, std::move(text));
    for (; !waiting_.empty() && waiting_.begin()->first == next_; ++next_) {
      const auto first = waiting_.extract(waiting_.begin());
      write_(first.mapped());
    }
  }

 private:
  bool unordered_;
  std::function<void(const std::string&)> write_;
  std::map<int64_t, std::string> waiting_;
  int64_t reserved_ = 0, next_ = 0;
};

// A line that is being answered.
struct OpenLine {
  int64_t place = 0;  // in the output
  BatchRequest request;
  BatchAnswer answer;
  ModelInput input;
  GenerationSettings settings;
};

class Batch {
 public:
  // Loads the model; what is wrong with the options ends the run here, not each line.
  Batch(const AnswerOptions& options, DoneLines done, Warnings& warnings)
      : options_(options), done_(std::move(done)), warnings_(warnings), model_(model_options(options), false) {
    SamplingFlags flags = options.sampling;
    flags.logit_bias = model_.logit_bias(options.logit_bias);
    sampling_ = model_.sampling(flags);
    note_repeated(options.typed, {"model", "batch", "done", "system"}, warnings);
    note_reasoning(options.reasoning, options.typed, options.raw, model_, warnings);
    if (options.typed.contains("json")) warnings.add("--json: no effect, --batch writes JSON as it is");
    if (done_.missing()) warnings.add(fmt::format("--done {}: no such file, no line is left out", options.done));
    load(model_, 1, options.report.quiet, warnings);
    note_context(options.model, model_, warnings);
    note_stops(options.stops, warnings);
    const bool appends = stdout_is(options.done);
    lacks_end_ = done_.lacks_end() && appends;
    if (done_.ends_in_half() && appends) cut_half_line(options, done_);
    if (done_.ends_in_half() && !appends)
      warnings.add(fmt::format("--done {}: its last line is half a one, which is answered again", options.done));
  }

  void run(LineReader& input) {
    input_ = &input;
    control_ = {[this](const auto&) { progress_.show(); }, [] { return noted_signal() != 0; }};
    if (model_.loaded().lines > 1) {
      run_together();
    } else {
      while (const auto line = next_line()) run_alone(*line);
    }
  }

  // Reports the whole run; its exit code, or an Error that says how many lines failed.
  int finish() {
    progress_.end();
    const BatchTotals& t = totals_;
    note_lines();
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
  using LinePointer = std::shared_ptr<OpenLine>;

  // What had no effect on any line, or was asked for by lines without one.
  void note_lines() {
    if (!drew_ && totals_.lines > totals_.failed)
      note_sampling(options_.typed, options_.sampling, sampling_, warnings_);
    const auto note = [&](std::string_view key, int64_t lines, std::string_view why) {
      if (lines > 0)
        warnings_.add(fmt::format("{} in {}: no effect, {}", key, counted(lines, "line"),
                                  model_.has_template() ? why : "the model has no chat template"));
    };
    note("\"think\"", think_ignored_, "raw text, or a chat template that knows no enable_thinking");
    note("\"chat_template_kwargs\"", arguments_ignored_, "raw text, or variables that the chat template does not read");
  }

  // The next line that is to be answered; null at the end. Bad ones get their error, done ones nothing.
  LinePointer next_line() {
    std::string text;
    while (noted_signal() == 0 && input_->next(text)) {
      ++number_;
      if (LinePointer line = open_line(text)) return line;
    }
    return nullptr;
  }

  LinePointer open_line(std::string_view text) {
    if (number_ == 1 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    if (!input_->cut() && text.find_first_not_of(" \t\r") == text.npos) return nullptr;
    auto line = std::make_shared<OpenLine>();
    BatchRequest& request = line->request;
    request.line = number_;
    request.form = form_;
    try {
      if (input_->cut())
        fail(ErrorKind::kUsage, fmt::format("line {}: too long (expected at most {} bytes)", number_, kMaxLineBytes));
      const std::string subject = fmt::format("line {}", number_);
      const bool done = with_memory_for(subject, text.size(), [&] {
        std::string valid;
        if (!is_utf8(text)) text = valid = valid_text(std::string(text), subject, options_.text, number_);
        read_batch_request(text, number_, options_, request);
        form_ = request.form;
        const bool known = done_.take(request.id, number_);
        if (!known) prepare(*line);
        return known;
      });
      if (done) {
        ++totals_.skipped;
        return nullptr;
      }
    } catch (const Error& error) {
      form_ = request.form;
      line->place = output_.reserve();
      put_error(*line, error);
      return nullptr;
    }
    line->place = output_.reserve();
    return line;
  }

  void prepare(OpenLine& line) {
    const AnswerOptions& options = line.request.options;
    const ReasoningOptions& reasoning = options.reasoning;
    const auto reads = [&](std::string_view variable) { return !options.raw && model_.template_reads(variable); };
    think_ignored_ += reasoning.think != options_.reasoning.think && !reasoning.deaf_think(reads).empty();
    arguments_ignored_ +=
        reasoning.arguments != options_.reasoning.arguments && !reasoning.deaf_arguments(reads).empty();
    line.input = batch_input(line.request, model_);
    GenerationSettings& settings = line.settings;
    settings.sampling = sampling(line.request);
    drew_ = drew_ || !settings.sampling.greedy();
    settings.stops = options.stops;
    settings.max_tokens = options.max_tokens;
    settings.logprobs = options.logprobs;
    settings.prompt_lookup = options.prompt_lookup;
    settings.split_reasoning = line.input.chat_template && options.reasoning.show != "show";
    settings.control = control_;
    line.answer.seed = settings.sampling.seed.value;
  }

  SamplingSettings sampling(const BatchRequest& request) const {
    SamplingFlags flags = request.options.sampling;
    try {
      flags.logit_bias = model_.logit_bias(request.options.logit_bias);
    } catch (const Error& error) {
      fail(error.kind(), fmt::format("line {}: logit_bias: {}", request.line, error.message()), error.hint());
    }
    return model_.sampling(flags);
  }

  TextSink sink(OpenLine& line) {
    return [this, &answer = line.answer](const ReasoningPiece& piece) {
      (piece.thinking ? answer.reasoning : answer.text) += piece.text;
      progress_.show();
    };
  }

  void run_alone(OpenLine& line) {
    try {
      with_memory_for(fmt::format("line {}", line.request.line), line.input.ids.size() * sizeof(TokenId), [&] {
        Session session(model_.engine(), model_.loaded().context);
        put_answer(line, generate(session, model_, line.input, line.settings, sink(line)));
      });
    } catch (const Error& error) {
      put_run_error(line, error);
    }
  }

  void run_together() {
    ParallelGenerator generator(model_);
    const auto next = [&](bool wait) -> NextJob {
      std::string text;
      while (noted_signal() == 0 && (wait || input_->ready())) {
        if (!input_->next(text)) return {NextJob::State::kEnd, {}};
        ++number_;
        if (const LinePointer line = open_line(text)) return {NextJob::State::kJob, job(line)};
      }
      return {noted_signal() == 0 ? NextJob::State::kNotYet : NextJob::State::kEnd, {}};
    };
    generator.run(next, control_);
    totals_.prompt_seconds = generator.prompt_seconds();
    totals_.output_seconds = generator.output_seconds();
  }

  ParallelJob job(const LinePointer& line) {
    ParallelJob job;
    job.input = std::move(line->input);
    job.settings = std::move(line->settings);
    job.sink = sink(*line);
    job.done = [this, line](Generation generation) { put_answer(*line, std::move(generation)); };
    job.failed = [this, line](const Error& error) { put_run_error(*line, error); };
    return job;
  }

  void put_answer(OpenLine& line, Generation generation) {
    BatchAnswer& answer = line.answer;
    answer.generation = std::move(generation);
    answer.cut_short = cut_short(answer.generation, answer.text.find_first_not_of(" \t\r\n") != answer.text.npos);
    if (line.request.options.reasoning.show == "hide") answer.reasoning.clear();
    std::string text = answer_line(line.request, answer, model_.name(), model_.tokenizer());
    totals_.add(answer);
    ++totals_.lines;
    output_.put(line.place, std::move(text));
  }

  // An error of the engine, which knows no lines.
  void put_run_error(const OpenLine& line, const Error& error) {
    const std::string name = fmt::format("line {}: ", line.request.line);
    if (error.message().starts_with(name)) return put_error(line, error);
    put_error(line, Error(error.kind(), name + error.message(), error.hint()));
  }

  void put_error(const OpenLine& line, const Error& error) {
    if (totals_.failed++ == 0) totals_.first_error = error.message();
    ++totals_.lines;
    output_.put(line.place, error_line(line.request, error));
  }

  void write(const std::string& text) {
    progress_.before_output();
    print_stdout((std::exchange(lacks_end_, false) ? "\n" : "") + text + "\n");
  }

  const AnswerOptions& options_;
  DoneLines done_;
  Warnings& warnings_;
  TextModel model_;
  LineReader* input_ = nullptr;
  int64_t number_ = 0;                // of the line that was read last
  BatchForm form_ = BatchForm::kOwn;  // of that line, for answers to one that has none
  SamplingSettings sampling_;         // of lines that say nothing else
  bool drew_ = false;                 // whether any line was not greedy
  int64_t arguments_ignored_ = 0;
  int64_t think_ignored_ = 0;  // lines that ask for thinking, or none, where nothing listens
  RunControl control_;
  BatchTotals totals_;
  BatchProgress progress_{options_, totals_};
  OrderedOutput output_{options_.unordered, [this](const std::string& text) { write(text); }};
  bool lacks_end_ = false;  // the last line of the file that the first answer is appended to
};

}  // namespace

int answer_batch(const AnswerOptions& options) {
  refuse_other_tasks(options);
  refuse_same_files(options);
  check_report_file(options.report);
  DoneLines done;
  if (!options.done.empty()) done = DoneLines::read(options.done);
  LineReader input(options.batch, fmt::format("--batch {}", options.batch), kMaxLineBytes);
  Warnings warnings(options.report);
  Batch batch(options, std::move(done), warnings);
  start_answer();
  batch.run(input);
  end_answer();
  return batch.finish();
}

}  // namespace qgen::cli
