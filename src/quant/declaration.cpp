#include "quant/declaration.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>

#include <fnmatch.h>

#include <fmt/format.h>
#include <pcre2.h>

#include "base/error.h"
#include "quant/formats.h"

namespace qgen {
namespace {

constexpr size_t kMaxSideFileBytes = size_t{64} << 20;
constexpr size_t kMaxDescriptionBytes = size_t{256} << 20;  // a line for every tensor of a large mixture

// Whether `pattern` matches at the beginning of `text`, as Python's re.match; names are short and patterns come from
// files, so matching may take a bounded number of steps only.
bool matches_regex(const std::string& pattern, std::string_view text) {
  int error = 0;
  size_t at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_ANCHORED, &error, &at, nullptr),
      &pcre2_code_free);
  if (!code)
    fail(ErrorKind::kModel,
         fmt::format("config.json: quantization_config: {} is not a regular expression", json_quote("re:" + pattern)));
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), 100000);
  const int result =
      pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match.get(), context.get());
  if (result < PCRE2_ERROR_NOMATCH)
    fail(ErrorKind::kModel,
         fmt::format("config.json: quantization_config: {} takes too long to match", json_quote("re:" + pattern)));
  return result >= 0;
}

bool is_like(const std::string& pattern, std::string_view module) {
  return ::fnmatch(pattern.c_str(), std::string(module).c_str(), 0) == 0;
}

bool matches(Matching matching, const std::string& entry, std::string_view module) {
  if (entry == module) return true;
  switch (matching) {
    case Matching::kPaths:
      if (entry.find('*') != entry.npos) return is_like(entry, module) || is_like(entry + ".*", module);
      return module.starts_with(entry + ".") || module.ends_with("." + entry);
    case Matching::kTargets:
      return entry == "Linear" || (entry.starts_with("re:") && matches_regex(entry.substr(3), module));
    case Matching::kWildcards: return is_like(entry, module);
  }
  return false;
}

bool any_matches(Matching matching, const std::vector<std::string>& entries, std::string_view module) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& entry) { return matches(matching, entry, module); });
}

// The type of everything that is not quantized: dtype, in older files torch_dtype.
Dtype read_plain_type(const Json& config) {
  std::optional<Json> value = config.get("dtype");
  if (!value) value = config.get("torch_dtype");
  if (!value) return Dtype::kBf16;
  std::string_view name = value->as_string();
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "bfloat16") return Dtype::kBf16;
  if (name == "float16" || name == "half") return Dtype::kF16;
  if (name == "float32" || name == "float") return Dtype::kF32;
  value->fail(fmt::format("'{}' is not supported", name), "supported: bfloat16, float16, float32");
}

// The name of the method that `quant` declares, in lower case, or else a side file.
std::string method_of(const std::optional<Json>& quant, const JsonDocument* side_file) {
  if (!quant) return side_file == nullptr ? "" : side_file->root().get("quantization") ? "modelopt" : "gptq";
  if (const auto method = quant->get("quant_method")) return lower(method->as_string());
  if (quant->get("quant_algo")) return "modelopt";
  if (quant->get("config_groups")) return "compressed-tensors";
  if (quant->flag_or("load_in_8bit", false)) return "bitsandbytes";
  return (quant->get("bits") && quant->get("group_size")) || quant->get("mode") ? "mlx" : "";
}

QuantSource find_source(const Json& config, const JsonDocument* side_file, const JsonDocument* description) {
  QuantSource source;
  source.plain = read_plain_type(config);
  if (description != nullptr) {
    source.method = "msmodelslim";
    source.json = description->root();
    return source;
  }
  source.json = quantization_of(config);
  source.method = method_of(source.json, side_file);
  if (!source.json && side_file != nullptr) source.json = side_object(*side_file);
  return source;
}

void read_group_shapes(const Json& weights, QuantConfig& out) {
  if (const auto block = weights.get("block_structure")) out.groups.push_back(read_block(*block));
  if (const auto group = weights.get("group_size")) {
    if (const int64_t g = group->as_integer(-1, kMaxGroup); g > 0) out.groups.emplace_back(1, g);
  }
}

