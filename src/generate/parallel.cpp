#include "generate/parallel.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/memory.h"

namespace qgen {
namespace {

// Fewer tokens in common are not worth a fork: prompts of several lines go through the weights together anyway.
constexpr size_t kLeastShared = 16;

size_t common_length(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t most = std::min(a.size(), b.size());
  return size_t(std::mismatch(a.begin(), a.begin() + ptrdiff_t(most), b.begin()).first - a.begin());
}

}  // namespace

struct ParallelGenerator::Line {
  Line(const TextModel& model, ParallelJob own)
      : job(std::move(own)), answer(model, job.input, job.settings, job.sink) {}

  ParallelJob job;
  AnswerBuilder answer;
  SequenceId sequence = -1;
  int64_t shared = 0;                // tokens of the prompt that came from another sequence
  int64_t ready = 0;                 // of the prompt that are in its sequence
  std::optional<TokenId> token;      // to run next
  std::vector<TokenChoice> choices;  // of those that follow it
  bool ended = false;
  std::optional<Error> error;  // that ended it
};

ParallelGenerator::ParallelGenerator(const TextModel& model)
    : model_(model), engine_(model.engine()), lines_(model.loaded().lines) {}

ParallelGenerator::~ParallelGenerator() {
  for (const auto& line : active_) engine_.close(line->sequence);
  drop_beginning();
}

// A line with a sequence, which begins with what is known of its prompt; null where there is no room for it now.
std::unique_ptr<ParallelGenerator::Line> ParallelGenerator::admit(ParallelJob& job) {
  const std::span<const TokenId> prompt = job.input.ids;
  const int64_t answer = job.settings.max_tokens < 0 ? model_.loaded().context : job.settings.max_tokens;
  const int64_t room = std::min(model_.loaded().context, int64_t(prompt.size()) + answer);
  // At least one token is run, for its scores.
  const auto shared_with = [&](std::span<const TokenId> tokens) {
    return std::min(common_length(prompt, tokens), prompt.size() - 1);
  };
  SequenceId origin = -1;
  size_t shared = 0;
  const auto offer = [&](SequenceId sequence, std::span<const TokenId> tokens) {
    if (const size_t length = shared_with(tokens); length > shared) {
      shared = length;
      origin = sequence;
    }
  };
  if (engine_.forks_anywhere()) {
    for (const auto& line : active_) offer(line->sequence, line->job.input.ids);
  }
  if (beginning_ && (engine_.forks_anywhere() || shared_with(beginning_tokens_) == beginning_tokens_.size()))
    offer(*beginning_, beginning_tokens_);
  if (shared < kLeastShared) shared = 0;
  const auto open = [&] { return shared > 0 ? engine_.fork(origin, int64_t(shared), room) : engine_.open(room); };
  std::optional<SequenceId> sequence = open();
  if (!sequence && beginning_ && origin != *beginning_) {
    drop_beginning();
    sequence = open();
  }
  if (!sequence && beginning_) {
    drop_beginning();
    shared = 0;
    sequence = engine_.open(room);
  }
  if (!sequence) return nullptr;
  auto line = std::make_unique<Line>(model_, std::move(job));
  line->sequence = *sequence;
  line->shared = line->ready = engine_.position(*sequence);
  return line;
}

// Keeps the tokens of the prompt that are in the line's sequence. `common`: the next line begins with them as well.
void ParallelGenerator::keep_beginning(const Line& line, bool common) {
  drop_beginning();
  const int64_t length = engine_.position(line.sequence);
  beginning_ = engine_.fork(line.sequence, length, length);
  beginning_is_common_ = beginning_ && common;
  if (beginning_) beginning_tokens_.assign(line.job.input.ids.begin(), line.job.input.ids.begin() + length);
}

void ParallelGenerator::drop_beginning() {
  if (beginning_) engine_.close(*beginning_);
  beginning_.reset();
  beginning_tokens_.clear();
  beginning_is_common_ = false;
}

// Of models whose sequences fork at their end alone: runs what the prompt has in common with the next line's, which
// that line and those after it then begin with.
void ParallelGenerator::run_beginning(Line& line, const ParallelJob& next) {
  const std::span<const TokenId> prompt = line.job.input.ids;
  const size_t length = std::min({common_length(prompt, next.input.ids), prompt.size() - 1, next.input.ids.size() - 1});
  const auto tokens = prompt.subspan(0, length).subspan(size_t(line.ready));
  const Work work{line.sequence, tokens, Wanted::kNone};
  const PrefillWatch watch(engine_, int64_t(tokens.size()), *control_);
  const bool finished =
      engine_.run({&work, 1}, {}, Kernels::kPrompt, [&](size_t, const Error& error) { fail_line(line, error); });
  line.ready = engine_.position(line.sequence);
  if (finished && !line.error) keep_beginning(line, true);
}

// The line's next token, from the scores that follow `length` tokens; where there is none the line has ended.
void ParallelGenerator::choose(Line& line, const Scores& scores, int64_t length) {
  try {
    with_memory_for("the answer", 0, [&] { line.token = line.answer.next(scores, length); });
    line.ended = !line.token;
  } catch (const Error& error) {
    fail_line(line, error);
  }
}

void ParallelGenerator::fail_line(Line& line, const Error& error) {
  line.ended = true;
  line.error = error;
}

void ParallelGenerator::run_prompts(std::vector<std::unique_ptr<Line>>& lines) {
  std::vector<Work> work;
  std::vector<Line*> running;
  int64_t tokens = 0;
  for (const auto& line : lines) {
    if (line->ended) continue;
    const std::span<const TokenId> rest = std::span(line->job.input.ids).subspan(size_t(line->ready));
    work.push_back({line->sequence, rest, Wanted::kLast});
    running.push_back(line.get());
    tokens += int64_t(rest.size());
  }
  bool finished;
  {
    const PrefillWatch watch(engine_, tokens, *control_);
    finished = engine_.run(
        work,
        [&](size_t item, int64_t, const Scores& scores) {
          Line& line = *running[item];
          const auto length = int64_t(line.job.input.ids.size());
          line.answer.prompt_done(length - line.shared);
          choose(line, scores, length);
        },
        Kernels::kPrompt, [&](size_t item, const Error& error) { fail_line(*running[item], error); });
  }
  for (const auto& line : lines) {
    // Stopped before its scores were there.
    if (!line->token && !line->ended) {
      line->answer.prompt_done(engine_.position(line->sequence) - line->shared);
      choose(*line, Scores(), engine_.position(line->sequence));
    }
  }
  if (finished && !lines.back()->error && !beginning_is_common_) keep_beginning(*lines.back(), false);
  std::move(lines.begin(), lines.end(), std::back_inserter(active_));
  lines.clear();
}

// One token of every active line.
void ParallelGenerator::run_tokens() {
  std::vector<Work> work;
  for (const auto& line : active_) {
    line->choices = line->answer.choices();
    work.push_back({.sequence = line->sequence, .tokens = {&*line->token, 1}, .choices = line->choices});
  }
  engine_.run(
      work,
      // The position does not count the token that was run yet.
      [&](size_t item, int64_t, const Scores& scores) {
        Line& line = *active_[item];
        choose(line, scores, engine_.position(line.sequence) + 1);
      },
      Kernels::kGenerate, [&](size_t item, const Error& error) { fail_line(*active_[item], error); });
  for (const auto& line : active_) line->answer.generation().output_calls++;
}

// Hands out the answers of lines that have ended, and makes room for others.
void ParallelGenerator::finish_ended() {
  for (const auto& line : active_) {
    if (!line->ended) continue;
    if (!line->error) {
      try {
        with_memory_for("the answer", 0, [&] { line->job.done(line->answer.finish()); });
        continue;
      } catch (const Error& error) {
        line->error = error;
      }
    }
    line->job.failed(*line->error);
  }
  std::erase_if(active_, [&](const auto& line) {
    if (line->ended) engine_.close(line->sequence);
    return line->ended;
  });
}

void ParallelGenerator::run(const std::function<NextJob(bool wait)>& next, const RunControl& control) {
  control_ = &control;
  std::optional<ParallelJob> waiting;  // read, and no room for it yet
  bool more = true;
  std::vector<std::unique_ptr<Line>> admitted;
  const auto stopped = [&] { return control.stopped && control.stopped(); };
  while (!stopped()) {
    Line* common = nullptr;  // begins as the line that waits
    while (more || waiting) {
      // What comes next may say how much of a line's beginning is worth keeping, where that must be known before it
      // runs.
      const bool full = int64_t(active_.size() + admitted.size()) >= lines_;
      if (full && (waiting || admitted.empty() || engine_.forks_anywhere())) break;
      if (!waiting) {
        NextJob job = next(active_.empty() && admitted.empty());
        more = job.state != NextJob::State::kEnd;
        if (job.state != NextJob::State::kJob) break;
        waiting = std::move(job.job);
      }
      // A line that begins as one which is not computed yet waits for it: then it need not be computed twice.
      const auto begins_alike = [&](const auto& line) {
        return common_length(line->job.input.ids, waiting->input.ids) >= kLeastShared + size_t(line->shared);
      };
      const auto alike = std::ranges::find_if(admitted, begins_alike);
      if (alike != admitted.end()) {
        if (!engine_.forks_anywhere()) common = alike->get();
        break;
      }
      if (full) break;
      std::unique_ptr<Line> line = admit(*waiting);
      if (line == nullptr) {
        if (active_.empty() && admitted.empty()) {
          waiting->failed(
              Error(ErrorKind::kRuntime, "no room in the key-value cache for this line alone", "a smaller max_tokens"));
          waiting.reset();
          continue;
        }
        break;
      }
      waiting.reset();
      admitted.push_back(std::move(line));
    }
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    if (!admitted.empty()) {
      if (common != nullptr) run_beginning(*common, *waiting);
      run_prompts(admitted);
      prompt_seconds_ += seconds();
    } else if (!active_.empty()) {
      run_tokens();
      output_seconds_ += seconds();
    } else if (!more && !waiting) {
      return;
    }
    finish_ended();
  }
  for (const auto& line : active_) choose(*line, Scores(), engine_.position(line->sequence));
  finish_ended();
}

}  // namespace qgen
