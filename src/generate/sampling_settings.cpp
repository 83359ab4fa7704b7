#include "generate/sampling_settings.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {
namespace {

struct Range {
  double low, high;
  bool open_low;  // low itself is not allowed
};

// `key`: of the model's files, for the option `flag`.
template <typename T>
void check(const T& value, Range range, std::string_view key, std::string_view flag, Origin origin) {
  const double number = double(value);
  if (std::isfinite(number) && number <= range.high && (range.open_low ? number > range.low : number >= range.low))
    return;
  const bool ours = origin == Origin::kFlag;
  fail(ours ? ErrorKind::kUsage : ErrorKind::kModel,
       fmt::format("{}{}: {} is out of range (expected {}{} to {})",
                   ours ? "--" : fmt::format("{}: ", origin_name(origin)), ours ? flag : key, value,
                   range.open_low ? "above " : "", range.low, range.high),
       ours ? "" : fmt::format("--{} sets another value", flag));
}

}  // namespace

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::kBuiltIn: return "built-in";
    case Origin::kRandom: return "random";
    case Origin::kPublished: return "published";
    case Origin::kGguf: return "GGUF keys";
    case Origin::kModel: return "generation_config.json";
    case Origin::kFlag: return "flag";
  }
  return "?";
}

std::string SamplingSettings::origin_text(Origin origin) const {
  return origin == Origin::kPublished ? fmt::format("published for {}", published_for)
                                      : std::string(origin_name(origin));
}

SamplingSettings resolve_sampling(const SamplingFlags& flags, const ModelSampling& model, uint64_t random_seed) {
  SamplingSettings out;
  constexpr double kBig = 1e9;
  const auto from_model = [&](std::string_view key) { return model.config ? model.config->get(key) : std::nullopt; };
  const std::optional<double> none;
  const auto published = [&](auto PublishedSampling::*value) {
    return model.published != nullptr ? model.published->*value : std::decay_t<decltype(model.published->*value)>();
  };
  if (model.published != nullptr) out.published_for = model.published->name;
  const auto resolve = [&](auto& setting, const auto& flag, std::string_view key, std::string_view flag_name,
                           const auto& from_makers, Range range) {
    using Value = std::decay_t<decltype(setting.value)>;
    if (flag) {
      setting = {*flag, Origin::kFlag};
    } else if (const auto value = from_model(key)) {
      if constexpr (std::is_same_v<Value, int64_t>) {
        // -1 is how vLLM writes that none is left out.
        setting = {std::max<int64_t>(value->as_integer(-1), 0), model.config_origin};
      } else {
        setting = {value->as_number(), model.config_origin};
      }
    } else if (from_makers) {
      setting = {*from_makers, Origin::kPublished};
    }
    check(setting.value, range, key, flag_name, setting.origin);
  };
  resolve(out.temperature, flags.temperature, "temperature", "temp", published(&PublishedSampling::temperature),
          {0, kBig, false});
  resolve(out.top_k, flags.top_k, "top_k", "top-k", published(&PublishedSampling::top_k), {0, kBig, false});
  resolve(out.top_p, flags.top_p, "top_p", "top-p", published(&PublishedSampling::top_p), {0, 1, false});
  resolve(out.min_p, flags.min_p, "min_p", "min-p", published(&PublishedSampling::min_p), {0, 1, false});
  resolve(out.typical_p, flags.typical_p, "typical_p", "typical-p", none, {0, 1, true});
  resolve(out.repetition_penalty, flags.repetition_penalty, "repetition_penalty", "repeat-penalty",
          published(&PublishedSampling::repetition_penalty), {0, kBig, true});
  resolve(out.presence_penalty, flags.presence_penalty, "presence_penalty", "presence-penalty", none,
          {-kBig, kBig, false});
  resolve(out.frequency_penalty, flags.frequency_penalty, "frequency_penalty", "frequency-penalty", none,
          {-kBig, kBig, false});
  for (const auto& [token, bias] : flags.logit_bias) check(bias, {-kBig, kBig, false}, "", "logit-bias", Origin::kFlag);
  out.logit_bias = flags.logit_bias;

  if (out.temperature.origin != Origin::kFlag) {
    const auto do_sample = from_model("do_sample");
    const bool asked = flags.top_k || flags.top_p || flags.min_p || flags.typical_p;
    if (do_sample && !do_sample->as_bool() && !asked) {
      out.temperature = {0, model.config_origin};
    } else if (out.temperature.origin == Origin::kBuiltIn && (asked || (do_sample && do_sample->as_bool()))) {
      out.temperature = {1, asked ? Origin::kBuiltIn : model.config_origin};
    }
  }
  out.seed =
      flags.seed ? Setting<uint64_t>{*flags.seed, Origin::kFlag} : Setting<uint64_t>{random_seed, Origin::kRandom};
  return out;
}

}  // namespace qgen
