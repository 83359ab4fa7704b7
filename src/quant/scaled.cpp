// compressed-tensors "int-quantized" and "float-quantized", AutoFP8, and all that shares their layout:
// I8 or F8 codes, weight_scale per tensor, channel, group or block, and for asymmetric int8 a
// weight_zero_point of the same shape: W = (code - zero_point) * scale.
#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"

namespace qgen {
namespace {

bool detect(const Module& module) {
  const TensorView* weight = module.peek("weight");
  return weight != nullptr && byte_codes(*weight) && module.has("weight_scale");
}

// Files with activation order say for each column which group it is in; columns are brought together group
// by group, which is the order the canonical weight has. A -1 anywhere means "no order" (compressed-tensors).
void apply_group_index(Weight& weight, const TensorView& index) {
  const auto fail_index = [&](const std::string& problem) {
    fail(ErrorKind::kModel, fmt::format("{}: tensor {}: {}", index.file, index.name, problem));
  };
  if (index.dtype != Dtype::kI32 || index.shape != std::vector<int64_t>{weight.cols}) {
    fail_index(fmt::format("unexpected form (expected I32 [{}], found {} {})", weight.cols, dtype_name(index.dtype),
                           index.shape_text()));
  }
  std::vector<int32_t> group(weight.cols);
  std::memcpy(group.data(), index.bytes.data(), index.bytes.size());
  if (std::find(group.begin(), group.end(), -1) != group.end()) return;
  std::vector<int64_t> members(weight.scale.tile_cols);
  for (const int32_t g : group) {
    if (g < 0 || g >= weight.scale.tile_cols) {
      fail_index(fmt::format("group {} is out of range (expected 0 to {})", g, weight.scale.tile_cols - 1));
    }
    ++members[g];
  }
  for (size_t g = 0; g < members.size(); ++g) {
    const int64_t expected = std::min(weight.scale.group_cols, weight.cols - int64_t(g) * weight.scale.group_cols);
    if (members[g] != expected) {
      fail_index(
          fmt::format("group {} has the wrong number of columns (expected {}, found {})", g, expected, members[g]));
    }
  }
  std::vector<int32_t> order(weight.cols);
  std::iota(order.begin(), order.end(), 0);
  if (std::is_sorted(group.begin(), group.end())) return;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return group[a] < group[b]; });
  weight.owned.resize(weight.data.size());
  for (int64_t n = 0; n < weight.rows; ++n) {
    for (int64_t k = 0; k < weight.cols; ++k) {
      weight.owned[n * weight.cols + k] = weight.data[n * weight.cols + order[k]];
    }
  }
  weight.data = weight.owned;
  weight.column_order = std::move(order);
}

Weight bind(Module& module) {
  Weight weight = module.take_codes("weight", *byte_codes(*module.peek("weight")));
  weight.scale = module.take_grid("weight_scale");
  if (module.has("weight_zero_point")) {
    const TensorView& tensor = *module.peek("weight_zero_point");
    weight.offset = module.take_grid("weight_zero_point", Module::GridKind::kOffsets);
    if (weight.offset.tile_rows != weight.scale.tile_rows || weight.offset.tile_cols != weight.scale.tile_cols) {
      fail(ErrorKind::kModel,
           fmt::format("{}: tensor {}: not the shape of its scale (expected {}x{} tiles, found {})", tensor.file,
                       tensor.name, weight.scale.tile_rows, weight.scale.tile_cols, tensor.shape_text()));
    }
    const auto is_zero = [](float value) { return value == 0; };
    if (std::all_of(weight.offset.values.begin(), weight.offset.values.end(), is_zero)) weight.offset = {};
  }
  if (module.has("weight_g_idx")) apply_group_index(weight, module.take("weight_g_idx"));
  return weight;
}

}  // namespace

const Format kScaledFormat = {"compressed-tensors",
                              "int-quantized and float-quantized: INT8 or FP8 codes with weight_scale per tensor, "
                              "channel, group or block, with or without zero points",
                              detect, bind};

}  // namespace qgen
