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

void note_template_options(const ReasoningOptions& options, const TypedOptions& typed,
                           const std::function<bool(std::string_view)>& reads, std::string_view why,
                           Warnings& warnings) {
  const auto note = [&](std::string_view option, const std::string& deaf) {
    if (!deaf.empty()) warnings.add(fmt::format("{}: no effect, {}", option, why.empty() ? deaf : why));
  };
  if (typed.contains("think")) note(fmt::format("--think {}", options.think), options.deaf_think(reads));
  if (typed.contains("chat-template-kwargs")) note("--chat-template-kwargs", options.deaf_arguments(reads));
}

void note_reasoning(const ReasoningOptions& options, const TypedOptions& typed, bool raw, const TextModel& model,
                    Warnings& warnings) {
  const std::string_view why = raw ? "--raw goes without the chat template" : "the model has no chat template";
  const auto reads = [&](std::string_view variable) { return model.template_reads(variable); };
  note_template_options(options, typed, reads, model.has_template() ? "" : why, warnings);
  if (typed.contains("reasoning") && options.show == "hide" && !model.has_template())
    warnings.add(fmt::format("--reasoning hide: no effect, {}", why));
}

void note_sampling(const TypedOptions& typed, const SamplingFlags& flags, const SamplingSettings& sampling,
                   Warnings& warnings) {
  if (!sampling.greedy()) return;
  if (sampling.temperature.origin != Origin::kFlag) {
    if (typed.contains("seed"))
      warnings.add(fmt::format("--seed {}: no effect, the model answers greedily (--temp 0.7 draws)", *flags.seed));
    return;
  }
  // Scripts give --temp 0 and a seed side by side; who limits the choice meant to have one.
  const auto note = [&](std::string_view name, const auto& value) {
    if (typed.contains(name))
      warnings.add(fmt::format("--{} {}: no effect, --temp 0 always takes the likeliest token", name, *value));
  };
  note("top-k", flags.top_k);
  note("top-p", flags.top_p);
  note("min-p", flags.min_p);
  note("typical-p", flags.typical_p);
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
