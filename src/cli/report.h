// What a run tells about itself: a few lines for people, one JSON object for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "generate/generation.h"
#include "generate/loader.h"

namespace qgen::cli {

struct Report {
  const LoadedModel* model = nullptr;
  SamplingSettings sampling;
  bool chat_template = false;
  bool prompt_lookup = false;  // whether there could be drafts
  Generation generation;
  bool thinking_hidden = false;
  double read_bandwidth = 0;  // bytes a second; 0 if not measured

  // Bytes a second read while decoding: weights, and the cache at its average length.
  double decode_bandwidth() const;
};

std::string report_text(const Report& report, bool verbose);
// Loads the model's weights (TextModel::load()) with progress on the terminal, and warns about NaN codes; silent when
// `quiet`.
void load(TextModel& model, int64_t needed, bool quiet);
// Warns where the context was full before the answer was complete.
void warn_if_full(const Generation& generation, const TextModel& model, bool quiet);

// "140 tokens, 120 accepted (86%)"
std::string drafts_text(int64_t drafted, int64_t accepted);
// A JSON list: for each step the token that was chosen and the likeliest ones.
std::string logprobs_json(const Generation& generation, const Tokenizer& tokenizer);
std::string report_json(const Report& report, const Tokenizer& tokenizer);

// "-" is no file to write to: a usage Error that names the option.
void refuse_dash(const std::string& file, std::string_view option);
// A runtime Error, before any work, if --stats-file cannot be written.
void check_report_file(const ReportOptions& options);
// Whether standard error gets a report: where it was asked for, and on a terminal unless quiet.
bool report_wanted(const ReportOptions& options);
// Writes the report where the options want it, measuring the memory's speed for it if that is not known yet.
void print_report(const ReportOptions& options, Report& report, const Tokenizer& tokenizer);

}  // namespace qgen::cli
