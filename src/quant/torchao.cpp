// torchao's safetensors, by the class of a tensor (torchao/prototype/safetensors):
//   Int8Tensor, IntxUnpackedToInt8Tensor, Float8Tensor: I8 or F8 codes in X._weight_qdata, X._weight_scale per tensor,
//     row or group, and for integers X._weight_zero_point: W = (code - zero_point) * scale.
//   MXTensor: F8 codes, or E2M1 as U8 (N, K / 2), and powers of two (F8_E8M0) for 32 columns.
//   NVFP4Tensor: E2M1 and E4M3 for 16 columns, times X._weight_per_tensor_scale where it is there.
//   Int4Tensor: I8 (N, K / 2), two codes to a byte, the first in its lower half, two's complement; scale and zero_point
//     (K / group, N): W = code * scale + zero_point.
// X._weight_act_pre_scale multiplies the columns of the input. Scales of MXTensor and NVFP4Tensor mostly lie as tensor
// cores want them (cuBLAS, "1D block scaling factors layout"): tiles of 128 rows and 4 columns of the grid one after
// the other, in a tile row r and column c at byte 16 (r mod 32) + 4 (r / 32) + c.
#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  change_at_load(weight, [wide, zeros = zeros](Weight& w) {
    if (wide) set_values(w.zero_point, integer_values(zeros));
    if (all_equal(w.zero_point, 0)) w.zero_point = {};
  });
}

constexpr int64_t kMxGroup = 32, kNvGroup = 16;
constexpr int64_t kTileRows = 128, kTileCols = 4;

std::vector<int64_t> tiled_shape(int64_t rows, int64_t cols) {
  return {32 * ((rows + kTileRows - 1) / kTileRows), 16 * ((cols + kTileCols - 1) / kTileCols)};
}

// A grid's values row by row: four of a row lie side by side in a tile.
void untile(ScaleGrid& grid, std::span<const std::byte> tiles) {
  const int64_t across = (grid.cols + kTileCols - 1) / kTileCols;
  std::vector<std::byte> values(size_t(grid.rows * grid.cols));
  for (int64_t r = 0; r < grid.rows; ++r) {
    const std::byte* const from =
        tiles.data() + r / kTileRows * across * kTileRows * kTileCols + r % 32 * 16 + r % kTileRows / 32 * kTileCols;
    std::byte* const row = values.data() + r * grid.cols;
    for (int64_t c = 0; c < grid.cols; c += kTileCols)
      std::memcpy(row + c, from + c * kTileRows, size_t(std::min(kTileCols, grid.cols - c)));
  }
  set_values(grid, grid.type, std::move(values));
}

bool is_block_scaled(const Module& module) {
  const Dtype type = module.peek("_weight_scale")->dtype;
  return type == Dtype::kF8E8M0 || type == Dtype::kF8E4M3;
}

// MXTensor and NVFP4Tensor.
Weight bind_blocks(Module& module) {
  const TensorView& scales = module.take("_weight_scale");
  const int64_t rows = module.rows(), cols = module.cols(),
                group = scales.dtype == Dtype::kF8E4M3 ? kNvGroup : kMxGroup;
  const bool fp4 = module.peek("_weight_qdata")->dtype == Dtype::kU8;
  Weight weight = fp4 ? module.codes_over(module.take("_weight_qdata", {Dtype::kU8}, {rows, cols / 2}), Codes::kI8)
                      : module.take_byte_codes("_weight_qdata");
  weight.scale = make_grid(rows, cols, 1, group);
  weight.scale.type = scales.dtype == Dtype::kF8E4M3 ? ScaleType::kE4M3 : ScaleType::kE8M0;
  weight.scale.tensor = fmt::format("{}: tensor {}", scales.file, scales.name);
  const std::vector<int64_t> plain = {weight.scale.rows, weight.scale.cols}, tiled = tiled_shape(plain[0], plain[1]);
  const bool is_tiled = scales.shape != plain;
  if (cols % group != 0 || (is_tiled && scales.shape != tiled)) {
    fail_tensor(scales,
                fmt::format("wrong shape (expected [{}] or [{}] for {} x {} in groups of {}, found {})",
                            fmt::join(plain, ", "), fmt::join(tiled, ", "), rows, cols, group, scales.shape_text()));
  }
  if (!is_tiled) {
    weight.scale.data = scales.bytes.data();
    weight.scale.col_pitch = 1;
    weight.scale.row_pitch = weight.scale.cols;
  }
  std::optional<TensorView> of_tensor;
  if (module.has("_weight_per_tensor_scale")) of_tensor = module.take("_weight_per_tensor_scale", {Dtype::kF32}, {});
  const auto prepare = [is_tiled, scales = scales, of_tensor, fp4](Weight& w) {
    if (is_tiled) untile(w.scale, scales.bytes);
    w.scale.factor = (fp4 ? 0.5 : 1) * (of_tensor ? tensor_factor(*of_tensor) : 1);
  };
  if (!fp4) {
    change_at_load(weight, prepare);
    return weight;
  }
  weight.file_codes = "fp4";
  weight.repack = make_row_repack(prepare, [codes = weight.data](const Weight& w, int64_t n, std::span<std::byte> out) {
    unpack_doubled_e2m1(codes.subspan(size_t(n * w.cols / 2), size_t(w.cols / 2)), out);
  });
  return weight;
}

