// msModelSlim (Ascend), both generations of its files. W = (code - weight_offset) * weight_scale per tensor, channel or
// group; where static W8A8 files have no weight_scale it is deq_scale / input_scale. A layer's bias lies in quant_bias,
// together with what the offset of its quantized inputs adds:
//   y = (x_q q + quant_bias) deq_scale,  x_q = x / input_scale + input_offset
// Source: msModelSlim's description of its formats (docs, quantization_formats/ascendv1.md).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "base/cores.h"
#include "base/error.h"
#include "quant/formats.h"

namespace qgen {
namespace {

constexpr std::string_view kTypes[] = {"W8A16",     "W8A8", "W8A8S", "W8A8_MIX", "W8A8_DYNAMIC", "WFP8AFP8_DYNAMIC",
                                       "W8A8_MXFP8"};
constexpr int64_t kMxGroup = 32;  // columns that share an exponent

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  if (weight == nullptr || !byte_codes(*weight)) return false;
  if (module.has("weight_offset") || module.has("deq_scale")) return true;
  const std::string_view type = module.described_type();
  return !type.empty() && type != "FLOAT";
}

void check_type(const Module& module) {
  const std::string_view type = module.described_type();
  // What smoothing wraps is described as FLOAT, whatever it is.
  if (type.empty() || type == "FLOAT" || std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes))
    return;
  fail_tensor(*module.peek("weight"),
              fmt::format("msModelSlim's type '{}' is not supported ({})", type, module.config().description),
              fmt::format("supported: FLOAT, {}", fmt::join(kTypes, ", ")));
}

// A grid of one value for the tensor, for each row, or for groups that divide the rows: its shape is (n), (n, 1) or
// (n, k / g), and any other with as many elements.
ScaleGrid take_slim_grid(Module& module, std::string_view suffix, Module::GridKind kind) {
  const TensorView& tensor = *module.peek(suffix);
  const int64_t n = module.rows(), k = module.cols(), count = tensor.elements();
  const int64_t groups = count / n;  // of a row
  const bool exponents = tensor.dtype == Dtype::kU8 || tensor.dtype == Dtype::kF8E8M0;
  if (exponents && kind == Module::GridKind::kScales && count == n * ((k + kMxGroup - 1) / kMxGroup))
    return module.take_grid(suffix, 1, kMxGroup, kind);
  if (count == 1) return module.take_grid(suffix, n, k, kind);
  if (groups > 0 && count == n * groups && k % groups == 0) return module.take_grid(suffix, 1, k / groups, kind);
  fail_tensor(tensor,
              fmt::format("its shape {} is not a grid of channels or groups over [{}, {}]", tensor.shape_text(), n, k));
}

// One of the tensors that static quantization of the inputs adds: `count` values of one of `types`.
const TensorView& take_static(Module& module, std::string_view suffix, int64_t count, std::span<const Dtype> types) {
  const TensorView& tensor = module.take(suffix);
  if (tensor.elements() != count)
    fail_tensor(tensor, fmt::format("wrong shape (expected [{}], found {})", count, tensor.shape_text()));
  if (std::find(types.begin(), types.end(), tensor.dtype) == types.end()) {
    std::string names;
    for (const Dtype type : types) names += fmt::format("{}{}", names.empty() ? "" : ", ", dtype_name(type));
    fail_tensor(tensor, fmt::format("wrong type (expected {}, found {})", names, dtype_name(tensor.dtype)));
  }
  return tensor;
}

constexpr Dtype kDeqTypes[] = {Dtype::kI64, Dtype::kU64, Dtype::kF32};
constexpr Dtype kInputTypes[] = {Dtype::kF32, Dtype::kF16, Dtype::kBf16};
constexpr Dtype kBiasTypes[] = {Dtype::kI32};

template <typename T>
T element(const TensorView& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + index * int64_t(sizeof value), sizeof value);
  return value;
}

// deq_scale of row n. As 64-bit integers the files have the bits of an F32, widened (for an operator of the NPU).
float deq_scale(const TensorView& tensor, int64_t n) {
  if (tensor.dtype == Dtype::kF32) return element<float>(tensor, n);
  return std::bit_cast<float>(uint32_t(element<uint64_t>(tensor, n)));
}

