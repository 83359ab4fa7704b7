// compressed-tensors "int-quantized" and "float-quantized", AutoFP8, and all that shares their layout:
// I8 or F8 codes, weight_scale per tensor, channel, group or block, and for asymmetric int8 a
// weight_zero_point of the same shape: W = (code - zero_point) * scale.
#include <algorithm>
#include <iterator>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  return weight != nullptr && byte_codes(*weight) && module.has("weight_scale");
}

// Properties that need the values are read when the model is loaded: the order of the columns, and whether zero points
// are all zero.
std::shared_ptr<const Weight::Repack> make_repack(const Weight& weight, std::optional<TensorView> group_index) {
  auto repack = std::make_shared<Weight::Repack>();
  const std::span<const std::byte> codes = weight.data;
  repack->prepare = [group_index = std::move(group_index)](Weight& w) {
    if (!w.zero_point.empty() && all_equal(w.zero_point, 0)) w.zero_point = {};
    if (group_index) w.column_order = read_group_order(*group_index, w.scale, w.cols);
    w.ordered = !w.column_order.empty();
    if (!w.ordered) return;
    own_codes(w);
  };
  repack->rows = [codes](Weight& w, int64_t begin, int64_t end) {
    if (!w.ordered) return;
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t k = 0; k < w.cols; ++k) w.owned[n * w.cols + k] = codes[n * w.cols + w.column_order[k]];
    }
  };
  return repack;
}

Weight bind(Module& module) {
  Weight weight = module.take_codes("weight", *byte_codes(*module.peek("weight")));
  weight.scale = module.take_grid("weight_scale");
  if (weight.codes == Codes::kI8) module.require_declared(weight.scale);
  if (module.has("weight_zero_point")) weight.zero_point = module.take_zero_points("weight_zero_point", weight.scale);
  std::optional<TensorView> group_index;
  if (module.has("weight_g_idx")) group_index = take_group_index(module, "weight_g_idx");
  weight.ordered = group_index.has_value();
  if (!weight.ordered && weight.zero_point.empty()) return weight;
  if (weight.repack != nullptr)
    fail_tensor(*module.peek("weight"), "zero points and activation order are not supported for FNUZ codes");
  weight.repack = make_repack(weight, std::move(group_index));
  return weight;
}

// One entry of config_groups, "weights" being QuantizationArgs of compressed-tensors.
Scheme read_weights(const Json& weights, const QuantSource& source, bool is_packed) {
  Scheme scheme;
  scheme.packed = is_packed;
  const auto bits = weights.get("num_bits");
  if (!bits) weights.fail("says no num_bits", "supported: 8");
  scheme.bits = int(bits->as_integer(0, 64));
  const bool is_float = weights.get("type") && weights.at("type").as_string() == "float";
  if (is_packed && is_float && scheme.bits == 4) {
    const int64_t group = weights.at("group_size").as_integer(1, kMaxGroup);
    if (group != 16 && group != 32)
      weights.at("group_size").fail(fmt::format("{} is not supported", group), "supported: 16 (NVFP4), 32 (MXFP4)");
    scheme.codes = Dtype::kU8;
    scheme.scales = group == 16 ? Dtype::kF8E4M3 : Dtype::kU8;
    scheme.group_rows = 1;
    scheme.group_cols = group;
    return scheme;
  }
  if (scheme.bits != 8 && !(is_packed && (scheme.bits == 4 || scheme.bits == 2)))
    weights.fail(fmt::format("num_bits {} is not supported", scheme.bits),
                 is_packed ? "supported: 8, 4, 2" : "supported: 8");
  const std::string_view type = weights.get("type") ? weights.at("type").as_string() : "int";
  if (type != "int" && type != "float") weights.at("type").fail(fmt::format("'{}' is not supported", type));
  scheme.codes = type == "int" ? Dtype::kI8 : Dtype::kF8E4M3;
  scheme.scales = source.plain;
  const auto symmetric = weights.get("symmetric");
  scheme.zero_points = symmetric && !symmetric->as_bool();
  scheme.activation_order = orders_columns(weights);
  int64_t group = 0;
  if (const auto value = weights.get("group_size")) group = value->as_integer(-1, kMaxGroup);
  std::string strategy = group > 0 ? "group" : group < 0 ? "channel" : "tensor";
  if (const auto value = weights.get("strategy")) strategy = value->as_string();
  if (strategy == "channel") {
    scheme.group_rows = 1;
  } else if (strategy == "group") {
    if (group <= 0) weights.fail("strategy 'group' without a group_size");
    scheme.group_rows = 1;
    scheme.group_cols = group;
  } else if (strategy == "block") {
    std::tie(scheme.group_rows, scheme.group_cols) = read_block(weights.at("block_structure"));
  } else if (strategy != "tensor") {
    weights.at("strategy")
        .fail(fmt::format("'{}' is not supported", strategy), "supported: tensor, channel, group, block");
  }
  return scheme;
}

