#include "quant/formats.h"

namespace qgen {
namespace {

// The first row whose tensors are there binds the module.
const Format kFormats[] = {kPlainFormat,        kFp8Format, kScaledFormat, kPackFormat,    kAwqFormat,    kGptqFormat,
                           kBitsandbytesFormat, kMlxFormat, kHqqFormat,    kTorchaoFormat, kQuantoFormat, kQ8_0Format};

constexpr UnsupportedLayout kUnsupported[] = {
    {"weight_packed", "compressed-tensors packed floats or sparse"},
    {"qweight", "marlin or bitblas"},
    {"weight.absmax", "bitsandbytes 4-bit"},
    {"deq_scale", "msModelSlim W8A8"},
    {"weight_offset", "msModelSlim"},
    {"weight._shift", "quanto with fewer than 8 bits"},
    {"weight_scales", "EETQ"},
    {"qscale_weight", "Mistral's own FP8 layout"},
};

}  // namespace

std::span<const Format> formats() { return kFormats; }
std::span<const UnsupportedLayout> unsupported_layouts() { return kUnsupported; }

}  // namespace qgen
