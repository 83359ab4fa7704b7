// How the next token is chosen, and who said so: a flag, the model's generation_config.json, or nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/token.h"

namespace qgen {

enum class Origin { kBuiltIn, kModel, kFlag };
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

  bool greedy() const { return temperature.value == 0; }
};

// flag > generation_config.json > built-in. A model samples if it says do_sample, or gives a temperature and
// does not say otherwise; a flag that only makes sense when sampling turns it on. Without a seed flag the seed is
// `random_seed`. Throws an Error that names a value out of range.
SamplingSettings resolve_sampling(const SamplingFlags& flags, const std::optional<Json>& generation_config,
                                  uint64_t random_seed);

}  // namespace qgen
