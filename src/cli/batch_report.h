// What a run of --batch tells beside its answers: totals, and how far it is on a terminal.
#pragma once

#include <cstdint>
#include <string>

#include "cli/answer.h"
#include "cli/batch_answer.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "generate/text_model.h"

namespace qgen::cli {

struct BatchTotals {
  int64_t lines = 0, failed = 0, skipped = 0, cut_short = 0;
  int64_t prompt_tokens = 0, computed_tokens = 0, output_tokens = 0, drafted_tokens = 0, accepted_tokens = 0;
  double prompt_seconds = 0, output_seconds = 0;  // of one line at a time; of several, those in which any was at it
  std::string first_error;

  void add(const BatchAnswer& answer);
};

// How far the batch is, on a terminal.
class BatchProgress {
 public:
  BatchProgress(const AnswerOptions& options, const BatchTotals& totals);

  void show();
  // Makes room for a line on the same terminal.
  void before_output();
  void end() { line_.clear(); }

 private:
  ProgressLine line_;
  const BatchTotals& totals_;
  bool clears_;
  int64_t expected_ = 0;  // lines; 0: unknown
};

// The report of the whole run, in the form that the options ask for.
void print_totals(const AnswerOptions& options, const BatchTotals& totals, const TextModel& model,
                  const Warnings& warnings);

}  // namespace qgen::cli
