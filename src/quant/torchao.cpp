// torchao's safetensors: I8 or F8 codes in X._weight_qdata, X._weight_scale per tensor, row or group, and for integers
// X._weight_zero_point: W = (code - zero_point) * scale.
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

// Zero points that no grid type has, as floats.
std::vector<float> integer_values(const TensorView& tensor) {
  std::vector<float> out(size_t(tensor.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    if (tensor.dtype == Dtype::kI64) {
      int64_t value;
      std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
      out[i] = float(value);
    } else {
      int32_t value;
      std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
      out[i] = float(value);
    }
  }
  return out;
}

void bind_zero_points(Module& module, Weight& weight) {
  constexpr std::string_view kSuffix = "_weight_zero_point";
  if (!module.has(kSuffix)) return;
  const TensorView& zeros = *module.peek(kSuffix);
  const bool wide = zeros.dtype == Dtype::kI32 || zeros.dtype == Dtype::kI64;
  if (wide) {
    module.take(kSuffix, {zeros.dtype}, module.peek("_weight_scale")->shape);
    weight.zero_point = weight.scale;
    weight.zero_point.type = ScaleType::kF32;
    weight.zero_point.data = nullptr;
    weight.zero_point.tensor = fmt::format("{}: tensor {}", zeros.file, zeros.name);
  } else {
    weight.zero_point = module.take_zero_points(kSuffix, weight.scale);
  }
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [wide, &zeros](Weight& w) {
    if (wide) set_values(w.zero_point, integer_values(zeros));
    if (all_equal(w.zero_point, 0)) w.zero_point = {};
  };
  weight.repack = std::move(repack);
}

bool detect(const Module& module) { return module.has("_weight_qdata") && module.has("_weight_scale"); }

Weight bind(Module& module) {
  Weight weight = module.take_byte_codes("_weight_qdata");
  weight.scale = module.take_grid("_weight_scale");
  bind_zero_points(module, weight);
  return weight;
}

// {"_type": NAME, "_data": {...}}: the way torchao writes its configurations.
std::string_view type_of(const Json& json) {
  const auto type = json.get("_type");
  return type && type->is_string() ? type->as_string() : std::string_view();
}

bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "torchao") return false;
  const Json quant_type = source.json->at("quant_type");
  if (quant_type.is_string()) {
    quant_type.fail(fmt::format("'{}' in the old form says too little", quant_type.as_string()),
                    "what the weights are shows once they are there");
  }
  const Json config = quant_type.at("default");
  const std::string_view name = type_of(config);
  Scheme scheme;
  scheme.group_rows = 1;
  scheme.codes = name.starts_with("Float8") ? Dtype::kF8E4M3 : Dtype::kI8;
  if (name != "Int8WeightOnlyConfig" && name != "Int8DynamicActivationInt8WeightConfig" &&
      name != "Float8WeightOnlyConfig" && name != "Float8DynamicActivationFloat8WeightConfig" &&
      name != "IntxWeightOnlyConfig") {
    config.fail(fmt::format("torchao's '{}' is not supported", name),
                "supported: Int8WeightOnlyConfig, IntxWeightOnlyConfig, Float8WeightOnlyConfig and their like");
  }
  const Json data = config.at("_data");
  if (name == "IntxWeightOnlyConfig") {
    if (const auto type = data.get("weight_dtype"); type && type->at("_data").as_string() != "int8")
      type->fail(fmt::format("'{}' is not supported", type->at("_data").as_string()), "supported: int8");
  }
  // Int8Tensor and IntxUnpackedToInt8Tensor have zero points, be they zero.
  scheme.zero_points = scheme.codes == Dtype::kI8;
  if (auto granularity = data.get("granularity")) {
    // Of activations and weights.
    if (granularity->is_array() && granularity->count() > 0) granularity = granularity->elements().back();
    const std::string_view kind = type_of(*granularity);
    if (kind == "PerTensor") scheme.group_rows = 0;
    if (kind == "PerGroup") scheme.group_cols = granularity->at("_data").at("group_size").as_integer(1, kMaxGroup);
  }
  if (const auto group = data.get("group_size")) scheme.group_cols = group->as_integer(1, kMaxGroup);
  out.schemes.push_back(std::move(scheme));
  out.excluded = read_names(*source.json, "modules_to_not_convert");
  if (!source.json->flag_or("include_input_output_embeddings", false)) out.excluded.emplace_back("lm_head");
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const std::vector<int64_t> grid = {scheme_grid_rows(scheme, rows), scheme_grid_cols(scheme, cols)};
  std::vector<DeclaredTensor> out = {{"_weight_qdata", scheme.codes, {rows, cols}},
                                     {"_weight_scale", Dtype::kF32, grid}};
  if (scheme.zero_points) out.push_back({"_weight_zero_point", Dtype::kI8, grid});
  return out;
}

}  // namespace

const Format kTorchaoFormat = {
    "torchao",
    "INT8 or FP8 codes per tensor, row or group, with or without zero points",
    detect,
    bind,
    read,
    declare,
    "`_weight_qdata` in I8, F8_E4M3 or F8_E5M2; `_weight_scale` per tensor, row or group; `_weight_zero_point` in an "
    "integer type"};

}  // namespace qgen
