#include "model/description.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace qgen {
namespace {

// Limits that no real model comes near, far below what would overflow or exhaust memory in arithmetic on
// sizes: a config.json beyond them is damaged or hostile.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxContext = int64_t{1} << 31;
constexpr double kMaxRopeFactor = 1e6;

// Above zero and no larger than anything that makes sense (rotary bases reach 1e10).
double read_positive(const Json& value, double highest = 1e18) {
  const double number = value.as_number();
  if (!(number > 0 && number <= highest)) {
    value.fail(fmt::format("{} is out of range (expected above 0, at most {})", number, highest));
  }
  return number;
}

double positive_or(const Json& object, std::string_view key, double fallback) {
  const auto value = object.get(key);
  return value ? read_positive(*value) : fallback;
}

// YaRN's temperature: transformers, get_mscale.
double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

void read_yarn(const Json& scaling, Rope& rope) {
  // Zero and null mean the default for these two.
  const auto beta = [&](const char* key, double fallback) {
    const auto value = scaling.get(key);
    return value && value->as_number() != 0 ? read_positive(*value) : fallback;
  };
  rope.beta_fast = beta("beta_fast", 32);
  rope.beta_slow = beta("beta_slow", 1);
  if (const auto value = scaling.get("truncate")) rope.truncate = value->as_bool();
  const auto mscale = scaling.get("mscale");
  const auto mscale_all = scaling.get("mscale_all_dim");
  if (const auto value = scaling.get("attention_factor")) {
    rope.attention_factor = read_positive(*value);
  } else if (mscale && mscale_all && mscale->as_number() != 0 && mscale_all->as_number() != 0) {
    rope.attention_factor =
        yarn_scale(rope.factor, mscale->as_number()) / yarn_scale(rope.factor, mscale_all->as_number());
  } else {
    rope.attention_factor = yarn_scale(rope.factor, 1);
  }
}

}  // namespace

std::vector<TokenId> read_end_tokens(const Json& config) {
  std::vector<TokenId> out;
  const auto value = config.get("eos_token_id");
  if (!value) return out;
  if (value->is_array()) {
    for (const Json& id : value->elements()) out.push_back(TokenId(id.as_integer(0, kMaxVocab)));
  } else if (value->as_integer(-1, kMaxVocab) >= 0) {  // -1 stands for none in some files
    out.push_back(TokenId(value->as_integer()));
  }
  return out;
}

Rope read_rope(const Json& config, int64_t context) {
  Rope rope;
  // rope_scaling wins over rope_parameters where both say something, as in transformers 5.
  std::optional<Json> scaling = config.get("rope_scaling");
  if (scaling && scaling->members().empty()) scaling.reset();
  if (!scaling) scaling = config.get("rope_parameters");
  rope.theta = positive_or(config, "rope_theta", rope.theta);
  rope.original_context = context;
  for (const auto& object : {std::optional<Json>(config), scaling}) {
    const auto partial = object ? object->get("partial_rotary_factor") : std::nullopt;
    if (partial && partial->as_number() != 1) {
      partial->fail(fmt::format("{} is not supported for this family (expected 1)", partial->as_number()));
    }
  }
  if (!scaling) return rope;

  rope.theta = positive_or(*scaling, "rope_theta", rope.theta);
  std::optional<Json> type = scaling->get("rope_type");
  if (!type) type = scaling->get("type");
  const std::string_view name = type ? type->as_string() : "default";
  if (name == "default") return rope;

  const auto factor = [&] { return read_positive(scaling->at("factor"), kMaxRopeFactor); };
  const auto original_context = [&] {
    for (const Json& object : {config, *scaling}) {
      if (const auto value = object.get("original_max_position_embeddings")) return value->as_integer(1, kMaxContext);
    }
    return context;
  };
  if (name == "linear") {
    rope.scaling = Rope::Scaling::kLinear;
    rope.factor = factor();
  } else if (name == "dynamic") {
    rope.scaling = Rope::Scaling::kDynamic;
    rope.factor = factor();
  } else if (name == "llama3") {
    rope.scaling = Rope::Scaling::kLlama3;
    rope.factor = factor();
    rope.low_frequency_factor = read_positive(scaling->at("low_freq_factor"));
    rope.high_frequency_factor = read_positive(scaling->at("high_freq_factor"));
    rope.original_context = original_context();
  } else if (name == "yarn") {
    rope.scaling = Rope::Scaling::kYarn;
    rope.original_context = original_context();
    rope.factor = scaling->at("factor").is_null() ? double(context) / double(rope.original_context) : factor();
    read_yarn(*scaling, rope);
  } else if (name == "factors") {
    rope.scaling = Rope::Scaling::kFactors;
    for (const Json& value : scaling->at("factors").elements()) {
      rope.factors.push_back(read_positive(value, kMaxRopeFactor));
    }
  } else {
    type->fail(fmt::format("'{}' is not supported", name), "supported: default, linear, dynamic, yarn, llama3");
  }
  return rope;
}

