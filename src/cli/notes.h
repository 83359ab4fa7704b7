// Warnings about options that have no effect in this run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/warnings.h"
#include "generate/text_model.h"

namespace qgen::cli {

// --context beyond what the model was made for.
void note_context(const ModelOptions& options, const TextModel& model, Warnings& warnings);
// --think and --chat-template-kwargs where no template listens. `why`: "", or why there is none.
void note_template_options(const ReasoningOptions& options, const TypedOptions& typed,
                           const std::function<bool(std::string_view variable)>& reads, std::string_view why,
                           Warnings& warnings);

// The same, --reasoning where nothing is rendered. `raw`: --raw was given.
void note_reasoning(const ReasoningOptions& options, const TypedOptions& typed, bool raw, const TextModel& model,
                    Warnings& warnings);
// --seed with a model that decodes greedily, --top-k and its like with --temp 0.
void note_sampling(const TypedOptions& typed, const SamplingFlags& flags, const SamplingSettings& sampling,
                   Warnings& warnings);
// --stop without a text.
void note_stops(const std::vector<std::string>& stops, Warnings& warnings);
// Options of which only one can count, typed twice.
void note_repeated(const TypedOptions& typed, std::initializer_list<std::string_view> names, Warnings& warnings);

}  // namespace qgen::cli
