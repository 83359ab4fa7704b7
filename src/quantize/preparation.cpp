#include "quantize/preparation.h"

#include <map>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "model/families/table.h"
#include "model/open.h"
#include "quantize/selection.h"
#include "quantize/smooth.h"
#include "quantize/statistics.h"

namespace qgen::quantize {

namespace {

// Matrices that are stored (inputs, outputs), GPT-2's Conv1D, are no linear layers to transformers and
// compressed-tensors. One scale for a matrix is the same either way round, and qgen reads it.
void refuse_transposed(const Source& source, const Recipe& recipe) {
  if (recipe.is_gguf() || recipe.format == Format::kInt8Tensor) return;
  const Json config = source.checkpoint.config();
  if (find_family(config) == nullptr || !describe(config).transposed) return;
  fail(ErrorKind::kModel,
       fmt::format("{}: matrices that are stored (inputs, outputs) are not written as {}",
                   source.checkpoint.location().name, format_name(recipe.format)),
       "no server reads them so; --to int8-tensor writes what qgen reads");
}

// Source: vLLM's compressed_tensors_moe and SGLang's schemes of these names (docs/quantize.md, "What servers load").
bool servers_want_other_experts(const Source& source, std::span<const std::string_view> reasons, const Recipe& recipe) {
  if (recipe.format != Format::kFp8Tensor && recipe.format != Format::kInt8Tensor) return false;
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i].empty() && source.matrices[i].name.find(".experts.") != std::string::npos) return true;
  }
  return false;
}

Stacks stacks_for(const Recipe& recipe) {
  return recipe.is_gguf() ? Stacks::kApart : recipe.compat ? Stacks::kWhole : Stacks::kAsServers;
}

}  // namespace

Preparation::Preparation(const JobOptions& options)
    : options_(options), source_(open_source(options.model, stacks_for(options.recipe), options.trust_tensors)) {
  report_.source_quantized = source_.quantized;
  for (const auto& [reason, count] : source_.left) report_.kept[reason] += count;
  refuse_transposed(source_, options.recipe);
  if (!options.recipe.compat) check_whole();
  choose();
  if (!options.statistics.empty()) use_statistics();
}

// A checkpoint whose tensors are not those that its config.json describes would become another such; what is quantized
// already, or in another layout, has had its plan made. Of a config.json that qgen cannot run it knows no tensors.
void Preparation::check_whole() {
  const Json config = source_.checkpoint.config();
  if (source_.quantized || source_.other_layout) return;
  if (find_family(config) == nullptr) {
    const auto type = config.get("model_type");
    if (!type && !config.get("architectures"))
      config.fail("says no model_type", "a Hugging Face config.json names one: is this one damaged?");
    report_.warnings.push_back(
        fmt::format("family '{}' is not known: the list of what stays as it is has the names of the files, under which "
                    "other programs may not know these modules",
                    type && type->is_string() ? type->as_string() : "?"));
    return;
  }
  try {
    describe(config);
  } catch (const Error& error) {
    report_.warnings.push_back(fmt::format("{} (qgen cannot run the result)", error.message()));
    return;
  }
  plan_of_files(source_);
}

void Preparation::choose() {
  std::vector<Candidate> candidates;
  for (const SourceMatrix& matrix : source_.matrices) candidates.push_back({matrix.name, matrix.rows, matrix.cols});
  check_patterns(candidates, options_.selection);
  reasons_ = reasons_to_keep(candidates, options_.selection, options_.recipe);
  int64_t chosen = 0;
  for (const std::string_view reason : reasons_) {
    chosen += reason.empty();
    if (!reason.empty()) ++report_.kept[std::string(reason)];
  }
  for (const TensorView* tensor : source_.copied) {
    if (!module_of_stack(*tensor).empty()) ++report_.kept["stack of experts"];
  }
  if (servers_want_other_experts(source_, reasons_, options_.recipe)) {
    report_.warnings.push_back(fmt::format("vLLM and SGLang load no experts in {}; --to fp8-channel is for them",
                                           format_name(options_.recipe.format)));
  }
  if (chosen == 0) {
    std::string why;
    for (const auto& [reason, count] : report_.kept)
      why += fmt::format("{}{} {}", why.empty() ? "" : ", ", count, reason);
    fail(ErrorKind::kModel,
         fmt::format("{}: no matrix can be quantized to {} ({})", source_.checkpoint.location().name,
                     format_name(options_.recipe.format), why.empty() ? "it has none" : why),
         options_.recipe.format == Format::kFp8 ? "small models have no whole blocks: --to fp8-channel or --to int8"
                                                : "");
  }
}

// The weights of columns, and the smoothing, from the file of statistics.
void Preparation::use_statistics() {
  auto statistics = InputStatistics::read(options_.statistics);
  for (const SourceMatrix& matrix : source_.matrices) {
    const auto name = source_.file_modules.find(matrix.name);
    if (name != source_.file_modules.end()) statistics.use_for(matrix.name, name->second, matrix.stored_cols.get());
  }
  Smoothed smoothed;
  if (options_.smoothing) smoothed = smooth(source_, reasons_, statistics, *options_.smoothing);
  report_.smoothed = smoothed.norms;
  int64_t mismatched = 0, found = 0, quantized = 0;
  for (size_t i = 0; i < source_.matrices.size(); ++i) {
    const SourceMatrix& matrix = source_.matrices[i];
    if (!reasons_[i].empty()) continue;
    ++quantized;
    bool mismatch = false;
    std::vector<float> weights = statistics.weights_of(matrix.name, matrix.cols, mismatch);
    mismatched += mismatch;
    if (weights.empty()) continue;
    ++found;
    for (size_t k = 0; k < weights.size() && matrix.multipliers != nullptr; ++k) weights[k] /= (*matrix.multipliers)[k];
    if (options_.recipe.weighs_columns()) weights_[&matrix] = std::move(weights);
  }
  if (mismatched > 0) {
    report_.warnings.push_back(fmt::format("{}: {} weights have another number of columns, and are not weighted",
                                           options_.statistics.string(), mismatched));
  }
  if (const int64_t unseen = quantized - found - mismatched;
      found > 0 && unseen > 0 && options_.recipe.weighs_columns()) {
    report_.warnings.push_back(
        fmt::format("{}: has no maxima of the inputs of {} of {} weights, which are not weighted",
                    options_.statistics.string(), unseen, quantized));
  }
  if (found == 0) {
    fail(ErrorKind::kUsage, fmt::format("{}: names none of the model's weights", options_.statistics.string()),
         "`qgen calibrate` writes one for the model");
  }
  if (smoothed.without_maxima > 0) {
    report_.warnings.push_back(fmt::format("--smooth: {} norms are left as they are, {} has no maxima behind them",
                                           smoothed.without_maxima, options_.statistics.string()));
  } else if (options_.smoothing && smoothed.norms == 0) {
    report_.warnings.push_back("--smooth: no norm of this model feeds quantized layers alone; nothing is smoothed");
  }
}

}  // namespace qgen::quantize
