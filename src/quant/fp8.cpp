// quant_method "fp8" as DeepSeek, Qwen and Mistral publish it: F8 codes and a multiplier called
// weight_scale_inv (or scale): one per block, partial last blocks included, or one for the tensor.
// Despite its name the scale multiplies: W = code * scale.
#include "quant/formats.h"

namespace qgen {
namespace {

constexpr std::string_view kScaleNames[] = {"weight_scale_inv", "scale"};

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  if (weight == nullptr || !byte_codes(*weight)) return false;
  for (const std::string_view name : kScaleNames) {
    if (module.has(name)) return true;
  }
  return false;
}

Weight bind(Module& module) {
  Weight weight = module.take_codes("weight", *byte_codes(*module.peek("weight")));
  weight.scale = module.take_grid(module.has(kScaleNames[0]) ? kScaleNames[0] : kScaleNames[1]);
  return weight;
}

}  // namespace

const Format kFp8Format = {"fp8", "FP8 or INT8 codes with weight_scale_inv per block or tensor", detect, bind};

}  // namespace qgen
