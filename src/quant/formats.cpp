#include "quant/formats.h"

namespace qgen {
namespace {

// The first row whose tensors are there binds the module.
const Format kFormats[] = {kPlainFormat, kFp8Format, kScaledFormat, kQ8_0Format};

constexpr UnsupportedLayout kUnsupported[] = {
    {"weight_packed", "compressed-tensors pack-quantized or 4-bit"},
    {"qweight", "GPTQ or AWQ"},
    {"SCB", "bitsandbytes LLM.int8"},
    {"deq_scale", "msModelSlim W8A8"},
    {"weight_offset", "msModelSlim"},
    {"scales", "MLX"},
    {"W_q", "HQQ"},
    {"weight._data", "quanto"},
    {"_weight_qdata", "torchao"},
    {"weight_scales", "EETQ"},
    {"qscale_weight", "Mistral's own FP8 layout"},
};

}  // namespace

std::span<const Format> formats() { return kFormats; }
std::span<const UnsupportedLayout> unsupported_layouts() { return kUnsupported; }

}  // namespace qgen
