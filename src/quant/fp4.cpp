// Floats of 4 bits, E2M1 (OCP MX 1.0): magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign, two to a byte, the first in
// its lower half. Doubled they are integers, which are held as INT8.
//   MXFP4: a power of two (E8M0) for 32 columns. gpt-oss: X.weight_blocks or X_blocks (N, K / 32, 16) with ..._scales;
//     compressed-tensors mxfp4-pack-quantized: weight_packed (N, K / 2) with weight_scale.
//   NVFP4: E4M3 for 16 columns (32 in ModelOpt's W4A8_NVFP4_FP8), and a float for the tensor. ModelOpt: weight (N, K /
//     2), weight_scale, weight_scale_2, W = code * weight_scale * weight_scale_2; compressed-tensors
//     nvfp4-pack-quantized: weight_packed, weight_scale, weight_global_scale, W = code * weight_scale /
//     weight_global_scale.
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"
#include "quant/repack.h"

namespace qgen {
namespace {

// The tensors of a module, by their suffixes.
struct Layout {
  std::string_view codes, scales, tensor_scale;
  bool blocks = false, divides = false;
};
constexpr Layout kLayouts[] = {{"weight_blocks", "weight_scales", "", true, false},
                               {"weight_packed", "weight_scale", "weight_global_scale", false, true},
                               {"weight", "weight_scale", "weight_scale_2", false, false}};

const Layout* find_layout(const Module& module) {
  for (const Layout& layout : kLayouts) {
    const TensorView* const codes = module.peek(layout.codes);
    const TensorView* const scales = module.peek(layout.scales);
    // Blocks are of no other method; without them the scales are EETQ's where there is a weight.
    if (layout.blocks && (codes != nullptr || (scales != nullptr && !module.has("weight")))) return &layout;
    if (codes == nullptr || scales == nullptr || codes->dtype != Dtype::kU8) continue;
    // Other methods have bytes and scales of these names as well, but no E4M3 scales and no exponents.
    if (scales->dtype == Dtype::kF8E4M3 || scales->dtype == Dtype::kU8 || scales->dtype == Dtype::kF8E8M0)
      return &layout;
  }
  return nullptr;
}

bool detect(const Module& module) { return find_layout(module) != nullptr; }

bool is_nvfp4(const TensorView& scales) { return scales.dtype == Dtype::kF8E4M3; }

Weight bind(Module& module) {
  const Layout& layout = *find_layout(module);
  const int64_t rows = module.rows(), cols = module.cols();
  const bool nvfp4 = !layout.blocks && is_nvfp4(*module.peek(layout.scales));
  const bool narrow = nvfp4 && module.peek(layout.scales)->shape != std::vector<int64_t>{rows, cols / 32};
  const int64_t group = narrow ? 16 : 32;
  if (cols % group != 0) {
    fail_tensor(module.take(layout.codes),
                fmt::format("rows of {} columns are not a whole number of groups of {}", cols, group));
  }
  const TensorView& codes =
      module.take(layout.codes, {Dtype::kU8},
                  layout.blocks ? std::vector<int64_t>{rows, cols / 32, 16} : std::vector<int64_t>{rows, cols / 2});
  const TensorView& scales =
      layout.blocks ? module.take(layout.scales, {Dtype::kU8, Dtype::kF8E8M0}, {rows, cols / group})
                    : module.take(layout.scales, {Dtype::kU8, Dtype::kF8E8M0, Dtype::kF8E4M3}, {rows, cols / group});
  Weight weight = module.codes_over(codes, Codes::kI8);
  weight.file_codes = "fp4";
  weight.scale = make_grid(rows, cols, 1, group);
  weight.scale.type = nvfp4 ? ScaleType::kE4M3 : ScaleType::kE8M0;
  weight.scale.data = scales.bytes.data();
  weight.scale.col_pitch = 1;
  weight.scale.row_pitch = weight.scale.cols;
  weight.scale.factor = 0.5;
  weight.scale.tensor = fmt::format("{}: tensor {}", scales.file, scales.name);
  std::optional<TensorView> global;
  const bool declared = !module.config().method.empty();
  if (nvfp4 && (declared || module.has(layout.tensor_scale))) {
    global = module.take(layout.tensor_scale);
    if (global->dtype != Dtype::kF32 || global->elements() != 1) {
      fail_tensor(*global, fmt::format("wrong type or shape (expected one F32, found {} {})", dtype_name(global->dtype),
                                       global->shape_text()));
    }
  }
  auto repack = std::make_shared<Weight::Repack>();
  weight.source_pitch = cols / 2;
  repack->prepare = [global = std::move(global), divides = layout.divides](Weight& w) {
    if (global) w.scale.factor = 0.5 * tensor_factor(*global, divides);
    w.source = w.data;
    own_codes(w);
  };
  repack->rows = [](Weight& w, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      unpack_doubled_e2m1(w.source.subspan(size_t(n * w.source_pitch), size_t(w.cols / 2)),
                          std::span(w.owned).subspan(size_t(n * w.row_bytes), size_t(w.cols)));
  };
  weight.repack = std::move(repack);
  return weight;
}

std::string kind(const Module& module) {
  return is_nvfp4(*module.peek(find_layout(module)->scales)) ? "NVFP4" : "MXFP4";
}

// gpt-oss; the rows of compressed-tensors and ModelOpt declare theirs.
bool read(const QuantSource& source, Declaration& out) {
  if (source.method != "mxfp4") return false;
  Scheme scheme;
  scheme.codes = scheme.scales = Dtype::kU8;
  scheme.bits = 4;
  scheme.group_rows = 1;
  scheme.group_cols = 32;
  out.schemes.push_back(std::move(scheme));
  read_excluded_paths(*source.json, out);
  return true;
}

std::vector<DeclaredTensor> declare(const Scheme& scheme, int64_t rows, int64_t cols) {
  const std::vector<int64_t> grid = {rows, scheme_grid_cols(scheme, cols)};
  if (scheme.packed) {
    std::vector<DeclaredTensor> out = {{"weight_packed", Dtype::kU8, {rows, cols / 2}},
                                       {"weight_scale", scheme.scales, grid}};
    // About 0.75.
    if (scheme.scales == Dtype::kF8E4M3) out.push_back({"weight_global_scale", Dtype::kF32, {1}, std::byte{0x3F}});
    return out;
  }
  return {{"weight_blocks", Dtype::kU8, {rows, cols / 32, 16}}, {"weight_scales", Dtype::kU8, grid}};
}

}  // namespace

const Format kFp4Format = {
    "fp4",
    "MXFP4 (gpt-oss, compressed-tensors) and NVFP4 (ModelOpt, compressed-tensors): E2M1 codes, doubled and held as "
    "INT8, "
    "with E8M0 scales for 32 columns, or E4M3 for 16 or 32 and a float for the tensor",
    detect,
    bind,
    read,
    declare,
    "`weight_blocks` or `_blocks` in U8, (N, K / 32, 16), with `..._scales`; `weight_packed` in U8, (N, K / 2), with "
    "`weight_scale` in U8 or F8_E4M3 and `weight_global_scale`; `weight` in U8, (N, K / 2), with `weight_scale` in "
    "F8_E4M3 and `weight_scale_2`",
    nullptr,
    kind};

}  // namespace qgen