Weight bind(Module& module) {
  check_type(module);
  const Codes codes = *byte_codes(*module.peek("weight"));
  Weight weight = module.take_codes("weight", codes);
  auto repack = std::make_shared<Weight::Repack>();
  if (module.has("weight_scale")) {
    weight.scale = take_slim_grid(module, "weight_scale", Module::GridKind::kScales);
    if (!module.has("weight_offset")) return weight;
    const ScaleGrid offset = take_slim_grid(module, "weight_offset", Module::GridKind::kZeroPoints);
    if (offset.rows != weight.scale.rows || offset.cols != weight.scale.cols) {
      const TensorView& tensor = *module.peek("weight_offset");
      fail_tensor(tensor, fmt::format("not the shape of weight_scale (expected {}x{} groups, found {})",
                                      weight.scale.rows, weight.scale.cols, tensor.shape_text()));
    }
    if (codes == Codes::kI8) {
      weight.zero_point = offset;
      drop_zeros_at_load(weight);  // symmetric files have zeros
      return weight;
    } else {
      repack->prepare = [offset](Weight&) {
        if (!all_zero(offset))
          fail(ErrorKind::kModel, fmt::format("{}: not zero, which FP8 codes do not support", offset.tensor));
      };
    }
  } else if (module.has("deq_scale")) {
    const TensorView& deq = take_static(module, "deq_scale", module.rows(), kDeqTypes);
    const TensorView& input = take_static(module, "input_scale", 1, kInputTypes);
    weight.scale = make_grid(module.rows(), module.cols(), 1, module.cols());
    weight.scale.tensor = fmt::format("{}: tensor {} / input_scale", deq.file, deq.name);
    repack->prepare = [deq, input](Weight& w) {
      std::vector<float> scales(static_cast<size_t>(w.rows));
      const float divisor = tensor_values(input)[0];
      for (int64_t n = 0; n < w.rows; ++n) scales[size_t(n)] = deq_scale(deq, n) / divisor;
      set_values(w.scale, std::move(scales));
    };
  } else {
    fail_tensor(*module.peek("weight"),
                fmt::format("msModelSlim codes without their scale (expected {}.weight_scale or {}.deq_scale)",
                            module.name(), module.name()),
                "without it the model would write garbage; is a shard missing?");
  }
  weight.repack = std::move(repack);
  return weight;
}

// bias = (quant_bias + sum of a row's codes * input_offset) * deq_scale
std::optional<Vector> bias(Module& module) {
  if (!module.has("quant_bias")) return {};
  const int64_t rows = module.rows(), cols = module.cols();
  const TensorView& codes = *module.peek("weight");
  const TensorView& stored = take_static(module, "quant_bias", rows, kBiasTypes);
  const TensorView& deq = take_static(module, "deq_scale", rows, kDeqTypes);
  const TensorView& offset = take_static(module, "input_offset", 1, kInputTypes);
  if (module.has("weight_scale"))  // else the scale of W needs it
    module.ignore("input_scale", "static activation scale; activations are not quantized");
  module.ignore("bias", "quant_bias has it already");
  if (codes.elements() != rows * cols) fail_tensor(codes, "wrong shape");
  if (codes.dtype != Dtype::kI8) fail_tensor(codes, "wrong type (expected I8 beside quant_bias)");
  Vector out;
  out.name = stored.name;
  out.size = rows;
  const auto make = [rows, cols, codes, stored, deq, offset] {
    const double zero = tensor_values(offset)[0];
    std::vector<float> values(static_cast<size_t>(rows));
    on_all_cores(values.size(), [&](size_t n) {
      const auto* const row = reinterpret_cast<const int8_t*>(codes.bytes.data()) + int64_t(n) * cols;
      int64_t sum = 0;
      for (int64_t k = 0; zero != 0 && k < cols; ++k) sum += row[k];
      const double value = (element<int32_t>(stored, int64_t(n)) + double(sum) * zero) * deq_scale(deq, int64_t(n));
      if (!std::isfinite(value))
        fail_tensor(stored, fmt::format("gives a bias of {} in row {}", value, n), "the file is damaged");
      values[n] = float(value);
    });
    return values;
  };
  out.derived = std::make_shared<const std::function<std::vector<float>()>>(make);
  return out;
}

