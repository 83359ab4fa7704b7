#include "quant/binder.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "quant/formats.h"

namespace qgen {
namespace {

// Tensors that a weight-only engine reads without effect.
struct Ignorable {
  std::string_view suffix;
  std::string_view reason;
};
constexpr Ignorable kIgnorable[] = {
    {".input_scale", "static activation scale; activations are not quantized"},
    {".input_zero_point", "static activation zero point; activations are not quantized"},
    {".activation_scale", "static activation scale; activations are not quantized"},
    {".act_scale", "static activation scale; activations are not quantized"},
    {".input_scale_ub", "bound of activation scales; activations are not quantized"},
    {".k_scale", "FP8 cache scale; the cache is kept in 16 bits"},
    {".v_scale", "FP8 cache scale; the cache is kept in 16 bits"},
    {".q_scale", "FP8 attention scale; attention is computed in float"},
    {".kv_scale", "FP8 cache scale; the cache is kept in 16 bits"},
    {".output_scale", "FP8 cache scale; the cache is kept in 16 bits"},
    {".rotary_emb.inv_freq", "rotary frequencies are computed from config.json"},
    {"rope_freqs.weight", "rotary divisors are part of the configuration"},
    {".masked_bias", "attention mask buffer"},
};

// Whether a name's last part is a parameter of some quantization rather than a weight of the model.
bool looks_like_quantization(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  for (const std::string_view part : {"scale", "zero", "packed", "qweight", "g_idx", "SCB", "quant", "weight_shape",
                                      "absmax", "weight_format", "weight_offset", "W_q", "_data", "qdata"}) {
    if (last.find(part) != last.npos) return true;
  }
  return false;
}

[[noreturn]] void fail_tensor(const TensorView& tensor, const std::string& problem, std::string hint = {}) {
  fail(ErrorKind::kModel, fmt::format("{}: tensor {}: {}", tensor.file, tensor.name, problem), std::move(hint));
}

// How a grid's values are stored. Zero points are integers of a byte, or floats that hold integers.
ScaleType scale_type(const TensorView& tensor, bool zero_points) {
  switch (tensor.dtype) {
    case Dtype::kF32: return ScaleType::kF32;
    case Dtype::kF16: return ScaleType::kF16;
    case Dtype::kBf16: return ScaleType::kBf16;
    case Dtype::kF8E8M0: return ScaleType::kE8M0;
    case Dtype::kU8: return zero_points ? ScaleType::kU8 : ScaleType::kE8M0;
    case Dtype::kI8:
      if (zero_points) return ScaleType::kI8;
      [[fallthrough]];
    default:
      fail_tensor(tensor, fmt::format("type {} cannot be read here (expected {})", dtype_name(tensor.dtype),
                                      zero_points ? "I8, U8 or a float type" : "F32, F16, BF16 or F8_E8M0"));
  }
}

}  // namespace

const TensorView* Module::peek(std::string_view suffix) const {
  return checkpoint_.find(fmt::format("{}.{}", name_, suffix));
}

const TensorView& Module::take(std::string_view suffix) {
  const std::string name = fmt::format("{}.{}", name_, suffix);
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor == nullptr)
    fail(ErrorKind::kModel, fmt::format("{}: tensor {} is missing", checkpoint_.location().name, name));
  consumed_.insert(name);
  return *tensor;
}

Weight Module::take_codes(std::string_view suffix, Codes codes) {
  const TensorView& tensor = take(suffix);
  if (tensor.shape != std::vector<int64_t>{rows_, cols_}) {
    fail_tensor(tensor, fmt::format("wrong shape (expected [{}, {}], found {})", rows_, cols_, tensor.shape_text()),
                "the configuration and the weights do not belong together?");
  }
  Weight weight;
  weight.name = name_;
  weight.rows = rows_;
  weight.cols = cols_;
  weight.codes = codes;
  weight.data = tensor.bytes;
  weight.row_bytes = cols_ * code_bytes(codes);
  weight.tensor = fmt::format("{}: tensor {}", tensor.file, tensor.name);
  return weight;
}