// A group that is a name with its targets (compressed-tensors, quant_scheme.py).
Scheme preset_scheme(const Json& group, std::string_view name, const QuantSource& source) {
  Scheme scheme;
  scheme.scales = source.plain;
  if (name == "W8A8" || name == "INT8") {
    scheme.codes = Dtype::kI8;
    scheme.group_rows = 1;
  } else if (name == "FP8_DYNAMIC") {
    scheme.group_rows = 1;
  } else if (name == "FP8_BLOCK") {
    scheme.group_rows = scheme.group_cols = 128;
  } else if (name == "FP8") {
    scheme.static_inputs = true;
  } else if (name == "W8A16" || name == "W4A16" || name == "W4A16_ASYM") {
    scheme.packed = true;
    scheme.bits = name == "W8A16" ? 8 : 4;
    scheme.group_rows = 1;
    scheme.group_cols = 128;
    scheme.zero_points = name == "W4A16_ASYM";
  } else {
    group.fail(fmt::format("the preset '{}' is not supported", name));
  }
  return scheme;
}

constexpr std::string_view kLayouts[] = {"int-quantized",       "float-quantized", "naive-quantized",
                                         "mxfp8-quantized",     "pack-quantized",  "nvfp4-pack-quantized",
                                         "mxfp4-pack-quantized"};
bool is_known(std::string_view layout) {
  return std::find(std::begin(kLayouts), std::end(kLayouts), layout) != std::end(kLayouts);
}

// Whether the layout that an object names is packed.
bool check_layout(const Json& object) {
  const auto format = object.get("format");
  if (!format) return false;
  const std::string_view name = format->as_string();
  if (!is_known(name))
    format->fail(fmt::format("'{}' is not supported", name), fmt::format("supported: {}", fmt::join(kLayouts, ", ")));
  return name.ends_with("pack-quantized");
}

void check(const Json& quant, QuantConfig& config) {
  if (config.method != "compressed-tensors") return;
  const auto known = [](const Json& object) {
    const auto format = object.is_object() ? object.get("format") : std::nullopt;
    if (!format || !format->is_string()) return;
    const std::string_view name = format->as_string();
    if (!is_known(name) && name != "dense" && name != "mixed-precision")
      format->fail(fmt::format("the layout '{}' is not known", name), std::string(kTrustTensors));
  };
  known(quant);
  const auto groups = quant.get("config_groups");
  if (!groups || !groups->is_object()) return;
  for (const auto& [name, group] : groups->members()) known(group);
}

void read_compressed_tensors(const QuantSource& source, Declaration& out) {
  const Json& json = *source.json;
  const auto groups = json.at("config_groups").members();
  const bool own_layouts = !groups.empty() && std::all_of(groups.begin(), groups.end(), [](const auto& group) {
    return group.second.is_object() && group.second.get("format").has_value();
  });
  const bool all_packed = !own_layouts && check_layout(json);
  for (const auto& [name, group] : groups) {
    Scheme scheme;
    if (group.is_array()) {
      scheme = preset_scheme(group, name, source);
      for (const Json& target : group.elements()) scheme.targets.emplace_back(target.as_string());
    } else {
      const bool is_packed = group.get("format") ? check_layout(group) : all_packed;
      const auto weights = group.get("weights");
      if (!weights) continue;  // a group that quantizes activations only
      scheme = read_weights(*weights, source, is_packed);
      const auto format = group.get("format") ? group.get("format") : json.get("format");
      if (format && format->as_string() == "mxfp8-quantized") scheme.scales = Dtype::kU8;
      const auto inputs = group.get("input_activations");
      scheme.static_inputs =
          inputs && inputs->get("dynamic") && inputs->at("dynamic").is_bool() && !inputs->at("dynamic").as_bool();
      scheme.targets = read_names(group, "targets");
    }
    out.schemes.push_back(std::move(scheme));
  }
  out.matching = Matching::kTargets;
  out.excluded = read_names(json, "ignore");
}