bool is_int4(const Module& module) {
  const TensorView& codes = *module.peek("_weight_qdata");
  return codes.dtype == Dtype::kI8 && codes.shape == std::vector<int64_t>{module.rows(), module.cols() / 2};
}

Weight bind_int4(Module& module) {
  const TensorView& codes = module.take("_weight_qdata", {Dtype::kI8}, {module.rows(), module.cols() / 2});
  if (module.cols() % 2 != 0)
    fail_tensor(codes, fmt::format("rows of {} columns are no whole bytes of 4-bit codes", module.cols()));
  const TensorView& scales = module.take("_weight_scale");
  if (scales.shape.size() != 2 || scales.shape[1] != module.rows()) {
    fail_tensor(scales,
                fmt::format("wrong shape (expected [groups, {}], found {})", module.rows(), scales.shape_text()));
  }
  const ScaleGrid grid = module.transposed_groups(scales);
  const TensorView& zeros = module.take("_weight_zero_point", {scales.dtype}, scales.shape);
  Weight weight = module.codes_over(codes, Codes::kI8);
  weight.file_codes = bits_name(4);
  weight.scale = weight.minimum = grid;
  weight.minimum.data = zeros.bytes.data();
  weight.minimum.tensor = fmt::format("{}: tensor {}", zeros.file, zeros.name);
  weight.f32_steps = true;
  weight.repack = make_row_repack({}, [codes = codes](const Weight& w, int64_t n, std::span<std::byte> out) {
    const auto row = codes.bytes.subspan(size_t(n * w.cols / 2), size_t(w.cols / 2));
    // Two's complement of 4 bits is the unsigned number with its upper bit turned, less 8.
    std::vector<std::byte> turned(row.size());
    for (size_t i = 0; i < row.size(); ++i) turned[i] = row[i] ^ std::byte{0x88};
    unpack_bits(turned, 4, 8, out);
  });
  return weight;
}

bool detect(const Module& module) { return module.has("_weight_qdata") && module.has("_weight_scale"); }

Weight bind(Module& module) {
  if (is_block_scaled(module)) return bind_blocks(module);
  const TensorView& codes = *module.peek("_weight_qdata");
  if (codes.dtype == Dtype::kI32) {
    fail_tensor(codes, "torchao's int4 in the layout plain_int32, which is one of Intel's GPUs, is not supported",
                "save it with int4_packing_format=\"plain\"");
  }
  if (codes.dtype == Dtype::kU8) {
    fail_tensor(module.take("_weight_scale"),
                fmt::format("wrong type for codes in U8 (expected F8_E8M0 or F8_E4M3, found {})",
                            dtype_name(module.peek("_weight_scale")->dtype)));
  }
  if (is_int4(module)) return bind_int4(module);
  Weight weight = module.take_byte_codes("_weight_qdata");
  weight.scale = module.take_grid("_weight_scale");
  bind_zero_points(module, weight);
  return weight;
}

