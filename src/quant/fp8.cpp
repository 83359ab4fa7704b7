// quant_method "fp8" as DeepSeek, Qwen and Mistral publish it: F8 codes and a multiplier called
// weight_scale_inv (or scale): one per block, partial last blocks included, or one for the tensor.
// Despite its name the scale multiplies: W = code * scale.
#include "quant/formats.h"

namespace qgen {
namespace {

constexpr std::string_view kScaleNames[] = {"weight_scale_inv", "scale"};

std::optional<Codes> fp8_codes(const TensorView& tensor) {
  if (tensor.dtype == Dtype::kF8E4M3) return Codes::kE4M3;
  if (tensor.dtype == Dtype::kF8E5M2) return Codes::kE5M2;
  if (tensor.dtype == Dtype::kI8) return Codes::kI8;  // the int8 relative, "blockwise_int8"
  return {};
}

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  if (weight == nullptr || !fp8_codes(*weight)) return false;
  for (const std::string_view name : kScaleNames) {
    if (module.has(name)) return true;
  }
  return false;
}

Weight bind(Module& module) {
  Weight weight = module.take_codes("weight", *fp8_codes(*module.peek("weight")));
  weight.scale = module.take_grid(module.has(kScaleNames[0]) ? kScaleNames[0] : kScaleNames[1]);
  return weight;
}

}  // namespace

const Format kFp8Format = {"fp8", "FP8 or INT8 codes with weight_scale_inv per block or tensor", detect, bind};

}  // namespace qgen