// GPTQ, MLX: a size for all modules, and further ones for modules of their own, as members or in a table of them.
void read_group_sizes(const Json& quantization, QuantConfig& out) {
  const auto read = [&](const Json& json) {
    if (const auto group = json.get("group_size"); group && group->is_integer()) {
      if (const int64_t g = group->as_integer(-1, kMaxGroup); g > 0) out.groups.emplace_back(1, g);
    }
  };
  read(quantization);
  for (const auto& [name, value] : quantization.members()) {
    if (!value.is_object()) continue;
    read(value);
    if (name != "dynamic" && name != "extra_config") continue;
    for (const auto& [module, own] : value.members()) {
      if (own.is_object()) read(own);
    }
  }
}

// What GPTQ, compressed-tensors and Quark declare of all integer weights alike.
void read_required(QuantConfig& out) {
  if (const auto order = out.value("desc_act"); order && order->is_bool()) out.activation_order = order->as_bool();
  if (!out.json) return;
  if (out.method == "quark") {
    for (const char* key : {"layer_quant_config", "layer_type_quant_config"}) {
      if (const auto some = out.json->get(key); some && !some->members().empty()) return;
    }
    const auto all = out.json->get("global_quant_config");
    const auto weight = all && all->is_object() ? all->get("weight") : std::nullopt;
    out.zero_points = weight && weight->is_object() && !weight->flag_or("symmetric", true);
    return;
  }
  const auto groups = out.json->get("config_groups");
  if (!groups) return;
  std::vector<Json> of_weights;
  for (const auto& [name, group] : groups->members()) {
    if (!group.is_object()) return;  // a preset's name with its targets
    if (const auto weights = group.get("weights")) of_weights.push_back(*weights);
  }
  const auto all_groups = [&](auto&& have) { return !of_weights.empty() && std::ranges::all_of(of_weights, have); };
  out.zero_points = all_groups([](const Json& weights) { return !weights.flag_or("symmetric", true); });
  out.activation_order = all_groups(orders_columns);
}

// The name of msModelSlim's description file; "" if there is none.
std::string find_description(const ModelFiles& files) {
  constexpr std::string_view kName = "quant_model_description", kExtension = ".json";
  std::vector<std::string> found;
  for (std::string& name : files.names()) {
    if (name == fmt::format("{}{}", kName, kExtension)) return std::move(name);
    // First generation: the method behind an underscore.
    if (name.starts_with(fmt::format("{}_", kName)) && name.ends_with(kExtension)) found.push_back(std::move(name));
  }
  if (found.size() > 1) {
    fail(ErrorKind::kModel,
         fmt::format("{}: several description files (expected one, found {})", files.place(), fmt::join(found, ", ")),
         "keep each quantized model in a folder of its own");
  }
  return found.empty() ? "" : found.front();
}

}  // namespace

// Older compressed-tensors files call it compression_config, MLX's say it twice, and multimodal models may have it in
// text_config.
std::optional<Json> quantization_of(const Json& config) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    const auto json = config.get(key);
    if (json && json->is_object()) return json;
    if (json && !json->is_null() && key == std::string_view("quantization_config")) json->members();  // says what it is
  }
  if (const auto text = config.get("text_config"); text && text->is_object()) {
    if (const auto json = text->get("quantization_config"); json && json->is_object()) return json;
  }
  return {};
}

Json side_object(const JsonDocument& side_file) {
  const auto member = side_file.root().get("quantization");
  return member && member->is_object() ? *member : side_file.root();
}

bool orders_columns(const Json& weights) {
  const auto order = weights.get("actorder");
  if (!order) return false;
  return order->is_bool() ? order->as_bool() : order->as_string() == "group" || order->as_string() == "dynamic";
}

bool is_auto_round(std::string_view method) {
  return method == "auto-round" || method == "intel/auto-round" || method == "auto_round" || method == "inc";
}

