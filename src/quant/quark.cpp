// AMD Quark's groups along K: codes, scales and zero points are stored transposed, weight (K, N), weight_scale and
// weight_zero_point (K / g, N): W[n, k] = (code[k, n] - zero_point[k / g, n]) * scale[k / g, n]. Codes of 4 bits lie in
// words of eight along N, as AWQ has them, zero points likewise; with a scale for each row in words along K. Its other
// layouts are those of compressed-tensors.
#include <algorithm>

#include <fmt/format.h>

#include "quant/formats.h"
#include "quant/nibbles.h"

namespace qgen {
namespace {

// Whether a tensor is a grid of groups of columns, transposed.
bool is_transposed_grid(const Module& module, const TensorView* grid) {
  return grid != nullptr && grid->shape.size() == 2 && grid->shape[1] == module.rows() && grid->shape[0] > 0 &&
         grid->shape[0] < module.cols() && module.cols() % grid->shape[0] == 0;
}

// Codes of 4 bits: in groups, or with a scale for each row.
enum class NibbleGroups { kNone, kGroups, kRows };
NibbleGroups nibble_groups(const Module& module) {
  const TensorView *weight = module.peek("weight"), *scale = module.peek("weight_scale");
  if (weight == nullptr || weight->dtype != Dtype::kI32 || scale == nullptr) return NibbleGroups::kNone;
  const int64_t n = module.rows(), k = module.cols();
  if (scale->shape.size() == 2 && weight->shape == std::vector{k, nibble_words(n)}) return NibbleGroups::kGroups;
  if (scale->shape == std::vector{n} && weight->shape == std::vector{n, nibble_words(k)}) return NibbleGroups::kRows;
  return NibbleGroups::kNone;
}

// Scales of columns look like those of rows where a matrix is square.
void check_channel_axis(const Json& weight) {
  const auto axis = weight.get("ch_axis");
  if (!axis || !axis->is_number() || weight.at("qscheme").as_string() != "per_channel") return;
  if (const int64_t found = axis->as_integer(); found != 0 && found != -2)
    axis->fail(fmt::format("scales along axis {} are not supported", found), "supported: 0, a scale for each row");
}

// Calls look(weight) for what `quant` says of weights, of all and of some layers.
template <typename Look>
void each_weight(const Json& quant, const Look& look) {
  const auto of = [&](const Json& layer) {
    const auto weight = layer.is_object() ? layer.get("weight") : std::nullopt;
    if (weight && weight->is_object()) look(*weight);
  };
  if (const auto all = quant.get("global_quant_config")) of(*all);
  for (const char* key : {"layer_quant_config", "layer_type_quant_config"}) {
    const auto layers = quant.get(key);
    if (!layers || !layers->is_object()) continue;
    for (const auto& [pattern, layer] : layers->members()) of(layer);
  }
}

// What tensors do not say: whether codes of 4 bits have signs, and the order of a word's eight.
NibbleLayout nibble_layout(const Module& module) {
  NibbleLayout layout;
  const std::optional<Json>& json = module.config().json;
  if (!json) {
    fail_tensor(*module.peek("weight"), "nothing declares whether its 4 bits have signs",
                "Quark's quantization_config in config.json says so");
  }
  std::optional<bool> is_signed;
  each_weight(*json, [&](const Json& weight) {
    const auto dtype = weight.get("dtype");
    if (!dtype || !dtype->is_string()) return;
    const std::string_view name = dtype->as_string();
    if (name != "int4" && name != "uint4") return;
    if (is_signed && *is_signed != (name == "int4"))
      dtype->fail("int4 beside uint4 in one checkpoint is not supported", "their tensors look the same");
    is_signed = name == "int4";
  });
  if (!is_signed) {
    fail_tensor(*module.peek("weight"), "words of 4 bits where config.json declares none (expected int4 or uint4)",
                std::string(kOtherCheckpoint));
  }
  layout.is_signed = *is_signed;
  if (const auto exported = json->get("export")) {
    if (const auto order = exported->get("pack_method")) {
      layout.interleaved = order->as_string() == "reorder";
      if (!layout.interleaved && order->as_string() != "order")
        order->fail(fmt::format("'{}' is not supported", order->as_string()), "supported: reorder, order");
    }
  }
  return layout;
}

Weight bind_nibbles(Module& module, NibbleGroups groups) {
  const NibbleLayout layout = nibble_layout(module);
  const bool rows = groups == NibbleGroups::kRows;
  const TensorView& words = module.take("weight");
  Weight weight = module.codes_over(words, Codes::kI8);
  weight.scale =
      rows ? module.take_grid("weight_scale", 1, module.cols()) : module.transposed_groups(module.take("weight_scale"));
  module.require_declared(weight.scale);
  const int64_t in_row = nibble_words(module.rows());
  // Codes without signs have zero points; codes with signs may.
  const TensorView* const zeros =
      layout.is_signed && !module.has("weight_zero_point")
          ? nullptr
          : &module.take("weight_zero_point", {Dtype::kI32},
                         rows ? std::vector{in_row} : std::vector{weight.scale.cols, in_row});
  rows ? set_row_nibbles(weight, words, zeros, layout) : set_transposed_nibbles(weight, words, zeros, layout);
  return weight;
}

// Whether the scales are those of blocks of rows that config.json declares, which in a square matrix look like groups.
bool is_declared_block(const Module& module) {
  const TensorView* const scale = module.peek("weight_scale");
  return scale != nullptr && std::ranges::any_of(module.config().groups, [&](const auto& group) {
           const auto [rows, cols] = group;
           return rows > 1 &&
                  scale->shape == std::vector{(module.rows() + rows - 1) / rows, (module.cols() + cols - 1) / cols};
         });
}

// A square matrix is told by its scales: (N, K / g) would have N rows.
bool detect(const Module& module) {
  if (nibble_groups(module) != NibbleGroups::kNone) return true;
  const TensorView* weight = module.peek("weight");
  return !is_declared_block(module) && weight != nullptr && byte_codes(*weight) &&
         weight->shape == std::vector{module.cols(), module.rows()} &&
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
  if (const NibbleGroups nibbles = nibble_groups(module); nibbles != NibbleGroups::kNone)
    return bind_nibbles(module, nibbles);
  const int64_t groups = module.peek("weight_scale")->shape[0];
  Weight weight = module.take_transposed_codes("weight", *byte_codes(*module.peek("weight")));
  weight.scale = take_transposed_grid(module, "weight_scale", groups, Module::GridKind::kScales);
  if (weight.codes == Codes::kI8) module.require_declared(weight.scale);
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
  } else if (name == "int4" || name == "uint4") {
    scheme.bits = kNibbleBits;
    check_channel_axis(weight);
    if (const Json qscheme = weight.at("qscheme"); qscheme.as_string() == "per_tensor")
      qscheme.fail("'per_tensor' with 4 bits is not supported", "supported: per_channel, per_group");
  } else {
    dtype.fail(fmt::format("'{}' is not supported", name), "supported: int4, uint4, int8, fp8_e4m3, fp8_e5m2");
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

void check(const Json& quant, QuantConfig& config) {
  if (config.method != "quark") return;
  each_weight(quant, [](const Json& weight) {
    if (weight.get("qscheme")) check_channel_axis(weight);
  });
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
  if (scheme.bits == kNibbleBits) {
    const int64_t count = scheme_grid_cols(scheme, cols), words = nibble_words(rows);
    if (groups) {
      return {{"weight", Dtype::kI32, {cols, words}},
              {"weight_scale", scheme.scales, {count, rows}},
              {"weight_zero_point", Dtype::kI32, {count, words}}};
    }
    return {{"weight", Dtype::kI32, {rows, nibble_words(cols)}},
            {"weight_scale", scheme.scales, {rows}},
            {"weight_zero_point", Dtype::kI32, {words}}};
  }
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

const Format kQuarkFormat = {
    "quark",
    "AMD Quark per group: INT8 codes stored transposed, with or without zero points; 4 bits per group "
    "and row, held as 8",
    detect,
    bind,
    read,
    declare,
    "`weight` (K, N) in I8; `weight_scale` and `weight_zero_point` (K / g, N). Quark's scales "
    "per tensor and channel are those of `compressed-tensors`. 4 bits: `weight` in I32, (K, N / 8), "
    "`weight_zero_point` in I32, (K / g, N / 8); with a scale a row (N, K / 8) and (N / 8)",
    nullptr,
    nullptr,
    check};

}  // namespace qgen
