// The sampling that the makers of a model publish for it, by the model's name: for files that do not carry it along
// (GGUF).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace qgen {

struct PublishedSampling {
  std::string_view name;    // which models, for people
  std::string_view family;  // model_type, or several with ", " between; empty for any
  std::string_view words;   // of the model's name, all of them, separated by spaces; empty for any name
  std::string_view source;  // who says so
  std::optional<double> temperature = {}, top_p = {}, min_p = {};
  std::optional<int64_t> top_k = {};
  std::optional<double> repetition_penalty = {};
};

// The row for a model; nullptr where nothing is published, and for base models. `model_name` may be any text that holds
// the published name: a file's, a repository's, what a GGUF file calls itself.
const PublishedSampling* find_published_sampling(std::string_view family, std::string_view model_name);

// All rows, and the families with GGUF files that none is for: every such family is in one of the two.
std::span<const PublishedSampling> published_sampling();
struct NonePublished {
  std::string_view family, reason;
};
std::span<const NonePublished> none_published();

}  // namespace qgen