std::unique_ptr<JsonDocument> read_side_file(const ModelFiles& files) {
  const auto parse = [&](std::string_view name) {
    return JsonDocument::parse(files.read(name, kMaxSideFileBytes), files.subject(name));
  };
  constexpr std::string_view kModelOpt = "hf_quant_config.json", kGptq = "quantize_config.json";
  if (files.has(kModelOpt)) {
    auto document = parse(kModelOpt);
    if (const auto object = document->root().get("quantization"); object && object->is_object()) return document;
  }
  // Other programs have files of this name for methods of their own.
  if (files.has(kGptq)) {
    auto document = parse(kGptq);
    const auto bits = document->root().get("bits"), method = document->root().get("quant_method");
    const bool gptq = !method || (method->is_string() && lower(method->as_string()) == "gptq");
    if (gptq && bits && bits->is_integer() && bits->as_integer() <= 8) return document;
  }
  return nullptr;
}

std::unique_ptr<JsonDocument> read_description(const ModelFiles& files) {
  const std::string name = find_description(files);
  if (name.empty()) return nullptr;
  return JsonDocument::parse(files.read(name, kMaxDescriptionBytes), files.subject(name));
}

void QuantConfig::check_kind(std::string_view module) const {
  for (const auto& [name, error] : unknown_kinds) {
    if (module == name || (module.starts_with(name) && module[name.size()] == '.')) std::rethrow_exception(error);
  }
}

std::optional<Json> QuantConfig::value(std::string_view key) const {
  std::optional<Json> found = json ? json->get(key) : std::nullopt;
  if (!found && side_file != nullptr && method == "gptq") found = side_object(*side_file).get(key);
  return found;
}

std::optional<std::string> QuantConfig::layout() const {
  const auto of = [](const Json& object) -> std::optional<std::string> {
    for (const char* key : {"checkpoint_format", "format"}) {
      if (const auto format = object.get(key); format && format->is_string()) return lower(format->as_string());
    }
    return {};
  };
  std::optional<std::string> found = json ? of(*json) : std::nullopt;
  if (!found && side_file != nullptr && method == "gptq") found = of(side_object(*side_file));
  return found;
}

std::string_view QuantConfig::type_of(std::string_view tensor) const {
  const auto it = types.find(tensor);
  return it == types.end() ? std::string_view() : it->second;
}

// Whether this layout of the method's tensors can be read.
void check_layout(const Json& quant, std::string_view method, bool trust_tensors) {
  for (const char* key : {"checkpoint_format", "format"}) {
    const auto layout = quant.get(key);
    if (!layout || !layout->is_string()) continue;
    const std::string text = lower(layout->as_string());
    for (const char* refused : {"marlin", "bitblas", "sparse"}) {
      if (text.find(refused) != text.npos)
        layout->fail(fmt::format("'{}' is not supported", layout->as_string()), std::string(kOtherCheckpoint));
    }
    if (method == "gptq" && text != "gptq" && text != "gptq_v2" && !trust_tensors)
      layout->fail(fmt::format("the layout '{}' is not known (supported: gptq, gptq_v2)", layout->as_string()),
                   std::string(kTrustTensors));
  }
  if (quant.flag_or("is_marlin_format", false))
    quant.at("is_marlin_format").fail("Marlin's layout is not supported", std::string(kOtherCheckpoint));
}

// `where`: what config.json says of rotations of activations.
[[noreturn]] void refuse_rotations(const Json& where,
                                   std::string_view hint = "the weights alone would give wrong text") {
  where.fail("rotations while running are not supported", std::string(hint));
}

// Quark's rotations that are not part of the weights.
void check_rotations(const Json& quant) {
  const auto algorithms = quant.get("algo_config");
  if (!algorithms || !algorithms->is_array()) return;
  for (const Json& algorithm : algorithms->elements()) {
    if (!algorithm.is_object()) continue;
    for (const char* key : {"online_r1_rotation", "r3", "r4"}) {
      if (const auto on = algorithm.get(key); on && on->is_bool() && on->as_bool()) refuse_rotations(*on);
    }
    const auto online = algorithm.get("online_config");
    const auto layers = online && online->is_object() ? online->get("online_rotation_layers") : std::nullopt;
    if (layers && layers->is_array() && layers->count() > 0) refuse_rotations(*layers);
  }
}

