#include "quant/formats.h"

#include <algorithm>
#include <iterator>

namespace qgen {
namespace {

// The first row whose tensors are there binds the module.
const Format kFormats[] = {kPlainFormat, kFp4Format,      kMsModelSlimFormat,  kQuarkFormat,
                           kFp8Format,   kModelOptFormat, kScaledFormat,       kPackFormat,
                           kAwqFormat,   kGptqFormat,     kBitsandbytesFormat, kMlxFormat,
                           kHqqFormat,   kTorchaoFormat,  kQuantoFormat,       kGgufFormat};

constexpr UnsupportedLayout kUnsupported[] = {
    {"weight_packed", "compressed-tensors sparse or unknown packed"},
    {"qweight", "marlin or bitblas"},
    {"weight.absmax", "bitsandbytes 4-bit"},
    {"heads_rotation", "msModelSlim QuaRot (rotations while running)"},
    {"kronecker_rotation_m", "msModelSlim QuaRot (rotations while running)"},
    {"left_trans", "msModelSlim FlatQuant (transforms while running)"},
    {"weight._shift", "quanto with fewer than 8 bits"},
    {"_weight_scale_and_zero", "tile_packed_to_4d (torchao's int4 for one kind of GPU)"},
    {"weight_scales", "EETQ"},
    {"trellis", "EXL3"},
    {"q_invperm", "EXL2"},
    {"codebooks", "AQLM"},
    {"Qidxs", "QuIP#"},
    {"centroids", "VPTQ"},
    {"weight_mask", "sparse compressed-tensors (bitmask)"},
    {"bitmask", "sparse compressed-tensors (bitmask)"},
};

// Methods whose weights are recognized by their tensors, and such as are refused whatever their tensors look like.
constexpr DeclaredMethod kMethods[] = {
    {"fp8", true},
    {"mxfp8", true},
    {"fbgemm_fp8", true},
    {"blockwise_int8", true},
    {"w8a8_int8", true},
    {"w8a8_fp8", true},
    {"compressed-tensors", true},
    {"modelopt", true},
    {"modelopt_fp8", true},
    {"modelopt_mxfp8", true},
    {"modelopt_mixed", true},
    {"modelopt_fp4", true},
    {"quark", true},
    {"gptq"},
    {"awq"},
    {"auto-round"},
    {"intel/auto-round"},
    {"auto_round"},
    {"inc"},
    {"bitsandbytes"},
    {"torchao"},
    {"quanto"},
    {"hqq"},
    {"mlx"},
    {"mxfp4"},
    {"nvfp4"},
    {"eetq", false, "EETQ interleaves its codes for one kernel"},
    {"marlin", false, "Marlin's codes are interleaved for one kernel"},
    {"gptq_marlin", false, "Marlin's codes are interleaved for one kernel"},
    {"gptq_marlin_24", false, "Marlin's sparse codes are interleaved for one kernel"},
    {"awq_marlin", false, "Marlin's codes are interleaved for one kernel"},
    {"bitblas", false, "BitBLAS interleaves its codes for one kernel"},
    {"gptq_bitblas", false, "BitBLAS interleaves its codes for one kernel"},
    {"aqlm", false, "AQLM stores sums of codebook entries"},
    {"vptq", false, "VPTQ stores indices of a codebook"},
    {"quip", false, "QuIP# stores indices of a codebook behind rotations"},
    {"exl2", false, "EXL2 mixes widths of codes in one matrix"},
    {"exl3", false, "EXL3 stores a trellis code"},
    {"higgs", false, "HIGGS stores indices of a grid behind rotations"},
    {"spqr", false, "SpQR keeps outliers in a sparse matrix"},
    {"squeezellm", false, "SqueezeLLM stores indices of a codebook"},
    {"fp_quant", false, "FP-Quant rotates inputs while running"},
    {"bitnet", false, "BitNet packs ternary weights"},
    {"deepspeedfp", false, "DeepSpeedFP stores 6-bit floats"},
};

}  // namespace

std::span<const DeclaredMethod> declared_methods() { return kMethods; }

const DeclaredMethod* find_declared_method(std::string_view name) {
  const auto row =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const auto& m) { return m.name == name; });
  return row == std::end(kMethods) ? nullptr : row;
}

std::span<const Format> formats() { return kFormats; }
std::span<const UnsupportedLayout> unsupported_layouts() { return kUnsupported; }

}  // namespace qgen