ScaleGrid Module::take_grid(std::string_view suffix, GridKind kind) {
  const TensorView& tensor = take(suffix);
  // (rows, columns) of the grid; a vector counts rows.
  const auto& shape = tensor.shape;
  int64_t r = 1, c = 1;
  if (shape.size() == 1) {
    r = shape[0];
  } else if (shape.size() == 2) {
    r = shape[0];
    c = shape[1];
  } else if (!shape.empty()) {
    fail_tensor(tensor, fmt::format("too many dimensions (expected at most 2, found {})", tensor.shape_text()));
  }
  std::vector<std::pair<int64_t, int64_t>> candidates;
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto add = [&](int64_t group_rows, int64_t group_cols) {
    if (ceil_div(rows_, group_rows) != r || ceil_div(cols_, group_cols) != c) return;
    // Declared sizes that reach beyond the matrix mean the same where they cover it alike.
    const auto same = [&](const auto& other) {
      return std::min(other.first, rows_) == std::min(group_rows, rows_) &&
             std::min(other.second, cols_) == std::min(group_cols, cols_);
    };
    if (std::none_of(candidates.begin(), candidates.end(), same)) candidates.emplace_back(group_rows, group_cols);
  };
  if (r == rows_ && c == 1) add(1, cols_);
  if (candidates.empty()) {
    for (const auto& [group_rows, group_cols] : config_.groups) {
      // Blocks may be cut short at the edge, groups along a row may not.
      if (group_rows > 1 || group_cols >= cols_ || cols_ % group_cols == 0) add(group_rows, group_cols);
    }
  }
  if (candidates.empty() && r == 1 && c == 1) add(rows_, cols_);
  if (candidates.size() > 1) {
    fail_tensor(tensor,
                fmt::format("two of the block sizes that config.json declares fit its shape {}", tensor.shape_text()));
  }
  if (candidates.empty() && config_.groups.empty() && r > 0 && c > 0) {
    // Nothing is declared: whole groups, then the published block size, then blocks that divide the matrix.
    if (r == rows_ && cols_ % c == 0 && c < cols_) add(1, cols_ / c);
    if (candidates.empty()) add(128, 128);
    if (candidates.empty() && rows_ % r == 0 && cols_ % c == 0 && c < cols_) add(rows_ / r, cols_ / c);
  }
  if (candidates.empty()) {
    std::string declared;
    for (const auto& [group_rows, group_cols] : config_.groups)
      declared += fmt::format(" {}x{}", group_rows, group_cols);
    fail_tensor(tensor, fmt::format("its shape {} is no grid of blocks over [{}, {}]{}", tensor.shape_text(), rows_,
                                    cols_, declared.empty() ? "" : fmt::format(" (declared:{})", declared)));
  }
  ScaleGrid grid = make_grid(rows_, cols_, candidates[0].first, candidates[0].second);
  grid.type = scale_type(tensor, kind == GridKind::kZeroPoints);
  grid.data = tensor.bytes.data();
  grid.col_pitch = scale_bytes(grid.type);
  grid.row_pitch = grid.cols * grid.col_pitch;
  grid.tensor = fmt::format("{}: tensor {}", tensor.file, tensor.name);
  return grid;
}

std::optional<Codes> byte_codes(const TensorView& tensor) {
  if (tensor.dtype == Dtype::kI8) return Codes::kI8;
  if (tensor.dtype == Dtype::kF8E4M3) return Codes::kE4M3;
  if (tensor.dtype == Dtype::kF8E5M2) return Codes::kE5M2;
  return {};
}

bool Binder::has_matrix(const std::string& module) const { return has_tensor(module + ".weight"); }

