// The main job's options, which a line of a batch may override.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/input_text.h"
#include "cli/options.h"

namespace qgen::cli {

struct AnswerOptions {
  ModelOptions model;
  ReportOptions report;
  ReasoningOptions reasoning;
  InputOptions text;
  std::vector<std::string> words;  // without an option: the prompt
  std::optional<std::string> prompt, file, system;
  std::optional<std::string> resume, save;
  bool no_stdin = false;
  bool raw = false;
  bool json = false;
  int64_t max_tokens = -1;  // -1: until the model ends or the context is full
  std::vector<std::string> stops;
  SamplingFlags sampling;
  std::vector<std::string> logit_bias;
  int64_t logprobs = 0;
  int64_t prompt_lookup = 0;
  std::string batch;              // a file of JSON lines, or "-"
  std::string done;               // a file of answers to some of them
  std::string parallel = "auto";  // how many of its lines at a time
  bool unordered = false;
  TypedOptions typed;
};

// Answers every line of options.batch; returns the exit code, 1 if a line failed.
int answer_batch(const AnswerOptions& options);

}  // namespace qgen::cli
