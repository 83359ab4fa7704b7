// AMD Quark's groups along K: codes, scales and zero points are stored transposed, weight (K, N), weight_scale and
// weight_zero_point (K / g, N): W[n, k] = (code[k, n] - zero_point[k / g, n]) * scale[k / g, n]. Its other layouts are
// those of compressed-tensors.
#include <fmt/format.h>

#include "quant/formats.h"

namespace qgen {
namespace {

// Whether a tensor is a grid of groups of columns, transposed.
bool is_transposed_grid(const Module& module, const TensorView* grid) {
  return grid != nullptr && grid->shape.size() == 2 && grid->shape[1] == module.rows() && grid->shape[0] > 0 &&
         grid->shape[0] < module.cols() && module.cols() % grid->shape[0] == 0;
}

// A square matrix is told by its scales: (N, K / g) would have N rows.
bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  return weight != nullptr && byte_codes(*weight) && weight->shape == std::vector{module.cols(), module.rows()} &&
         is_transposed_grid(module, module.peek("weight_scale"));
}

ScaleGrid take_transposed_grid(Module& module, std::string_view suffix, int64_t groups, Module::GridKind kind) {
  const TensorView& tensor = *module.peek(suffix);
  if (tensor.shape != std::vector{groups, module.rows()}) {
    fail_tensor(tensor, fmt::format("not the shape of weight_scale (expected [{}, {}], found {})", groups,
                                    module.rows(), tensor.shape_text()));
  }
  ScaleGrid grid = module.take_grid(suffix, 1, module.cols() / groups, kind);
  grid.row_pitch = scale_bytes(grid.type);
  grid.col_pitch = grid.rows * grid.row_pitch;
  return grid;
}

Weight bind(Module& module) {
  const int64_t groups = module.peek("weight_scale")->shape[0];
  Weight weight = module.take_transposed_codes("weight", *byte_codes(*module.peek("weight")));
  weight.scale = take_transposed_grid(module, "weight_scale", groups, Module::GridKind::kScales);
  if (module.has("weight_zero_point")) {
    weight.zero_point = take_transposed_grid(module, "weight_zero_point", groups, Module::GridKind::kZeroPoints);
    drop_zeros_at_load(weight);
  }
  return weight;
}

// A QuantizationConfig of Quark: specifications for the weights and the inputs of layers.
Scheme read_scheme(const Json& layer, const QuantSource& source) {
  const Json weight = layer.at("weight");
  Scheme scheme;
  const Json dtype = weight.at("dtype");
  if (const std::string_view name = dtype.as_string(); name == "int8") {
    scheme.codes = Dtype::kI8;
  } else if (name.starts_with("fp8")) {
    scheme.codes = fp8_type(dtype);
  } else {
    dtype.fail(fmt::format("'{}' is not supported", name), "supported: int8, fp8_e4m3, fp8_e5m2");
  }
  scheme.scales = source.plain;
  scheme.zero_points = !weight.flag_or("symmetric", true) || weight.at("qscheme").as_string() == "per_group";
  const Json qscheme = weight.at("qscheme");
  if (const std::string_view name = qscheme.as_string(); name == "per_channel") {
    scheme.group_rows = 1;
  } else if (name == "per_group") {
    scheme.group_rows = 1;
    scheme.group_cols = weight.at("group_size").as_integer(1, kMaxGroup);
  } else if (name != "per_tensor") {
    qscheme.fail(fmt::format("'{}' is not supported", name), "supported: per_tensor, per_channel, per_group");
  }
  const auto inputs = layer.get("input_tensors");
  scheme.static_inputs = inputs && !inputs->flag_or("is_dynamic", false);
  return scheme;
}

bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "quark") return false;
  const Json& json = *source.json;
  // Patterns of layers come before what holds for all.
  if (const auto layers = json.get("layer_quant_config")) {
    for (const auto& [pattern, layer] : layers->members()) {
      Scheme scheme = read_scheme(layer, source);
      scheme.targets = {std::string(pattern)};
      out.schemes.push_back(std::move(scheme));
    }
  }
  if (const auto types = json.get("layer_type_quant_config"); types && !types->members().empty())
    types->fail("schemes by the type of a layer are not supported without the weights",
                "what the weights are shows once they are there");
  out.schemes.push_back(read_scheme(json.at("global_quant_config"), source));
  out.matching = Matching::kWildcards;
  out.excluded = read_names(json, "exclude");
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const bool groups = scheme.group_cols > 0;
  std::vector<int64_t> shape;  // one value
  if (groups) {
    shape = {scheme_grid_cols(scheme, cols), rows};
  } else if (scheme.group_rows > 0) {
    shape = {rows};
  }
  std::vector<DeclaredTensor> out = {
      {"weight", scheme.codes, groups ? std::vector{cols, rows} : std::vector{rows, cols}},
      {"weight_scale", scheme.scales, shape}};
  // Not zero, which would read as symmetric.
  if (scheme.zero_points) out.push_back({"weight_zero_point", Dtype::kI8, shape, std::byte{1}});
  if (scheme.static_inputs) out.push_back({"input_scale", scheme.scales, {}});
  return out;
}

}  // namespace

const Format kQuarkFormat = {"quark",
                             "AMD Quark per group: INT8 codes stored transposed, with or without zero points",
                             detect,
                             bind,
                             read,
                             declare,
                             "`weight` (K, N) in I8; `weight_scale` and `weight_zero_point` (K / g, N). Quark's scales "
                             "per tensor and channel are those of `compressed-tensors`"};

}  // namespace qgen