// compressed-tensors' rotations: those of weights were done before these were written.
void check_transforms(const Json& transforms) {
  const auto is_done = [](const Json& group) {
    const auto apply = group.is_object() ? group.get("apply") : std::nullopt;
    return apply && apply->is_array() && std::ranges::all_of(apply->elements(), [](const Json& part) {
             const std::string_view location = part.at("location").as_string();
             return location == "weight_input" || location == "weight_output";
           });
  };
  for (const auto& [key, value] : transforms.members()) {
    if (value.is_null() || (value.is_object() && value.members().empty())) continue;
    const bool done = key == "config_groups" && value.is_object() &&
                      std::ranges::all_of(value.members(), [&](const auto& group) { return is_done(group.second); });
    if (!done) refuse_rotations(value);
  }
}

// Whether this method can be read at all.
void check_method(const Json& quant, bool trust_tensors) {
  const auto method = quant.get("quant_method");
  if (!method) return;
  const std::string name = lower(method->as_string());
  const DeclaredMethod* const row = find_declared_method(name);
  if (row != nullptr && !row->refusal.empty())
    method->fail(fmt::format("'{}' is not supported: {}", name, row->refusal), std::string(kOtherCheckpoint));
  if (row == nullptr && !trust_tensors)
    method->fail(fmt::format("'{}' is not known", name), std::string(kTrustTensors));
  check_rotations(quant);
  if (trust_tensors) return;
  // AutoRound's and GPTQModel's, which may be part of the weights or not.
  for (const char* key : {"rotation_config", "rotation"}) {
    const auto rotation = quant.get(key);
    const bool some = rotation && ((rotation->is_object() && !rotation->members().empty()) ||
                                   (rotation->is_string() && !rotation->as_string().empty()));
    if (some) refuse_rotations(*rotation, kTrustTensors);
  }
}

// Whether the kinds of the method that the keys name are known.
void check_kinds(const Json& quant, QuantConfig& config) {
  for (const Format& format : formats()) {
    if (format.check != nullptr) format.check(quant, config);
  }
}

QuantConfig QuantConfig::read(const Json& config, const ModelFiles& files, bool trust_tensors) {
  QuantConfig out;
  if (const auto description = read_description(files)) {
    out.description = description->subject();
    for (const auto& [name, value] : description->root().members()) {
      if (value.is_string()) out.types.emplace(name, value.as_string());
    }
    // QuaRot's, which has a file of rotations of its own.
    const auto optional = description->root().get("optional");
    const auto rotations = optional && optional->is_object() ? optional->get("quarot") : std::nullopt;
    if (rotations && rotations->is_object() && !rotations->members().empty() && !trust_tensors)
      refuse_rotations(*rotations);
  }
  const std::optional<Json> quant = quantization_of(config);
  out.side_file = read_side_file(files);
  out.json = quant;
  out.method = method_of(quant, out.side_file.get());
  if (out.method == "gptq" && out.side_file != nullptr) {
    const Json side = side_object(*out.side_file);
    check_layout(side, out.method, trust_tensors);
    if (!quant) read_group_sizes(side, out);
  }
  if (!quant && out.side_file != nullptr && !trust_tensors) check_kinds(side_object(*out.side_file), out);
  if (!trust_tensors) read_required(out);
  if (!quant) return out;
  check_method(*quant, trust_tensors);
  check_layout(*quant, out.method, trust_tensors);
  if (!trust_tensors) check_kinds(*quant, out);
  read_group_sizes(*quant, out);
  if (const auto block = quant->get("weight_block_size")) out.groups.push_back(read_block(*block));
  if (const auto groups = quant->get("config_groups")) {
    for (const auto& [name, group] : groups->members()) {
      if (!group.is_object()) continue;  // a preset's name with its targets: it declares no groups
      if (const auto weights = group.get("weights")) read_group_shapes(*weights, out);
    }
  }
  if (const auto transforms = quant->get("transform_config"); transforms && transforms->is_object())
    check_transforms(*transforms);
  if (const auto sparsity = quant->get("sparsity_config")) {
    if (const auto format = sparsity->get("format"); format && format->as_string() != "dense") {
      format->fail(fmt::format("sparse weights ('{}') are not supported", format->as_string()));
    }
  }
  return out;
}