std::string kind(const Module& module) {
  if (!is_block_scaled(module)) return "";
  if (module.peek("_weight_scale")->dtype == Dtype::kF8E4M3) return "NVFP4";
  return module.peek("_weight_qdata")->dtype == Dtype::kU8 ? "MXFP4" : "MXFP8";
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
  if (name == "Int8WeightOnlyConfig" || name == "Int8DynamicActivationInt8WeightConfig" ||
      name == "IntxWeightOnlyConfig") {
    scheme.codes = Dtype::kI8;
    scheme.zero_points = true;  // the files have them even where all are zero
  } else if (name == "Float8WeightOnlyConfig" || name == "Float8DynamicActivationFloat8WeightConfig") {
    scheme.codes = Dtype::kF8E4M3;
  } else if (name == "MXDynamicActivationMXWeightConfig") {
    scheme.scales = Dtype::kF8E8M0;
    scheme.group_cols = kMxGroup;
    scheme.whole_groups = true;
  } else if (name == "NVFP4WeightOnlyConfig" || name == "NVFP4DynamicActivationNVFP4WeightConfig") {
    scheme.codes = Dtype::kU8;
    scheme.scales = Dtype::kF8E4M3;
    scheme.group_cols = kNvGroup;
    scheme.bits = 4;
    scheme.whole_groups = true;
  } else if (name == "Int4WeightOnlyConfig") {
    scheme.codes = Dtype::kI8;
    scheme.scales = source.plain;
    scheme.group_cols = 128;
    scheme.bits = 4;
    scheme.whole_groups = true;
  } else {
    config.fail(fmt::format("torchao's '{}' is not supported", name),
                "supported: Int8WeightOnlyConfig, IntxWeightOnlyConfig, Int4WeightOnlyConfig, Float8WeightOnlyConfig, "
                "MXDynamicActivationMXWeightConfig, NVFP4WeightOnlyConfig and their like");
  }
  const Json data = config.at("_data");
  if (name == "IntxWeightOnlyConfig") {
    if (const auto type = data.get("weight_dtype"); type && type->at("_data").as_string() != "int8")
      type->fail(fmt::format("'{}' is not supported", type->at("_data").as_string()), "supported: int8");
  }
  if (name == "Int4WeightOnlyConfig") {
    if (const auto packing = data.get("int4_packing_format")) {
      const Json format = packing->is_object() ? packing->at("_data") : *packing;
      if (lower(format.as_string()) != "plain")
        format.fail(fmt::format("'{}' is not supported", format.as_string()), "supported: plain");
    }
  }
  if (scheme.scales == Dtype::kF8E8M0) {
    if (const auto type = data.get("weight_dtype")) {
      const std::string_view codes = type->at("_data").as_string();
      if (codes == "float4_e2m1fn_x2") {
        scheme.codes = Dtype::kU8;
        scheme.bits = 4;
      } else if (codes == "float8_e5m2") {
        scheme.codes = Dtype::kF8E5M2;
      } else if (codes != "float8_e4m3fn") {
        type->fail(fmt::format("'{}' is not supported", codes),
                   "supported: float8_e4m3fn, float8_e5m2, float4_e2m1fn_x2");
      }
    }
  }
  if (auto granularity = data.get("granularity")) {
    // Of activations and weights.
    if (granularity->is_array() && granularity->count() > 0) granularity = granularity->elements().back();
    const std::string_view kind = type_of(*granularity);
    if (kind == "PerTensor") scheme.group_rows = 0;
    if (kind == "PerGroup") scheme.group_cols = granularity->at("_data").at("group_size").as_integer(1, kMaxGroup);
  }
  const bool in_blocks = scheme.scales == Dtype::kF8E8M0 || scheme.scales == Dtype::kF8E4M3;
  if (const auto size = data.get("block_size"); in_blocks && size && size->as_integer() != scheme.group_cols)
    size->fail(fmt::format("{} is not supported", size->as_integer()), fmt::format("supported: {}", scheme.group_cols));
  if (const auto group = data.get("group_size"); group && !in_blocks)
    scheme.group_cols = group->as_integer(1, kMaxGroup);
  out.schemes.push_back(std::move(scheme));
  out.excluded = read_names(*source.json, "modules_to_not_convert");
  if (!source.json->flag_or("include_input_output_embeddings", false)) out.excluded.emplace_back("lm_head");
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const std::vector<int64_t> grid = {scheme_grid_rows(scheme, rows), scheme_grid_cols(scheme, cols)};
  if (scheme.codes == Dtype::kI8 && scheme.bits == 4) {
    const std::vector<int64_t> groups = {grid[1], rows};
    return {{"_weight_qdata", Dtype::kI8, {rows, cols / 2}},
            {"_weight_scale", scheme.scales, groups},
            {"_weight_zero_point", scheme.scales, groups}};
  }
  if (scheme.scales == Dtype::kF8E8M0 || scheme.scales == Dtype::kF8E4M3) {
    std::vector<DeclaredTensor> out = {{"_weight_qdata", scheme.codes, {rows, scheme.bits == 4 ? cols / 2 : cols}},
                                       {"_weight_scale", scheme.scales, tiled_shape(grid[0], grid[1])}};
    // About 0.75, so that random weights give activations that are not zero.
    if (scheme.scales == Dtype::kF8E4M3) out.push_back({"_weight_per_tensor_scale", Dtype::kF32, {}, std::byte{0x3F}});
    return out;
  }
  std::vector<DeclaredTensor> out = {{"_weight_qdata", scheme.codes, {rows, cols}},
                                     {"_weight_scale", Dtype::kF32, grid}};
  if (scheme.zero_points) out.push_back({"_weight_zero_point", Dtype::kI8, grid});
  return out;
}

}  // namespace

const Format kTorchaoFormat = {
    "torchao",
    "INT8 or FP8 codes per tensor, row or group, with or without zero points; MXFP8; MXFP4, NVFP4 and int4 (plain) "
    "held as 8",
    detect,
    bind,
    read,
    declare,
    "`_weight_qdata` in I8, F8_E4M3 or F8_E5M2; `_weight_scale` per tensor, row or group; `_weight_zero_point` in an "
    "integer type. MX and NVFP4: `_weight_qdata` in F8 or U8, (N, K / 2), `_weight_scale` in F8_E8M0 or F8_E4M3, (N, "
    "groups) or in tiles of 128 x 4, `_weight_per_tensor_scale`. int4: `_weight_qdata` in I8, (N, K / 2), "
    "`_weight_scale` and `_weight_zero_point` in a float type, (groups, N)",
    nullptr,
    kind};

}  // namespace qgen
