#include "model/families/common.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace qgen {
namespace {

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

// Phi-3's: transformers, _compute_longrope_parameters.
void read_longrope(const Json& scaling, Rope& rope, int64_t context) {
  rope.scaling = Rope::Scaling::kFactors;
  if (const auto value = scaling.get("attention_factor")) {
    rope.attention_factor = read_positive(*value);
    return;
  }
  const auto factor = scaling.get("factor");
  const double growth =
      factor ? read_positive(*factor, kMaxRopeFactor) : double(context) / double(rope.original_context);
  if (growth > 1 && rope.original_context > 1)
    rope.attention_factor = std::sqrt(1 + std::log(growth) / std::log(double(rope.original_context)));
}

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

namespace {

// What `scaling` says, with keys that may stand in `config` instead.
Rope read_scaling(Rope rope, const Json& config, const Json& scaling, int64_t context) {
  rope.theta = positive_or(scaling, "rope_theta", rope.theta);
  std::optional<Json> type = scaling.get("rope_type");
  if (!type) type = scaling.get("type");
  const std::string_view name = type ? type->as_string() : "default";
  // Positions in sections (mrope) are the same number for text.
  if (name == "default" || name == "mrope") return rope;

  const auto factor = [&] { return read_positive(scaling.at("factor"), kMaxRopeFactor); };
  const auto original_context = [&] {
    for (const Json& object : {config, scaling}) {
      if (const auto value = object.get("original_max_position_embeddings")) return value->as_integer(1, kMaxContext);
    }
    return context;
  };
  if (name == "longrope" || name == "su" || scaling.get("long_factor")) {
    rope.original_context = original_context();
    read_longrope(scaling, rope, context);
  } else if (name == "linear") {
    rope.scaling = Rope::Scaling::kLinear;
    rope.factor = factor();
  } else if (name == "dynamic") {
    rope.scaling = Rope::Scaling::kDynamic;
    rope.factor = factor();
  } else if (name == "llama3") {
    rope.scaling = Rope::Scaling::kLlama3;
    rope.factor = factor();
    rope.low_frequency_factor = read_positive(scaling.at("low_freq_factor"));
    rope.high_frequency_factor = read_positive(scaling.at("high_freq_factor"));
    rope.original_context = original_context();
  } else if (name == "yarn" || name == "deepseek_yarn") {
    rope.scaling = Rope::Scaling::kYarn;
    rope.original_context = original_context();
    rope.factor = scaling.at("factor").is_null() ? double(context) / double(rope.original_context) : factor();
    read_yarn(scaling, rope);
  } else if (name == "factors") {
    rope.scaling = Rope::Scaling::kFactors;  // a tensor of the file
  } else {
    type->fail(fmt::format("'{}' is not supported", name),
               "supported: default, linear, dynamic, yarn, llama3, longrope");
  }
  return rope;
}

}  // namespace

namespace {

// rope_scaling wins over rope_parameters where both say something, as in transformers 5.
std::optional<Json> find_scaling(const Json& config) {
  const auto scaling = config.get("rope_scaling");
  return scaling && !scaling->members().empty() ? scaling : config.get("rope_parameters");
}

// How many elements of a head are rotated; `part`: of a head, where nothing is said, 0 if the family rotates whole
// heads. GGUF files have the number itself.
int64_t rotated_elements(const Json& config, const std::optional<Json>& scaling, int64_t head_dim, double part) {
  if (part == kWholeHead) return head_dim;
  int64_t elements = int64_t(double(head_dim) * (part > 0 ? part : 1) + 1e-6);
  const auto count = config.get("rope.dimension_count");
  if (count) elements = count->as_integer(1, head_dim);
  if (count && part == 0 && elements != head_dim)
    count->fail(fmt::format("{} is not supported for this family (expected {})", elements, head_dim));
  for (const auto& object : {std::optional<Json>(config), scaling}) {
    const auto value = object ? object->get("partial_rotary_factor") : std::nullopt;
    if (!value) continue;
    const double found = value->as_number();
    if (part == 0 && found != 1) value->fail(fmt::format("{} is not supported for this family (expected 1)", found));
    if (!(found > 0 && found <= 1)) value->fail(fmt::format("{} is out of range (expected above 0, at most 1)", found));
    elements = int64_t(double(head_dim) * found + 1e-6);
  }
  if (elements < 2 || elements % 2 != 0)
    config.fail(fmt::format("{} of {} elements of a head cannot be rotated in pairs", elements, head_dim));
  return elements;
}

// short_factor and long_factor of the first rope.
void read_rope_factors(const Json& config, Description& model) {
  const auto scaling = find_scaling(config);
  if (!scaling || model.ropes[0].scaling != Rope::Scaling::kFactors || is_from_gguf(config)) return;
  const auto read = [&](std::string_view key) {
    const Json list = scaling->at(key);
    std::vector<float> out;
    for (const Json& value : list.elements()) out.push_back(float(read_positive(value)));
    if (int64_t(out.size()) != model.ropes[0].dim / 2)
      list.fail(fmt::format("expected {} numbers, found {}", model.ropes[0].dim / 2, out.size()));
    return out;
  };
  model.rope_factors.push_back({0, read("short_factor"), read("long_factor")});
}

}  // namespace

double read_yarn_score_scale(const Json& config) {
  const auto scaling = find_scaling(config);
  const auto all_dim = scaling ? scaling->get("mscale_all_dim") : std::nullopt;
  const auto factor = scaling ? scaling->get("factor") : std::nullopt;
  if (!all_dim || !factor || all_dim->as_number() == 0) return 1;
  const double scale = yarn_scale(read_positive(*factor, kMaxRopeFactor), all_dim->as_number());
  return scale * scale;
}

Rope read_rope(const Json& config, int64_t context, int64_t head_dim, double theta, double partial) {
  const std::optional<Json> scaling = find_scaling(config);
  Rope rope;
  rope.dim = rotated_elements(config, scaling, head_dim, partial);
  rope.theta = positive_or(config, "rope_theta", theta);
  rope.original_context = context;
  if (config.flag_or("rope_adjacent_pairs", false)) rope.pairs = Rope::Pairs::kAdjacent;
  return scaling ? read_scaling(rope, config, *scaling, context) : rope;
}

Rope plain_rope(int64_t context, int64_t dim, double theta) {
  Rope rope;
  rope.dim = dim;
  rope.theta = theta;
  rope.original_context = context;
  return rope;
}

Rope read_rope_parameters(const Json& parameters, int64_t context, int64_t dim, double theta) {
  Rope rope = plain_rope(context, dim, theta);
  const auto type = parameters.get("rope_type");
  if (!type || type->as_string() != "proportional") return read_scaling(rope, parameters, parameters, context);
  rope.theta = read_number(parameters, "rope_theta", theta);
  const double part = read_number(parameters, "partial_rotary_factor", 1);
  rope.pairs_turned = part > 1 ? 0 : int64_t(part * double(dim) / 2);
  if (rope.pairs_turned == 0)
    parameters.fail(fmt::format("partial_rotary_factor: {} is not a part of a head of {}", part, dim));
  if (read_number(parameters, "factor", 1) != 1) parameters.fail("factor: not supported with rope_type 'proportional'");
  return rope;
}

std::vector<Rope> read_layer_ropes(const Json& config, int64_t context, int64_t dim, double theta, double local_theta) {
  const auto parameters = config.get("rope_parameters");
  if (!parameters || !(parameters->get("full_attention") || parameters->get("sliding_attention"))) return {};
  std::vector<Rope> ropes;
  for (const auto& [key, base] : {std::pair("full_attention", theta), {"sliding_attention", local_theta}}) {
    const auto of_layers = parameters->get(key);
    ropes.push_back(of_layers ? read_rope_parameters(*of_layers, context, dim, base) : plain_rope(context, dim, base));
  }
  if (const auto scaling = config.get("rope_scaling"); scaling && !scaling->members().empty()) {
    if (!scaling->get("rope_type") && !scaling->get("type"))
      scaling->fail("says no rope_type, beside rope_parameters by the kind of layer");
    ropes[0] = read_rope_parameters(*scaling, context, dim, ropes[0].theta);
  }
  return ropes;
}

double read_epsilon(const Json& config, std::string_view key, double fallback) {
  const auto value = config.get(key);
  if (!value) return fallback;
  const double epsilon = value->as_number();
  if (!(epsilon >= 0 && epsilon < 1)) value->fail(fmt::format("{} is out of range (expected 0 to 1)", epsilon));
  return epsilon;
}

Activation read_activation(const Json& config, std::string_view key, Activation fallback) {
  constexpr struct {
    std::string_view name;
    Activation activation;
  } kNames[] = {{"silu", Activation::kSilu},         {"swish", Activation::kSilu},
                {"gelu", Activation::kGelu},         {"gelu_pytorch_tanh", Activation::kGeluTanh},
                {"gelu_new", Activation::kGeluTanh}, {"relu", Activation::kRelu},
                {"relu2", Activation::kReluSquared}};
  const auto value = config.get(key);
  if (!value) return fallback;
  for (const auto& row : kNames) {
    if (row.name == value->as_string()) return row.activation;
  }
  value->fail(fmt::format("'{}' is not supported", value->as_string()),
              "supported: silu, gelu, gelu_pytorch_tanh, relu, relu2");
}

std::vector<int64_t> read_layer_windows(const Json& types, int64_t layers, int64_t window) {
  std::vector<int64_t> windows(size_t(layers), 0);
  const auto list = types.elements();
  if (int64_t(list.size()) != layers) types.fail(fmt::format("expected {} entries, found {}", layers, list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string_view type = list[i].as_string();
    if (type == "sliding_attention") {
      windows[i] = window;
    } else if (type != "full_attention") {
      list[i].fail(fmt::format("'{}' is not supported", type), "supported: full_attention, sliding_attention");
    }
  }
  return windows;
}

std::vector<int64_t> read_windows(const Json& config, int64_t layers, int64_t fallback, int64_t every) {
  int64_t window = fallback;
  if (const auto value = config.find("sliding_window"))
    window = value->is_null() ? 0 : value->as_integer(0, kMaxContext);
  std::vector<int64_t> windows(size_t(layers), 0);
  if (window == 0) return windows;
  if (const auto types = config.get("layer_types")) return read_layer_windows(*types, layers, window);
  const auto pattern = config.get("sliding_window_pattern");
  if (pattern && pattern->is_string()) {  // "LLLG"
    const std::string_view letters = pattern->as_string();
    if (letters.empty() || letters.find_first_not_of("LG") != letters.npos)
      pattern->fail(fmt::format("'{}' is not supported", letters), "supported: letters L and G, as in LLLG");
    for (int64_t i = 0; i < layers; ++i) windows[size_t(i)] = letters[size_t(i) % letters.size()] == 'L' ? window : 0;
    return windows;
  }
  if (pattern) every = pattern->as_integer(1, kMaxLayers);
  for (int64_t i = 0; i < layers; ++i) windows[size_t(i)] = every > 0 && (i + 1) % every == 0 ? 0 : window;
  return windows;
}

std::vector<int64_t> read_last_windows(const Json& config, int64_t layers, int64_t first) {
  std::vector<int64_t> windows(size_t(layers), 0);
  int64_t window = 4096;
  if (const auto value = config.find("sliding_window")) {
    if (value->is_null()) return windows;
    window = value->as_integer(1);
  }
  if (const auto types = config.get("layer_types")) return read_layer_windows(*types, layers, window);
  if (const auto value = config.get("max_window_layers")) first = value->as_integer(0);
  for (int64_t i = first; i < layers; ++i) windows[size_t(i)] = window;
  return windows;
}

std::string_view first_architecture(const Json& config) {
  const auto value = config.get("architectures");
  if (!value) return {};
  const auto list = value->elements();
  return list.empty() ? std::string_view() : list.front().as_string();
}

bool is_from_gguf(const Json& config) { return config.find("rope_adjacent_pairs").has_value(); }

void allow_class_sizes(const Json& config, DecoderDefaults& defaults, int64_t intermediate) {
  if (config.is_root()) return;
  defaults.layers = 32;
  defaults.hidden = 4096;
  defaults.heads = 32;
  defaults.intermediate = intermediate;
  defaults.vocab = 32000;
}

void refuse_bidirectional(const Json& config) {
  const auto value = config.get("use_bidirectional_attention");
  if (value && (value->is_string() ? value->as_string() != "vision" : value->as_bool()))
    value->fail("tokens that see those behind them are not supported", "a model of embeddings writes no text");
}

void expect_silu(const Json& config, std::string_view key) {
  if (read_activation(config, key, Activation::kSilu) != Activation::kSilu) {
    const Json value = config.at(key);
    value.fail(fmt::format("'{}' is not supported for this family (expected silu)", value.as_string()));
  }
}

int64_t read_size(const Json& config, std::string_view key, int64_t lowest, int64_t most, int64_t fallback) {
  const auto value = config.get(key);
  return value ? value->as_integer(lowest, most) : fallback;
}

double read_number(const Json& config, std::string_view key, double fallback) {
  return positive_or(config, key, fallback);
}

void read_biases(const Json& config, DecoderParts& parts, bool qkv) {
  parts.attention.qkv_bias = config.flag_or("attention_bias", qkv);
  parts.attention.out_bias = config.flag_or("attention_bias", false);
  parts.feed_forward.bias = config.flag_or("mlp_bias", false);
}

DecoderParts read_decoder(const Json& config, std::string_view family, const DecoderDefaults& defaults) {
  DecoderParts parts;
  Description& model = parts.model;
  AttentionSpec& attention = parts.attention;
  // A family's own key, where it is absent the common one.
  const auto own_key = [&](std::string_view DecoderKeys::*key) {
    return config.get(defaults.keys.*key) ? defaults.keys.*key : DecoderKeys{}.*key;
  };
  const auto size = [&](std::string_view DecoderKeys::*key, int64_t most, int64_t fallback) {
    if (const auto value = config.get(own_key(key))) return value->as_integer(1, most);
    return fallback > 0 ? fallback : config.at(defaults.keys.*key).as_integer(1, most);
  };
  model.family = family;
  parts.layers = size(&DecoderKeys::layers, kMaxLayers, defaults.layers);
  model.hidden = size(&DecoderKeys::hidden, kMaxWidth, defaults.hidden);
  attention.heads = size(&DecoderKeys::heads, kMaxWidth, defaults.heads);
  // null: as many as heads.
  const bool says_none = defaults.kv_heads > 0 && !config.find(own_key(&DecoderKeys::kv_heads));
  attention.kv_heads = size(&DecoderKeys::kv_heads, attention.heads, says_none ? defaults.kv_heads : attention.heads);
  if (attention.kv_heads > attention.heads || attention.heads % attention.kv_heads != 0) {
    config.fail(fmt::format("{}: {} does not divide the {} attention heads", defaults.keys.kv_heads, attention.kv_heads,
                            attention.heads));
  }
  const auto head_dim = config.get(own_key(&DecoderKeys::head_dim));
  if (!head_dim && defaults.head_dim == 0 && model.hidden % attention.heads != 0) {
    config.fail(fmt::format("hidden_size: {} is not a multiple of the {} attention heads, and there is no head_dim",
                            model.hidden, attention.heads));
  }
  attention.head_dim = head_dim                ? head_dim->as_integer(2, kMaxWidth)
                       : defaults.head_dim > 0 ? defaults.head_dim
                                               : model.hidden / attention.heads;
  if (attention.head_dim % 2 != 0 || attention.head_dim < 2)
    config.fail(fmt::format("heads of {} elements cannot be rotated in pairs", attention.head_dim));
  if (attention.heads * attention.head_dim > kMaxWidth)
    config.fail(
        fmt::format("num_attention_heads: {} heads of {} are absurdly many", attention.heads, attention.head_dim));
  parts.feed_forward.width = size(&DecoderKeys::intermediate, kMaxWidth, defaults.intermediate);
  if (defaults.activation != Activation::kNone)
    parts.feed_forward.activation = read_activation(config, own_key(&DecoderKeys::activation), defaults.activation);
  model.vocab = size(&DecoderKeys::vocab, kMaxVocab, defaults.vocab);
  model.context = size(&DecoderKeys::context, kMaxContext, defaults.context);
  parts.norm.eps = read_epsilon(config, own_key(&DecoderKeys::epsilon), defaults.epsilon);
  if (const auto value = config.get("tie_word_embeddings")) model.tied_head = value->as_bool();
  model.ropes = {read_rope(config, model.context, attention.head_dim, defaults.rope_theta, defaults.partial_rotary)};
  read_rope_factors(config, model);
  parts.windows.assign(size_t(parts.layers), 0);
  model.end_tokens = read_end_tokens(config);
  return parts;
}

Description finish_decoder(DecoderParts parts) {
  Description& model = parts.model;
  model.final_norm = parts.norm;
  for (const int64_t window : parts.windows) {
    BlockSpec attention{BlockSpec::NormUse{Role::kAttnNorm, parts.norm}, {}, parts.attention};
    std::get<AttentionSpec>(attention.mixer).window = window;
    const BlockSpec feed_forward{BlockSpec::NormUse{Role::kFfnNorm, parts.norm}, {}, parts.feed_forward};
    model.layers.push_back({attention, feed_forward});
  }
  return std::move(parts.model);
}

void set_draft(Description& model, const Json& config, std::string_view key, DraftSpec draft, bool unsaid) {
  const int64_t count = int64_t(model.layers.size());
  int64_t layers = unsaid || is_from_gguf(config) ? 1 : 0;
  const auto said = config.get(key);
  if (said && !said->is_null()) layers = said->as_integer(0, 64);
  model.drafting_layers = {count, count + std::max<int64_t>(1, layers)};
  if (layers > 0) {
    model.draft = std::move(draft);
  } else if (said && !said->is_null()) {
    model.no_draft = fmt::format("config.json says {}: 0", key);
  }
}

void use_layer_norm(DecoderParts& parts, bool biased) {
  parts.norm.kind = Norm::Kind::kLayer;
  parts.norm.biased = biased;
}

AttentionSpec& attention_of(std::vector<BlockSpec>& layer) { return std::get<AttentionSpec>(layer[0].mixer); }

void add_post_norms(Description& model, bool instead) {
  for (auto& layer : model.layers) {
    layer[0].after = {Role::kAttnPostNorm, model.final_norm};
    layer[1].after = {Role::kFfnPostNorm, model.final_norm};
    if (instead) layer[0].before = layer[1].before = std::nullopt;
  }
}

void make_parallel(Description& model) {
  for (auto& layer : model.layers) {
    layer[1].before = std::nullopt;
    layer[1].parallel = true;
  }
}

}  // namespace qgen