std::vector<double> inverse_frequencies(const Rope& rope, int64_t head_dim, int64_t length) {
  const double d = double(head_dim);
  const int64_t half = head_dim / 2;
  std::vector<double> out(half);
  double theta = rope.theta;
  if (rope.scaling == Rope::Scaling::kDynamic) {
    const double ratio = double(std::max(length, rope.original_context)) / double(rope.original_context);
    theta *= std::pow(rope.factor * ratio - (rope.factor - 1), d / (d - 2));
  }
  for (int64_t i = 0; i < half; ++i) out[i] = std::pow(theta, -2.0 * double(i) / d);

  switch (rope.scaling) {
    case Rope::Scaling::kNone:
    case Rope::Scaling::kDynamic: break;
    case Rope::Scaling::kLinear:
      for (double& f : out) f /= rope.factor;
      break;
    case Rope::Scaling::kFactors:
      for (int64_t i = 0; i < half; ++i) out[i] /= rope.factors[i];
      break;
    case Rope::Scaling::kLlama3:
      for (double& f : out) {
        const double wavelength = 2 * std::numbers::pi / f;
        const double original = double(rope.original_context);
        if (wavelength > original / rope.low_frequency_factor) {
          f /= rope.factor;
        } else if (wavelength >= original / rope.high_frequency_factor) {
          const double smooth = (original / wavelength - rope.low_frequency_factor) /
                                (rope.high_frequency_factor - rope.low_frequency_factor);
          f = (1 - smooth) * f / rope.factor + smooth * f;
        }
      }
      break;
    case Rope::Scaling::kYarn: {
      const auto correction = [&](double rotations) {
        return d * std::log(double(rope.original_context) / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
      };
      double low = correction(rope.beta_fast), high = correction(rope.beta_slow);
      if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
      }
      low = std::max(low, 0.0);
      high = std::min(high, d - 1);
      if (low == high) high += 0.001;
      for (int64_t i = 0; i < half; ++i) {
        const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
        out[i] = out[i] / rope.factor * ramp + out[i] * (1 - ramp);
      }
      break;
    }
  }
  return out;
}

Description describe_decoder(const Json& config, std::string_view family) {
  Description model;
  model.family = family;
  model.layers = config.at("num_hidden_layers").as_integer(1, kMaxLayers);
  model.hidden = config.at("hidden_size").as_integer(1, kMaxWidth);
  model.heads = config.at("num_attention_heads").as_integer(1, kMaxWidth);
  model.kv_heads = model.heads;
  if (const auto value = config.get("num_key_value_heads")) model.kv_heads = value->as_integer(1, model.heads);
  if (model.heads % model.kv_heads != 0) {
    config.at("num_key_value_heads")
        .fail(fmt::format("{} does not divide the {} attention heads", model.kv_heads, model.heads));
  }
  if (const auto value = config.get("head_dim")) {
    model.head_dim = value->as_integer(2, kMaxWidth);
  } else {
    if (model.hidden % model.heads != 0) {
      config.at("hidden_size")
          .fail(fmt::format("{} is no multiple of the {} attention heads, and there is no head_dim", model.hidden,
                            model.heads));
    }
    model.head_dim = model.hidden / model.heads;
  }
  if (model.head_dim % 2 != 0 || model.head_dim < 2)
    config.fail(fmt::format("heads of {} elements cannot be rotated in pairs", model.head_dim));
  if (model.heads * model.head_dim > kMaxWidth)
    config.at("num_attention_heads").fail(fmt::format("{} heads of {} are absurdly many", model.heads, model.head_dim));
  model.intermediate = config.at("intermediate_size").as_integer(1, kMaxWidth);
  model.vocab = config.at("vocab_size").as_integer(1, kMaxVocab);
  model.context = 2048;
  if (const auto value = config.get("max_position_embeddings")) model.context = value->as_integer(1, kMaxContext);
  if (const auto value = config.get("rms_norm_eps")) {
    model.norm_eps = value->as_number();
    if (!(model.norm_eps >= 0 && model.norm_eps < 1))
      value->fail(fmt::format("{} is out of range (expected 0 to 1)", model.norm_eps));
  }
  if (const auto value = config.get("hidden_act")) {
    if (const std::string_view name = value->as_string(); name != "silu" && name != "swish") {
      value->fail(fmt::format("'{}' is not supported for this family", name), "supported: silu");
    }
  }
  if (const auto value = config.get("tie_word_embeddings")) model.tied_head = value->as_bool();
  model.rope = read_rope(config, model.context);
  if (model.rope.scaling == Rope::Scaling::kFactors && int64_t(model.rope.factors.size()) != model.head_dim / 2) {
    config.fail(fmt::format("wrong number of rotary factors (expected {}, half of a head, found {})",
                            model.head_dim / 2, model.rope.factors.size()));
  }
  model.window.assign(model.layers, 0);
  model.end_tokens = read_end_tokens(config);
  return model;
}

}  // namespace qgen