// Without a description file the tensors say it as well as they can.
std::string kind(const Module& module) {
  const std::string_view type = module.described_type();
  if (!type.empty() && type != "FLOAT") return std::string(type);
  if (module.has("deq_scale")) return module.has("weight_scale") ? "W8A8 or W8A8_MIX" : "W8A8";
  return module.peek("weight")->dtype == Dtype::kI8 ? "W8A16 or W8A8_DYNAMIC" : "WFP8AFP8_DYNAMIC";
}

// The description file names every tensor and its type; shapes follow from the type and group_size.
bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "msmodelslim") return false;
  int64_t group = 0;
  if (const auto value = source.json->get("group_size")) group = value->as_integer(-1, kMaxGroup);
  constexpr std::string_view kWeight = ".weight";
  std::map<std::string, size_t, std::less<>> schemes;  // by type
  for (const auto& [name, value] : source.json->members()) {
    if (!value.is_string() || !name.ends_with(kWeight) || value.as_string() == "FLOAT") continue;
    const std::string_view type = value.as_string();
    if (std::find(std::begin(kTypes), std::end(kTypes), type) == std::end(kTypes))
      value.fail(fmt::format("msModelSlim's type '{}' is not supported", type),
                 fmt::format("supported: FLOAT, {}", fmt::join(kTypes, ", ")));
    const auto [it, is_new] = schemes.emplace(type, out.schemes.size());
    if (is_new) {
      Scheme scheme;
      const bool exponents = type == "W8A8_MXFP8";
      scheme.codes = exponents || type == "WFP8AFP8_DYNAMIC" ? Dtype::kF8E4M3 : Dtype::kI8;
      scheme.scales = exponents ? Dtype::kU8 : Dtype::kF32;
      scheme.zero_points = scheme.codes == Dtype::kI8;
      scheme.group_rows = 1;
      scheme.group_cols = exponents ? kMxGroup : type == "W8A16" && group > 0 ? group : 0;
      out.schemes.push_back(scheme);
    }
    out.scheme_of_module.emplace(name.substr(0, name.size() - kWeight.size()), it->second);
  }
  return true;
}

// All that a type may have; the description file names those that are there.
std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  // As F32 and as bits in I64 numbers whose quotient is a small scale.
  constexpr std::byte kSmall{0x3C}, kLarge{0x44};
  const std::vector<int64_t> grid = {rows, scheme_grid_cols(scheme, cols)};
  // Zero points that are not zero, which would read as symmetric.
  return {{"weight", scheme.codes, {rows, cols}},
          {"weight_scale", scheme.scales, grid},
          {"weight_offset", Dtype::kF32, grid, scheme.zero_points ? kSmall : std::byte{0}},
          {"deq_scale", Dtype::kI64, {rows}, kSmall},
          {"quant_bias", Dtype::kI32, {rows}},
          {"input_scale", Dtype::kF32, {1}, kLarge},
          {"input_offset", Dtype::kF32, {1}}};
}

}  // namespace

const Format kMsModelSlimFormat = {
    "msmodelslim",
    "msModelSlim W8A16, W8A8, W8A8S, W8A8_DYNAMIC, W8A8_MIX, WFP8AFP8_DYNAMIC and W8A8_MXFP8",
    detect,
    bind,
    read,
    declare,
    "`weight` in I8 or F8_E4M3; `weight_scale` per tensor, channel or group (exponents in U8 for MXFP8) with "
    "`weight_offset`; or `deq_scale` (F32, or its bits in I64) with `input_scale`; `quant_bias` with `input_offset`; "
    "norms with `module.weight` and `module.bias`. Described by quant_model_description*.json",
    bias,
    kind};

}  // namespace qgen
