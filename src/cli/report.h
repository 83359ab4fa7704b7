// The report of a run: a line or a few for people, one JSON object for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/warnings.h"
#include "generate/generation.h"
#include "generate/loader.h"

namespace qgen::cli {

struct Report {
  const LoadedModel* model = nullptr;
  SamplingSettings sampling;
  bool chat_template = false;
  bool drafts = false;  // whether there could be some
  Generation generation;
  bool thinking_hidden = false;
  std::string_view cut_short;         // cut_short() of the generation
  std::vector<std::string> warnings;  // of the run so far
  double read_bandwidth = 0;          // bytes a second; 0 if not measured

  // Bytes a second read while decoding: weights, and the cache at its average length.
  double decode_bandwidth() const;
};

// Why there is no whole answer: "context" where that is full, "thinking" where all tokens were that and no answer came;
// else "". `answered`: whether text came that is no thinking.
std::string_view cut_short(const Generation& generation, bool answered);
// What to say about it; "" for "".
std::string cut_short_warning(std::string_view why, const Generation& generation, const LoadedModel& model);

// At most 79 columns: model, prompt and time to the first token, output and its speed, why it stopped.
std::string report_line(const Report& report);
std::string report_text(const Report& report, bool verbose);
// Loads the model's weights (TextModel::load()) with progress on the terminal (none when `quiet`), and warns about NaN
// codes.
void load(TextModel& model, int64_t needed, bool quiet, Warnings& warnings);

// "1 line", "2 lines"
std::string counted(int64_t count, std::string_view noun);
// "140 tokens, 120 accepted (86%)"
std::string drafts_text(int64_t drafted, int64_t accepted);
// A JSON list: for each step the token that was chosen and the likeliest ones.
std::string logprobs_json(const Generation& generation, const Tokenizer& tokenizer);
std::string report_json(const Report& report, const Tokenizer& tokenizer);
// A JSON list of texts.
std::string texts_json(const std::vector<std::string>& texts);
// The text quoted, null for "".
std::string text_or_null(std::string_view text);

// "-" is no file to write to: a usage Error that names the option.
void refuse_dash(const std::string& file, std::string_view option);
// A runtime Error, before any work, if --stats-file cannot be written.
void check_report_file(const ReportOptions& options);
// The report that standard error gets: the one that was asked for, else a line where both streams are terminals.
enum class ReportForm { kNone, kLine, kText, kJson };
ReportForm report_form(const ReportOptions& options);
// Writes the report where the options want it, measuring the memory's speed for it if that is not known yet.
void print_report(const ReportOptions& options, Report& report, const Tokenizer& tokenizer);

}  // namespace qgen::cli
