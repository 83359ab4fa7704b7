// NVIDIA ModelOpt: FP8 per tensor, channel (1-D scales) or block of 128 x 128 (4-D scales), MXFP8, and INT8 per channel
// with or without SmoothQuant's pre_quant_scale, which multiplies the columns of the input. Its tensors are those of
// compressed-tensors, whose row binds them; this one reads what quantization_config or hf_quant_config.json declare.
// Its own are INT4's: weight U8 (N / 2, K), rows 2 i and 2 i + 1 in the lower and upper halves of bytes, two's
// complement; weight_scale (N, K / group). weight_scale_2, of W4A8, is for products in FP8 and no factor of W.
#include <exception>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t kNibbleGroup = 128;  // columns, where nothing is declared

// INT4.
bool detect(const Module& module) {
  const TensorView* codes = module.peek("weight");
  const TensorView* scales = module.peek("weight_scale");
  return codes != nullptr && scales != nullptr && codes->dtype == Dtype::kU8 && module.rows() % 2 == 0 &&
         codes->shape == std::vector<int64_t>{module.rows() / 2, module.cols()} && scales->dtype != Dtype::kF8E4M3;
}

Weight bind(Module& module) {
  const TensorView& codes = module.take("weight");
  Weight weight = module.codes_over(codes, Codes::kI8);
  weight.file_codes = bits_name(4);
  weight.scale = module.take_grid("weight_scale");
  for (const char* suffix : {"weight_scale_2", "input_scale"}) module.ignore(suffix);
  weight.repack = make_row_repack({}, [codes = codes](const Weight& w, int64_t n, std::span<std::byte> out) {
    const std::span<const std::byte> pair = codes.bytes.subspan(size_t(n / 2 * w.cols), size_t(w.cols));
    const int shift = n % 2 == 0 ? 4 : 0;  // the half becomes the upper one, whose sign a shift keeps
    for (size_t k = 0; k < out.size(); ++k)
      out[k] = std::byte(uint8_t(int8_t(std::to_integer<uint8_t>(pair[k]) << shift) >> 4));
  });
  return weight;
}

struct Algorithm {
  std::string_view name;
  Scheme scheme;
};
std::vector<Algorithm> make_algorithms() {
  const auto make = [](Dtype codes, Dtype scales, int64_t rows, int64_t cols, bool static_inputs, bool input_scales) {
    Scheme scheme;
    scheme.codes = codes;
    scheme.scales = scales;
    scheme.group_rows = rows;
    scheme.group_cols = cols;
    scheme.static_inputs = static_inputs;
    scheme.input_scales = input_scales;
    return scheme;
  };
  const Scheme fp4 = make(Dtype::kU8, Dtype::kF8E4M3, 1, 16, false, false);
  Scheme fp4_smoothed = fp4, fp4_wide = fp4;
  fp4_smoothed.input_scales = true;
  fp4_wide.group_cols = 32;
  const Scheme rows = make(Dtype::kI8, Dtype::kF32, 1, 0, false, false);
  const Scheme mxfp4 = make(Dtype::kU8, Dtype::kU8, 1, 32, false, false);
  const Scheme blocks = make(Dtype::kF8E4M3, Dtype::kF32, kBlock, kBlock, false, false);
  Scheme nibbles = make(Dtype::kI8, Dtype::kF32, 1, kNibbleGroup, false, false);
  nibbles.bits = 4;
  return {{"FP8", make(Dtype::kF8E4M3, Dtype::kF32, 0, 0, true, false)},
          {"FP8_PER_CHANNEL_PER_TOKEN", make(Dtype::kF8E4M3, Dtype::kF32, 1, 0, false, false)},
          {"FP8_PB_WO", blocks},
          {"FP8_PB_REAL", blocks},
          {"MXFP8", make(Dtype::kF8E4M3, Dtype::kU8, 1, 32, false, false)},
          {"NVFP4", fp4},
          {"W4A16_NVFP4", fp4},
          {"NVFP4_AWQ", fp4_smoothed},
          {"W4A8_NVFP4_FP8", fp4_wide},
          {"MXFP4", mxfp4},
          {"W4A16_MXFP4", mxfp4},
          {"W4A8_MXFP4_FP8", mxfp4},
          {"W4A8_MXFP4_MXFP8", mxfp4},
          {"W4A16_AWQ", nibbles},
          {"W4A8_AWQ", nibbles},
          {"FP8_BLOCK_SCALES", blocks},
          {"W8A16", rows},
          {"INT8_WO", rows},
          {"W8A8_SQ_PER_CHANNEL", make(Dtype::kI8, Dtype::kF32, 1, 0, true, true)}};
}

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> all = make_algorithms();
  return all;
}

// Null for an unknown name.
const Scheme* find_algorithm(std::string_view name) {
  for (const Algorithm& row : algorithms()) {
    if (lower(row.name) == lower(name)) return &row.scheme;
  }
  return nullptr;
}

[[noreturn]] void fail_algorithm(const Json& algorithm, const std::string& hint) {
  algorithm.fail(fmt::format("ModelOpt's '{}' is not supported", algorithm.as_string()), hint);
}

