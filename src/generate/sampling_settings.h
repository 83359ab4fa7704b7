// Sampling settings, each with its origin: a flag, the model's files, values that its makers published, or built in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/token.h"
#include "generate/published_sampling.h"

namespace qgen {

enum class Origin {
  kBuiltIn,
  kRandom,     // a seed drawn at random
  kPublished,  // by the model's makers, not in its files
  kGguf,       // the keys of a GGUF file
  kModel,      // generation_config.json
  kFlag,
};
std::string_view origin_name(Origin origin);

template <typename T>
struct Setting {
  T value{};
  Origin origin = Origin::kBuiltIn;
};

// What the user asked for; absent values are the model's to say.
struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p, typical_p;
  std::optional<int64_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::pair<TokenId, double>> logit_bias;
};

struct SamplingSettings {
  Setting<double> temperature{0};         // 0: greedy
  Setting<int64_t> top_k{0};              // 0: off
  Setting<double> top_p{1};               // 1: off
  Setting<double> min_p{0};               // 0: off
  Setting<double> typical_p{1};           // 1: off
  Setting<double> repetition_penalty{1};  // 1: off
  Setting<double> presence_penalty{0};
  Setting<double> frequency_penalty{0};
  Setting<uint64_t> seed{0};
  std::vector<std::pair<TokenId, double>> logit_bias;
  std::string_view published_for;  // the models that values of this origin are for

  // For people.
  std::string origin_text(Origin origin) const;
  bool greedy() const { return temperature.value == 0; }
};

// What a model recommends.
struct ModelSampling {
  std::optional<Json> config = {};  // generation_config.json, or what a GGUF file has for it
  Origin config_origin = Origin::kModel;
  const PublishedSampling* published = nullptr;  // for a model whose files recommend nothing
};

// flag > the model's files > what is published > built-in. A model samples if it says do_sample, or gives a temperature
// and does not say otherwise; a flag that only makes sense when sampling turns it on. Without a seed flag the seed is
// `random_seed`. Throws an Error that names a value out of range.
SamplingSettings resolve_sampling(const SamplingFlags& flags, const ModelSampling& model, uint64_t random_seed);

}  // namespace qgen