Weight Binder::matrix(const std::string& module_name, int64_t rows, int64_t cols) {
  Module module(checkpoint_, config_, consumed_, module_name, rows, cols);
  for (const Format& format : formats()) {
    if (!format.detect(module)) continue;
    Weight weight = format.bind(module);
    Binding& binding = bindings_.emplace_back(Binding{module_name, format.name, {}});
    const std::string prefix = module_name + ".";
    for (auto it = consumed_.lower_bound(prefix); it != consumed_.end() && it->starts_with(prefix); ++it)
      binding.tensors.push_back(*it);
    return weight;
  }
  for (const UnsupportedLayout& row : unsupported_layouts()) {
    if (const TensorView* tensor = module.peek(row.suffix)) {
      fail_tensor(*tensor, fmt::format("the {} layout is not supported", row.name), "`qgen --help` lists what is");
    }
  }
  const TensorView& weight = module.take("weight");
  if (byte_codes(weight)) {
    fail_tensor(weight,
                fmt::format("{} codes without their scale (expected {}.weight_scale or {}.weight_scale_inv)",
                            dtype_name(weight.dtype), module_name, module_name),
                "without it the model would write garbage; is a shard missing?");
  }
  fail_tensor(weight, fmt::format("weights of type {} are not supported", dtype_name(weight.dtype)));
}

Vector Binder::vector(const std::string& name, int64_t n) {
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor == nullptr)
    fail(ErrorKind::kModel, fmt::format("{}: tensor {} is missing", checkpoint_.location().name, name));
  consumed_.insert(name);
  const auto& shape = tensor->shape;
  const bool of_heads = shape.size() == 2 && shape[0] > 0 && n % shape[0] == 0 && shape[1] == n / shape[0];
  if (shape != std::vector<int64_t>{n} && !of_heads) {
    fail_tensor(*tensor, fmt::format("wrong shape (expected [{}], found {})", n, tensor->shape_text()));
  }
  if (tensor->dtype != Dtype::kF32 && tensor->dtype != Dtype::kF16 && tensor->dtype != Dtype::kBf16) {
    fail_tensor(*tensor, fmt::format("wrong type (expected F32, F16 or BF16, found {})", dtype_name(tensor->dtype)));
  }
  Vector out;
  out.name = name;
  out.size = n;
  out.type = tensor->dtype;
  out.bytes = tensor->bytes;
  return out;
}

std::vector<Binder::Ignored> Binder::finish(std::span<const std::string> prefixes,
                                            std::span<const std::string_view> buffers, std::string_view family) const {
  std::vector<Ignored> ignored;
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (consumed_.contains(tensor.name)) continue;
    const auto row = std::find_if(std::begin(kIgnorable), std::end(kIgnorable),
                                  [&](const Ignorable& candidate) { return tensor.name.ends_with(candidate.suffix); });
    if (row != std::end(kIgnorable)) {
      ignored.push_back({tensor.name, row->reason});
      continue;
    }
    if (std::any_of(buffers.begin(), buffers.end(),
                    [&](std::string_view suffix) { return tensor.name.ends_with(suffix); })) {
      ignored.push_back({tensor.name, "a buffer of the model's program"});
      continue;
    }
    for (const UnsupportedLayout& layout : unsupported_layouts()) {
      if (tensor.name.ends_with(fmt::format(".{}", layout.suffix)))
        fail_tensor(tensor, fmt::format("the {} layout is not supported", layout.name));
    }
    if (looks_like_quantization(tensor.name)) {
      fail_tensor(tensor, "a quantization parameter that nothing here understands",
                  "to read the weights without it would give wrong text");
    }
    const bool ours = std::any_of(prefixes.begin(), prefixes.end(),
                                  [&](const std::string& prefix) { return tensor.name.starts_with(prefix); });
    if (ours) fail_tensor(tensor, fmt::format("not part of a {} model as its configuration describes it", family));
    ignored.push_back({tensor.name, "not part of the language model"});
  }
  return ignored;
}

}  // namespace qgen
