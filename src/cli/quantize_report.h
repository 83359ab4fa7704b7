// The report of `qgen quantize` and `qgen verify`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "generate/scoring.h"
#include "quantize/compare.h"
#include "quantize/job.h"

namespace qgen::cli {

// What a run that failed says of what it has written.
constexpr std::string_view kNotForUse = "not for use: a matrix is beyond a limit; the files are kept and marked";

// "file 2 of 5: 1.2 GB of 3.4 GB, 40 s left"; `seconds` since the beginning.
std::string quantize_progress(const quantize::ShardReport& shard, uint64_t done, uint64_t total, double seconds);
// What became of a file, one line.
std::string shard_line(const quantize::ShardReport& shard);
// Both models on a text, where --eval asked for it.
struct Evaluation {
  std::string file;
  TextScores scores;
};
// The end of the text report: what was written, how close it is, and what to try where that is not close enough.
std::string job_summary(const quantize::JobOptions& options, const quantize::JobReport& report,
                        const std::optional<Evaluation>& evaluation);
std::string job_json(const quantize::JobOptions& options, const quantize::JobReport& report,
                     const std::optional<Evaluation>& evaluation);

// What `title` says, how many matrices were compared, and their table.
std::string comparisons_text(std::string_view title, std::span<const quantize::Comparison> comparisons);
// The worst verdict of them: "GOOD", "WARN" or "FAIL".
std::string_view worst_verdict(std::span<const quantize::Comparison> comparisons);
// The table of cosine and errors over matrices, with the worst one named; "" for none.
std::string likeness_table(std::span<const quantize::Comparison> comparisons);
// A comparison as a JSON object.
std::string comparison_json(const quantize::Comparison& comparison);

}  // namespace qgen::cli
