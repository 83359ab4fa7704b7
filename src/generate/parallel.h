// Many answers at a time: lines of a batch share the weights that a step reads. A line is admitted when a sequence and
// the pages for its prompt and its answer are free, and none is ever thrown out. Every token is multiplied by kernels
// whose result does not depend on what runs beside it, so a line's bytes depend on that line alone. A beginning that
// lines share is computed once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "generate/generation.h"
#include "generate/text_model.h"

namespace qgen {

// A line: what to answer, and where the answer goes. All that belongs to it lives in its owner.
struct ParallelJob {
  ModelInput input;
  GenerationSettings settings;
  TextSink sink;
  std::function<void(Generation)> done;  // the answer is complete, or was interrupted
  // It cannot be: an Error of the model's scores, or one that `sink` or `done` throws, out of memory too. Other lines
  // go on.
  std::function<void(const Error&)> failed;
};

// The next line, or that there is none yet, or no more.
struct NextJob {
  enum class State { kJob, kNotYet, kEnd } state = State::kEnd;
  ParallelJob job;
};

class ParallelGenerator {
 public:
  // As many lines at a time as the model was loaded for (LoadedModel::lines).
  explicit ParallelGenerator(const TextModel& model);
  ~ParallelGenerator();

  // Answers all jobs that `next` brings. `next(wait)`: with `wait` it blocks until there is a job or the end, else it
  // says kNotYet where it would have to. Ends early where `control` says so: what is under way is done as interrupted.
  void run(const std::function<NextJob(bool wait)>& next, const RunControl& control);

  // Wall-clock seconds of the calls that ran prompts, and of those that ran tokens of answers.
  double prompt_seconds() const { return prompt_seconds_; }
  double output_seconds() const { return output_seconds_; }

 private:
  struct Line;
  std::unique_ptr<Line> admit(ParallelJob& job);
  void run_beginning(Line& line, const ParallelJob& next);
  void run_prompts(std::vector<std::unique_ptr<Line>>& lines);
  void run_tokens();
  static void choose(Line& line, const Scores& scores, int64_t length);
  static void fail_line(Line& line, const Error& error);
  void finish_ended();
  void keep_beginning(const Line& line, bool common);
  void drop_beginning();

  const TextModel& model_;
  Engine& engine_;
  const int64_t lines_;
  const RunControl* control_ = nullptr;
  std::vector<std::unique_ptr<Line>> active_;  // in the order of their admission
  // What lines that begin alike go on from, in a sequence of its own: the latest prompt, or what two have in common.
  std::optional<SequenceId> beginning_;
  std::vector<TokenId> beginning_tokens_;
  bool beginning_is_common_ = false;
  double prompt_seconds_ = 0, output_seconds_ = 0;
};

}  // namespace qgen
