#include "cli/quantize_report.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/units.h"
#include "cli/report.h"
#include "cli/table.h"

namespace qgen::cli {
namespace {

using quantize::Comparison;
using quantize::Likeness;
using quantize::Verdict;

int64_t count_of(std::span<const Comparison> comparisons, Verdict verdict) {
  return std::count_if(comparisons.begin(), comparisons.end(),
                       [&](const Comparison& comparison) { return comparison.likeness.verdict() == verdict; });
}

std::string verdicts_text(std::span<const Comparison> comparisons) {
  std::string out;
  for (const Verdict verdict : {Verdict::kGood, Verdict::kWarn, Verdict::kFail}) {
    const int64_t count = count_of(comparisons, verdict);
    if (count > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, verdict_name(verdict));
  }
  return out.empty() ? "none" : out;
}

std::vector<Comparison> all_comparisons(const quantize::JobReport& report) {
  std::vector<Comparison> out;
  for (const quantize::ShardReport& shard : report.shards)
    out.insert(out.end(), shard.comparisons.begin(), shard.comparisons.end());
  return out;
}

// The comparison that is worst by one measure.
template <typename Measure>
const Comparison& worst(std::span<const Comparison> comparisons, const Measure& measure) {
  return *std::max_element(comparisons.begin(), comparisons.end(), [&](const Comparison& a, const Comparison& b) {
    return measure(a.likeness) < measure(b.likeness);
  });
}

// What helps where a measure is not good.
std::vector<std::string> advice(const quantize::JobOptions& options, std::span<const Comparison> comparisons) {
  std::vector<std::string> out;
  const auto any = [&](auto verdict) {
    return std::any_of(comparisons.begin(), comparisons.end(),
                       [&](const Comparison& c) { return (c.likeness.*verdict)() != Verdict::kGood; });
  };
  const quantize::Recipe& recipe = options.recipe;
  const bool one_scale =
      recipe.format == quantize::Format::kFp8Tensor || recipe.format == quantize::Format::kInt8Tensor;
  if (any(&Likeness::cosine_verdict) && one_scale) {
    out.push_back("cosine: a scale for each row is closer than one for the matrix: --to fp8-channel, --to int8");
  } else if (any(&Likeness::cosine_verdict) && recipe.mode == quantize::Mode::kPercentile) {
    out.push_back("cosine: --mode max clips nothing");
  } else if (any(&Likeness::cosine_verdict) && recipe.mode != quantize::Mode::kMse) {
    out.push_back("cosine: --mode mse searches for the scales with the least error");
  }
  if (any(&Likeness::largest_verdict)) {
    const Comparison& most = worst(comparisons, [](const Likeness& likeness) { return likeness.largest_error; });
    out.push_back(
        fmt::format("largest error: a few weights are far larger than the rest; --keep {} leaves that one as "
                    "it is{}",
                    most.name, recipe.is_fp8() ? ", --to int8 errs less on the largest" : ""));
  }
  if (any(&Likeness::mean_verdict))
    out.push_back("mean error: it grows with the weights themselves; where the cosine is good, the limit says little");
  return out;
}

std::string evaluation_json(const Evaluation& evaluation) {
  const Divergence& divergence = evaluation.scores.divergence;
  return fmt::format(
      R"(,"evaluation":{{"file":{},"tokens":{},"perplexity":{:.9g},"original_perplexity":{:.9g},"mean_kl":{:.9g},"largest_kl":{:.9g},"same_choice":{:.9g}}})",
      json_quote(evaluation.file), evaluation.scores.scored, evaluation.scores.perplexity(), divergence.perplexity(),
      divergence.mean_kl(), divergence.largest_kl, divergence.same_share());
}

}  // namespace

std::string quantize_progress(const quantize::ShardReport& shard, uint64_t done, uint64_t total, double seconds) {
  std::string out = fmt::format("quantizing file {} of {}: {} of {}", shard.index, shard.count,
                                format_bytes(double(done)), format_bytes(double(total)));
  // Files of a checkpoint are about as large as each other.
  const double part = (double(shard.index - 1) + double(done) / std::max(1.0, double(total))) / double(shard.count);
  if (part > 0.02) out += fmt::format(", {:.0f} s left", seconds / part * (1 - part));
  return out;
}

std::string shard_line(const quantize::ShardReport& shard) {
  std::string out =
      fmt::format("{}  {} matrices quantized, {} tensors copied", shard.file, shard.quantized, shard.copied);
  if (shard.found) {
    out += "  found complete";
  } else {
    out += fmt::format("  {} in {:.1f} s", format_bytes(double(shard.bytes_written)), shard.seconds);
  }
  if (!shard.comparisons.empty())
    out += fmt::format("  {} compared: {}", shard.comparisons.size(), verdicts_text(shard.comparisons));
  return out + "\n";
}

std::string likeness_table(std::span<const Comparison> comparisons) {
  if (comparisons.empty()) return {};
  double cosine = 0, mean_error = 0;
  for (const Comparison& comparison : comparisons) {
    cosine += comparison.likeness.cosine / double(comparisons.size());
    mean_error += comparison.likeness.mean_error / double(comparisons.size());
  }
  const Comparison& by_cosine = worst(comparisons, [](const Likeness& likeness) { return -likeness.cosine; });
  const Comparison& by_mean = worst(comparisons, [](const Likeness& likeness) { return likeness.mean_error; });
  const Comparison& by_largest = worst(comparisons, [](const Likeness& likeness) { return likeness.largest_error; });
  const auto row = [](std::string_view measure, std::string value, Verdict verdict, std::string limit,
                      std::string_view name) {
    return std::vector<std::string>{std::string(measure), std::move(value), std::string(verdict_name(verdict)),
                                    std::move(limit), std::string(name)};
  };
  double width = 0;
  for (const Comparison& comparison : comparisons) width += comparison.likeness.width / double(comparisons.size());
  const Likeness average{cosine, mean_error, 0, width};
  return format_table(
      {row("cosine, mean", fmt::format("{:.6f}", cosine), average.cosine_verdict(),
           fmt::format("good from {}", quantize::kCosineBand.good), ""),
       row("cosine, least", fmt::format("{:.6f}", by_cosine.likeness.cosine), by_cosine.likeness.cosine_verdict(),
           fmt::format("at least {}", quantize::kCosineBand.limit), by_cosine.name),
       row("mean error, mean", fmt::format("{:.3g}", mean_error), average.mean_verdict(),
           fmt::format("good up to {:.2g}", quantize::kMeanErrorBand.good * width), ""),
       row("mean error, most", fmt::format("{:.3g}", by_mean.likeness.mean_error), by_mean.likeness.mean_verdict(),
           fmt::format("at most {:.2g}", quantize::kMeanErrorBand.limit * by_mean.likeness.width), by_mean.name),
       row("largest error", fmt::format("{:.3g}", by_largest.likeness.largest_error),
           by_largest.likeness.largest_verdict(),
           fmt::format("at most {:.2g}", quantize::kLargestErrorBand.limit * by_largest.likeness.width),
           by_largest.name)},
      {1});
}

std::string comparisons_text(std::string_view title, std::span<const Comparison> comparisons) {
  if (comparisons.empty()) return fmt::format("{}: no matrix differs\n", title);
  return fmt::format("{}\n  {} matrices compared: {}\n{}", title, comparisons.size(), verdicts_text(comparisons),
                     likeness_table(comparisons));
}

std::string_view worst_verdict(std::span<const Comparison> comparisons) {
  Verdict worst = Verdict::kGood;
  for (const Comparison& comparison : comparisons) worst = std::max(worst, comparison.likeness.verdict());
  return quantize::verdict_name(worst);
}

std::string job_summary(const quantize::JobOptions& options, const quantize::JobReport& report,
                        const std::optional<Evaluation>& evaluation) {
  const std::vector<Comparison> comparisons = all_comparisons(report);
  int64_t quantized = 0, copied = 0;
  double verifying = 0;
  for (const quantize::ShardReport& shard : report.shards) {
    quantized += shard.quantized;
    copied += shard.copied;
    verifying += shard.verify_seconds;
  }
  std::string out =
      fmt::format("\n{}: {}, scales by {}{}\n", options.out.string(), quantize::format_name(options.recipe.format),
                  options.recipe.mode_text(), options.recipe.compat ? ", as quantize_fp8.py rounds" : "");
  out += fmt::format("  {}, {} matrices quantized, {} tensors as they were\n",
                     counted(int64_t(report.shards.size()), "file"), quantized, copied);
  out += fmt::format("  {} became {}, in {:.1f} s, {:.1f} s of them for comparing\n",
                     format_bytes(double(report.bytes_read)), format_bytes(double(report.bytes_written)),
                     report.seconds, verifying);
  for (const auto& [reason, count] : report.kept)
    out += fmt::format("  {} {} left as {}: {}\n", count, count == 1 ? "matrix" : "matrices",
                       count == 1 ? "it was" : "they were", reason);
  if (report.smoothed > 0)
    out += fmt::format("  {} norms and the layers behind them smoothed (alpha {})\n", report.smoothed,
                       options.smoothing.value_or(0));
  if (report.source_quantized)
    out += "  the original was quantized itself: the errors are those that were added to its own\n";
  if (evaluation) {
    const TextScores& scores = evaluation->scores;
    const auto perplexity = [](double value) {  // those of a model that is destroyed have dozens of digits
      return value < 1e6 ? fmt::format("{:.4f}", value) : fmt::format("{:.3g}", value);
    };
    out += fmt::format("\nover {} tokens of {}: perplexity {}, of the original {}\n", scores.scored, evaluation->file,
                       perplexity(scores.perplexity()), perplexity(scores.divergence.perplexity()));
    out += fmt::format("  KL divergence {:.6f} in the mean, {:.4f} at most; the same choice for {:.2f} %\n",
                       scores.divergence.mean_kl(), scores.divergence.largest_kl, 100 * scores.divergence.same_share());
  }
  if (comparisons.empty()) return out;
  out += fmt::format("\n{} matrices compared: {}\n", comparisons.size(), verdicts_text(comparisons));
  out += likeness_table(comparisons);
  const auto recommendations = advice(options, comparisons);
  for (const std::string& line : recommendations) out += fmt::format("  {}\n", line);
  if (report.failed()) out += fmt::format("  {}\n", kNotForUse);
  return out;
}

std::string comparison_json(const Comparison& comparison) {
  const auto number = [](double value) { return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null"; };
  return fmt::format(
      R"({{"name":{},"rows":{},"columns":{},"cosine":{},"cosine_verdict":"{}","mean_error":{},"mean_error_verdict":"{}","largest_error":{},"largest_error_verdict":"{}","verdict":"{}"}})",
      json_quote(comparison.name), comparison.rows, comparison.cols, number(comparison.likeness.cosine),
      verdict_name(comparison.likeness.cosine_verdict()), number(comparison.likeness.mean_error),
      verdict_name(comparison.likeness.mean_verdict()), number(comparison.likeness.largest_error),
      verdict_name(comparison.likeness.largest_verdict()), verdict_name(comparison.likeness.verdict()));
}

std::string job_json(const quantize::JobOptions& options, const quantize::JobReport& report,
                     const std::optional<Evaluation>& evaluation) {
  const std::vector<Comparison> compared = all_comparisons(report);
  std::vector<std::string> shards, kept, recommendations;
  for (const std::string& line : advice(options, compared)) recommendations.push_back(json_quote(line));
  for (const quantize::ShardReport& shard : report.shards) {
    std::vector<std::string> comparisons;
    for (const Comparison& comparison : shard.comparisons) comparisons.push_back(comparison_json(comparison));
    shards.push_back(fmt::format(
        R"({{"file":{},"found":{},"quantized":{},"copied":{},"bytes_read":{},"bytes_written":{},"seconds":{:.3f},"verify_seconds":{:.3f},"comparisons":{}}})",
        json_quote(shard.file), shard.found, shard.quantized, shard.copied, shard.bytes_read, shard.bytes_written,
        shard.seconds, shard.verify_seconds, json_list(comparisons)));
  }
  for (const auto& [reason, count] : report.kept) kept.push_back(fmt::format("{}:{}", json_quote(reason), count));
  return fmt::format(
      R"({{"schema":1,"model":{},"out":{},"format":"{}","mode":"{}","compat":{},"smoothed":{},"source_quantized":{},"bytes_read":{},"bytes_written":{},"seconds":{:.3f},"kept":{{{}}},"files":{}{},"recommendations":{},"verdict":"{}"}})"
      "\n",
      json_quote(options.model), json_quote(options.out.string()), quantize::format_name(options.recipe.format),
      quantize::mode_name(options.recipe.mode), options.recipe.compat, report.smoothed, report.source_quantized,
      report.bytes_read, report.bytes_written, report.seconds, fmt::join(kept, ","), json_list(shards),
      evaluation ? evaluation_json(*evaluation) : "", json_list(recommendations),
      report.failed()                          ? "FAIL"
      : count_of(compared, Verdict::kWarn) > 0 ? "WARN"
                                               : "GOOD");
}

}  // namespace qgen::cli