Scheme scheme_of(const Json& algorithm) {
  if (const Scheme* const scheme = find_algorithm(algorithm.as_string())) return *scheme;
  std::string known;
  for (const Algorithm& row : algorithms()) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  fail_algorithm(algorithm, fmt::format("supported: {}", known));
}

// With MIXED_PRECISION each entry of quantized_layers has a quant_algo of its own.
void check_algorithm(const Json& object) {
  const auto algorithm = object.is_object() ? object.get("quant_algo") : std::nullopt;
  if (!algorithm || !algorithm->is_string()) return;
  const std::string name = lower(algorithm->as_string());
  if (name != "mixed_precision" && name != "no_quant" && find_algorithm(name) == nullptr)
    fail_algorithm(*algorithm, std::string(kTrustTensors));
}

void check(const Json& quant, QuantConfig& config) {
  if (!config.method.starts_with("modelopt")) return;
  check_algorithm(quant);
  const auto layers = quant.get("quantized_layers");
  if (!layers || !layers->is_object()) return;
  for (const auto& [name, layer] : layers->members()) {
    try {
      check_algorithm(layer);
    } catch (const Error&) {  // of a layer that qgen may not need
      config.unknown_kinds.emplace(name, std::current_exception());
    }
  }
}

bool read(const QuantSource& source, Declaration& out) {
  if (!source.method.starts_with("modelopt") && source.method != "mxfp8") return false;
  const Json& json = *source.json;
  const auto layers = json.get("quantized_layers");
  if (!layers && !json.get("quant_algo") && json.get("config_groups")) return false;  // as compressed-tensors has them
  if (layers && layers->is_object()) {                                                // MIXED_PRECISION
    for (const auto& [name, layer] : layers->members()) {
      Scheme scheme = scheme_of(layer.at("quant_algo"));
      scheme.targets = {std::string(name), fmt::format("{}.*", name)};  // it may name a whole mixture
      out.schemes.push_back(std::move(scheme));
    }
  } else if (source.method == "mxfp8") {
    out.schemes.push_back(*find_algorithm("MXFP8"));
  } else {
    Scheme scheme = scheme_of(json.at("quant_algo"));
    if (const auto group = json.get("group_size"); group && scheme.bits == 4)
      scheme.group_cols = group->as_integer(1, kMaxGroup);
    out.schemes.push_back(std::move(scheme));
  }
  out.matching = Matching::kWildcards;
  for (const char* key : {"exclude_modules", "ignore", "modules_to_not_convert", "ignored_layers"}) {
    for (std::string& entry : read_names(json, key)) out.excluded.push_back(std::move(entry));
  }
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  // About 0.75, so that random weights give activations that are not zero.
  constexpr std::byte kSome{0x3F};
  const DeclaredTensor pre_quant_scale = {"pre_quant_scale", Dtype::kF32, {cols}, kSome};
  if (scheme.codes == Dtype::kU8) {
    std::vector<DeclaredTensor> out = {{"weight", Dtype::kU8, {rows, cols / 2}},
                                       {"weight_scale", scheme.scales, {rows, scheme_grid_cols(scheme, cols)}}};
    if (scheme.scales == Dtype::kF8E4M3) out.push_back({"weight_scale_2", Dtype::kF32, {}, kSome});
    if (scheme.input_scales) out.push_back(pre_quant_scale);
    return out;
  }
  if (scheme.bits == 4) {
    int64_t group = scheme.group_cols;
    while (cols % group != 0) group /= 2;  // groups are whole
    return {{"weight", Dtype::kU8, {rows / 2, cols}}, {"weight_scale", scheme.scales, {rows, cols / group}}};
  }
  std::vector<int64_t> shape;  // one value
  const int64_t grid_rows = scheme_grid_rows(scheme, rows), grid_cols = scheme_grid_cols(scheme, cols);
  if (scheme.group_rows > 1) {
    if (grid_rows * grid_cols > 1) shape = {grid_rows, 1, grid_cols, 1};
  } else if (scheme.group_cols > 0) {
    shape = {rows, grid_cols};
  } else if (scheme.group_rows == 1) {
    shape = {rows};
  }
  std::vector<DeclaredTensor> out = {{"weight", scheme.codes, {rows, cols}}, {"weight_scale", scheme.scales, shape}};
  if (scheme.static_inputs) out.push_back({"input_scale", scheme.scales, {}});
  if (scheme.input_scales) out.push_back(pre_quant_scale);
  return out;
}

}  // namespace

const Format kModelOptFormat = {
    "modelopt",
    "NVIDIA ModelOpt: FP8 per tensor, channel or block, MXFP8, INT8 per channel; NVFP4, MXFP4 and INT4 (AWQ) held as 8",
    detect,
    bind,
    read,
    declare,
    "`weight` in F8_E4M3 or I8; `weight_scale` per tensor (0-d), channel (1-D), 32 columns (U8 exponents) or block of "
    "128 x 128 (4-D); `pre_quant_scale` (K) multiplies the input. INT4: `weight` in U8, (N / 2, K)",
    nullptr,
    nullptr,
    check};

}  // namespace qgen