// AutoRound writes floats in this layout, integers in GPTQ's.
bool is_auto_round_float(const QuantSource& source) {
  if (!is_auto_round(source.method)) return false;
  const auto type = source.json->get("data_type");
  return type && type->is_string() && type->as_string().starts_with("fp");
}

// Besides its own name: AutoRound's, ModelOpt's groups, Meta's fbgemm_fp8, SGLang's names, and quant_method fp8 that
// the row before leaves.
bool read(const QuantSource& source, Declaration& out) {
  if (source.method == "compressed-tensors") {
    read_compressed_tensors(source, out);
  } else if (source.method == "modelopt" && !source.json->get("quant_algo") && source.json->get("config_groups")) {
    read_compressed_tensors(source, out);
    out.matching = Matching::kWildcards;
    for (Scheme& scheme : out.schemes) scheme.targets.clear();
  } else if (source.method == "w8a8_int8" || source.method == "w8a8_fp8") {
    Scheme scheme;
    scheme.codes = source.method == "w8a8_int8" ? Dtype::kI8 : Dtype::kF8E4M3;
    scheme.group_rows = 1;
    out.schemes.push_back(std::move(scheme));
    read_excluded_paths(*source.json, out);
  } else if (is_auto_round_float(source)) {
    Scheme scheme;
    scheme.codes = read_fp8_type(*source.json);
    scheme.scales = source.plain;
    const auto group = source.json->get("group_size");
    scheme.group_rows = group && group->as_integer() == 0 ? 0 : 1;
    scheme.static_inputs = read_static_inputs(*source.json);
    out.schemes.push_back(std::move(scheme));
    read_excluded_paths(*source.json, out);
  } else if (source.method == "fp8" || source.method == "fbgemm_fp8") {
    Scheme scheme;
    scheme.codes = read_fp8_type(*source.json);
    scheme.group_rows = source.method == "fp8" ? 0 : 1;
    scheme.static_inputs = read_static_inputs(*source.json);
    out.schemes.push_back(std::move(scheme));
    read_excluded_paths(*source.json, out);
  } else {
    return false;
  }
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  if (scheme.packed && scheme.codes == Dtype::kU8) return kFp4Format.declare(scheme, rows, cols);
  if (scheme.packed) return kPackFormat.declare(scheme, rows, cols);
  std::vector<int64_t> shape = {1};
  if (scheme.group_rows > 0) shape = {scheme_grid_rows(scheme, rows), scheme_grid_cols(scheme, cols)};
  std::vector<DeclaredTensor> out = {{"weight", scheme.codes, {rows, cols}}, {"weight_scale", scheme.scales, shape}};
  // Not zero, which would read as symmetric.
  if (scheme.zero_points) out.push_back({"weight_zero_point", Dtype::kI8, shape, std::byte{1}});
  // -1: an order that is not known.
  if (scheme.activation_order) out.push_back({"weight_g_idx", Dtype::kI32, {cols}, std::byte{0xFF}});
  if (scheme.static_inputs) out.push_back({"input_scale", scheme.scales, {1}});
  return out;
}

}  // namespace

const Format kScaledFormat = {
    "compressed-tensors",
    "int-quantized and float-quantized: INT8 or FP8 codes with weight_scale per tensor, "
    "channel, group or block, with or without zero points",
    detect,
    bind,
    read,
    declare,
    "`weight` in I8, F8_E4M3 or F8_E5M2; `weight_scale` per tensor, channel, group or block; "
    "`weight_zero_point` where asymmetric; `weight_g_idx` where in activation order. The same "
    "tensors are read where config.json says nothing",
    nullptr,
    nullptr,
    check};

}  // namespace qgen
