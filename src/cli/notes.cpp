#include "cli/notes.h"

#include <algorithm>

#include <fmt/format.h>

namespace qgen::cli {

void note_context(const ModelOptions& options, const TextModel& model, Warnings& warnings) {
  const int64_t native = model.plan().model.context;
  if (options.context <= native) return;
  warnings.add(fmt::format("--context {}: {} was made for {} tokens, beyond them answers get worse", options.context,
                           model.name(), native));
}

void note_reasoning(const ReasoningOptions& options, const TypedOptions& typed, bool raw, const TextModel& model,
                    Warnings& warnings) {
  const std::string_view why = raw ? "--raw goes without the chat template" : "the model has no chat template";
  if (typed.contains("think") && options.think != "auto" && !model.template_reads("enable_thinking")) {
    warnings.add(fmt::format("--think {}: no effect, {}", options.think,
                             model.has_template() ? "the model's chat template knows no enable_thinking" : why));
  }
  if (typed.contains("reasoning") && options.show == "hide" && !model.has_template())
    warnings.add(fmt::format("--reasoning hide: no effect, {}", why));
}

void note_seed(const TypedOptions& typed, const SamplingSettings& sampling, Warnings& warnings) {
  if (!typed.contains("seed") || !sampling.greedy() || sampling.temperature.origin == Origin::kFlag) return;
  warnings.add(fmt::format("--seed {}: no effect, the model answers greedily (--temp 0.7 draws)", sampling.seed.value));
}

void note_stops(const std::vector<std::string>& stops, Warnings& warnings) {
  if (std::find(stops.begin(), stops.end(), "") != stops.end()) warnings.add("--stop '': no effect, the text is empty");
}

void note_repeated(const TypedOptions& typed, std::initializer_list<std::string_view> names, Warnings& warnings) {
  for (const std::string_view name : names) {
    const auto found = typed.find(name);
    if (found != typed.end() && found->second > 1)
      warnings.add(fmt::format("--{}: given {} times, only the last one counts", name, found->second));
  }
}

}  // namespace qgen::cli