Declaration Declaration::read(const Json& config, const JsonDocument* side_file, const JsonDocument* description) {
  const QuantSource source = find_source(config, side_file, description);
  Declaration out;
  out.plain = source.plain;
  for (const Format& format : formats()) {
    if (!format.read(source, out)) continue;
    out.format = &format;
    return out;
  }
  const auto bits = source.json->get("bits");
  source.json->fail(
      source.method.empty()
          ? "says no quant_method"
          : fmt::format("quant_method '{}'{} is not supported", source.method,
                        bits && bits->is_integer() ? fmt::format(" with {} bits", bits->as_integer()) : ""),
      "`qgen models` lists what is");
}

const Scheme* Declaration::scheme_of(std::string_view module) const {
  if (format != nullptr && format->read == kMsModelSlimFormat.read) {
    const auto it = scheme_of_module.find(module);
    return it == scheme_of_module.end() ? nullptr : &schemes[it->second];
  }
  if (any_matches(matching, excluded, module)) return nullptr;
  // A group that names the module wins over one that names its class.
  const Scheme* by_class = nullptr;
  for (const Scheme& scheme : schemes) {
    if (scheme.targets.empty()) return &scheme;
    for (const std::string& target : scheme.targets) {
      if (!matches(matching, target, module)) continue;
      if (target != "Linear") return &scheme;
      if (by_class == nullptr) by_class = &scheme;
    }
  }
  return by_class;
}

std::pair<int64_t, int64_t> read_block(const Json& json) {
  if (!json.is_string()) {
    const auto sizes = json.elements();
    if (sizes.size() != 2) json.fail(fmt::format("expected 2 sizes, found {}", sizes.size()));
    return {sizes[0].as_integer(1, kMaxGroup), sizes[1].as_integer(1, kMaxGroup)};
  }
  const std::string_view text = json.as_string();
  int64_t sizes[2] = {0, 0};
  const char* p = text.data();
  const char* const end = p + text.size();
  for (int i = 0; i < 2; ++i) {
    const auto [next, error] = std::from_chars(p, end, sizes[i]);
    if (error != std::errc{} || sizes[i] < 1 || sizes[i] > kMaxGroup ||
        (i == 0 ? next == end || *next != 'x' : next != end)) {
      json.fail(fmt::format("'{}' is not a block size (expected ROWSxCOLUMNS)", text));
    }
    p = next + 1;
  }
  return {sizes[0], sizes[1]};
}

Dtype fp8_type(const Json& format) {
  const std::string name = lower(format.as_string());
  for (const char* known : {"e4m3", "float8_e4m3fn", "fp8_e4m3"}) {
    if (name == known) return Dtype::kF8E4M3;
  }
  for (const char* known : {"e5m2", "float8_e5m2", "fp8_e5m2"}) {
    if (name == known) return Dtype::kF8E5M2;
  }
  format.fail(fmt::format("'{}' is not supported", name), "supported: e4m3, e5m2");
}

Dtype read_fp8_type(const Json& quantization) {
  const auto format = quantization.get("fmt");
  return format ? fp8_type(*format) : Dtype::kF8E4M3;
}

bool read_static_inputs(const Json& quantization) {
  const auto scheme = quantization.get("activation_scheme");
  return scheme && scheme->as_string() == "static";
}

std::vector<std::string> read_names(const Json& object, std::string_view key) {
  std::vector<std::string> out;
  if (const auto list = object.get(key)) {
    for (const Json& name : list->elements()) out.emplace_back(name.as_string());
  }
  return out;
}

void read_excluded_paths(const Json& quantization, Declaration& out) {
  out.matching = Matching::kPaths;
  out.excluded = read_names(quantization, "modules_to_not_convert");
  for (std::string& name : read_names(quantization, "ignored_layers")) out.excluded.push_back(std::move(name));
  out.excluded.emplace_back("lm_head");  // never converted, listed or not
}

int64_t scheme_grid_rows(const Scheme& scheme, int64_t rows) {
  return scheme.group_rows == 0 ? 1 : (rows + scheme.group_rows - 1) / scheme.group_rows;
}

int64_t scheme_grid_cols(const Scheme& scheme, int64_t cols) {
  return scheme.group_cols == 0 ? 1 : (cols + scheme.group_cols - 1) / scheme.group_cols;
}

}  // namespace qgen
