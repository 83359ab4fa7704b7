// quant_method "fp8" as DeepSeek, Qwen and Mistral publish it: F8 codes and a multiplier called
// weight_scale_inv (or scale): one per block, partial last blocks included, or one for the tensor.
// Despite its name the scale multiplies: W = code * scale.
#include <tuple>

#include "quant/formats.h"

namespace qgen {
namespace {

// The third is Mistral's, the last ComfyUI's.
constexpr std::string_view kScaleNames[] = {"weight_scale_inv", "scale", "qscale_weight", "scale_weight"};

std::string_view scale_name(const Module& module) {
  for (const std::string_view name : kScaleNames) {
    if (module.has(name)) return name;
  }
  return {};
}

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  return weight != nullptr && byte_codes(*weight) && !scale_name(module).empty();
}

Weight bind(Module& module) {
  Weight weight = module.take_codes("weight", *byte_codes(*module.peek("weight")));
  weight.scale = module.take_grid(scale_name(module));
  return weight;
}

// With weight_block_size blocks; with null there (Mistral) one scale a tensor. Without the key, or from
// converters that say is_checkpoint_fp8_serialized, the scale is called weight_scale: the next row's.
bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "fp8" && source.method != "blockwise_int8") return false;
  const auto block = source.json->find("weight_block_size");
  if (!block || (block->is_null() && source.json->flag_or("is_checkpoint_fp8_serialized", false))) return false;
  Scheme scheme;
  scheme.codes = source.method == "fp8" ? read_fp8_type(*source.json) : Dtype::kI8;
  if (!block->is_null()) std::tie(scheme.group_rows, scheme.group_cols) = read_block(*block);
  const auto scale_format = source.json->get("scale_fmt");
  const bool powers = scale_format && scale_format->as_string() == "ue8m0";
  scheme.scales = powers ? Dtype::kF8E8M0 : source.plain;
  scheme.static_inputs = read_static_inputs(*source.json);
  out.schemes.push_back(std::move(scheme));
  read_excluded_paths(*source.json, out);
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  std::vector<int64_t> shape;
  if (scheme.group_rows > 0) shape = {scheme_grid_rows(scheme, rows), scheme_grid_cols(scheme, cols)};
  std::vector<DeclaredTensor> out = {{"weight", scheme.codes, {rows, cols}},
                                     {"weight_scale_inv", scheme.scales, shape}};
  if (scheme.static_inputs) out.push_back({"activation_scale", scheme.scales, {}});
  return out;
}

// GPTQModel's, which means what the scales are called.
void check(const Json& quant, QuantConfig&) {
  const auto semantics = quant.get("weight_scale_semantics");
  if (semantics && semantics->is_string() && semantics->as_string() == "inverse")
    semantics->fail("codes that are divided by their scales are not supported", std::string(kOtherCheckpoint));
}

}  // namespace

const Format kFp8Format = {"fp8",
                           "FP8 or INT8 codes with weight_scale_inv per block or tensor",
                           detect,
                           bind,
                           read,
                           declare,
                           "`weight` in F8_E4M3, F8_E5M2 or I8; `weight_scale_inv` (or `scale`, in Mistral's own files "
                           "`qscale_weight`) in F32, BF16, F16 or "
                           "F8_E8M0: one per block of "
                           "any size, partial last blocks included, or one per tensor",
                           nullptr,
                           nullptr,
                           check};

}  // namespace qgen
