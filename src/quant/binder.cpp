#include "quant/binder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/numbers.h"
#include "quant/formats.h"
#include "quant/transpose.h"

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
    {".input_offset", "static activation zero point; activations are not quantized"},
    {".qscale_act", "static activation scale; activations are not quantized"},
    {".scale_input", "static activation scale; activations are not quantized"},
    {".act_scale", "static activation scale; activations are not quantized"},
    {"._weight_act_per_tensor_scale", "static activation scale; activations are not quantized"},
    {"._weight_act_quant_scale", "static activation scale; activations are not quantized"},
    {"._weight_act_quant_zero_point", "static activation zero point; activations are not quantized"},
    {".input_global_scale", "static activation scale; activations are not quantized"},
    {"_proj_input_scale", "static activation scale; activations are not quantized"},  // of stacks of experts
    {"_proj_activation_scale", "static activation scale; activations are not quantized"},
    {".input_scale_ub", "bound of activation scales; activations are not quantized"},
    {".k_scale", "FP8 cache scale; the cache is kept in 16 bits"},
    {".v_scale", "FP8 cache scale; the cache is kept in 16 bits"},
    {".k_zero_point", "cache zero point; the cache is kept in 16 bits"},
    {".v_zero_point", "cache zero point; the cache is kept in 16 bits"},
    {".q_scale", "FP8 attention scale; attention is computed in float"},
    {".kv_scale", "FP8 cache scale; the cache is kept in 16 bits"},
    {".kv_cache_scale", "C8 cache scale; the cache is kept in 16 bits"},
    {".kv_cache_offset", "C8 cache zero point; the cache is kept in 16 bits"},
    {".kv_cacahe_scale", "C8 cache scale; the cache is kept in 16 bits"},  // misspelled by msModelSlim's converter
    {".kv_cacahe_offset", "C8 cache zero point; the cache is kept in 16 bits"},
    {".fa_q.scale", "FAQuant attention scale; attention is computed in float"},
    {".fa_q.offset", "FAQuant attention zero point; attention is computed in float"},
    {".fa_k.scale", "FAQuant attention scale; attention is computed in float"},
    {".fa_k.offset", "FAQuant attention zero point; attention is computed in float"},
    {".fa_v.scale", "FAQuant attention scale; attention is computed in float"},
    {".fa_v.offset", "FAQuant attention zero point; attention is computed in float"},
    {".output_scale", "static output or cache scale; neither is quantized so"},
    {".output_zero_point", "static output or cache zero point; neither is quantized so"},
    {".output_global_scale", "static output or cache scale; neither is quantized so"},
    {".input_activation_scale", "static activation scale; activations are not quantized"},
    {".output_activation_scale", "static activation scale; activations are not quantized"},
    {".q_zero_point", "attention zero point; attention is computed in float"},
    {".q_global_scale", "attention scale; attention is computed in float"},
    {".k_global_scale", "cache scale; the cache is kept in 16 bits"},
    {".v_global_scale", "cache scale; the cache is kept in 16 bits"},
    {".k_cache_scale", "cache scale; the cache is kept in 16 bits"},
    {".v_cache_scale", "cache scale; the cache is kept in 16 bits"},
    {".prob_output_scale", "attention scale; attention is computed in float"},
    {".rotary_emb.inv_freq", "rotary frequencies are computed from config.json"},
    {"rope_freqs.weight", "rotary divisors are part of the configuration"},
    {".masked_bias", "attention mask buffer"},
};

// Whether a name's last part is a parameter of some quantization rather than a weight of the model.
bool looks_like_quantization(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  for (const std::string_view part :
       {"scale", "zero", "packed", "qweight", "g_idx", "SCB", "quant", "weight_shape", "absmax", "weight_format",
        "weight_offset", "left_trans", "right_trans", "_rotation", "W_q", "_data", "qdata", "biases"}) {
    if (last.find(part) != last.npos) return true;
  }
  return false;
}

// The floats of AMD's FNUZ codes, a bias of one more than in OCP's: half of what the same bits are there, but that 0x80
// is the only NaN and that exponents of all ones are numbers. Source: "8-bit Numerical Formats for Deep Neural
// Networks" (Noune et al. 2022), section 3.
float fnuz_to_float(uint8_t code, int mantissa_bits, int bias) {
  if (code == 0x80) return std::nanf("");
  const int exponent = (code & 0x7F) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const int units = exponent == 0 ? mantissa : mantissa | 1 << mantissa_bits;
  const float value = std::ldexp(float(units), std::max(exponent, 1) - bias - mantissa_bits);
  return code & 0x80 ? -value : value;
}

// All of them are numbers of BF16.
std::shared_ptr<const Weight::Repack> widen_fnuz(Weight& weight, Dtype type) {
  std::array<uint16_t, 256> table;
  for (int code = 0; code < 256; ++code) {
    const bool e4m3 = type == Dtype::kF8E4M3Fnuz;
    table[size_t(code)] = float_to_bf16(fnuz_to_float(uint8_t(code), e4m3 ? 3 : 2, e4m3 ? 8 : 16));
  }
  const std::span<const std::byte> stored = weight.data;
  weight.data = {};
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [size = stored.size()](Weight& w) {
    w.owned.resize(size * sizeof(uint16_t));
    w.data = w.owned;
  };
  repack->rows = [stored, table](Weight& w, int64_t begin, int64_t end) {
    for (int64_t i = begin * w.cols; i < end * w.cols; ++i) {
      const auto code = static_cast<uint8_t>(stored[size_t(i)]);
      if (code == 0x80)
        fail(ErrorKind::kModel, fmt::format("{}: holds NaN (code 0x80)", w.tensor), "the file is damaged");
      std::memcpy(w.owned.data() + size_t(i) * sizeof(uint16_t), &table[code], sizeof(uint16_t));
    }
  };
  return repack;
}

// The module whose weight and scales X is made of. msModelSlim's smoothing that is not fused into a norm wraps the
// layer: X.linear behind a multiplier of its input.
std::string inner_module(const Checkpoint& checkpoint, const std::string& module) {
  if (checkpoint.find(module + ".linear.weight") == nullptr) return module;
  return checkpoint.find(module + ".div.mul_scale") == nullptr ? module : module + ".linear";
}

}  // namespace

void fail_tensor(const TensorView& tensor, const std::string& problem, std::string hint) {
  fail(ErrorKind::kModel, fmt::format("{}: tensor {}: {}", tensor.file, tensor.name, problem), std::move(hint));
}

namespace {

void check_shape(const TensorView& tensor, const std::vector<int64_t>& shape) {
  if (tensor.shape == shape) return;
  fail_tensor(tensor, fmt::format("wrong shape (expected [{}], found {})", fmt::join(shape, ", "), tensor.shape_text()),
              "the configuration and the weights do not belong together?");
}

}  // namespace

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

// The tensors of a stack may be called without it.
constexpr std::string_view kWeight = "weight";

const TensorView* Module::find(std::string_view suffix) const {
  const TensorView* tensor = checkpoint_.find(fmt::format("{}.{}", name_, suffix));
  if (tensor != nullptr || part_.count == 0) return tensor;
  // Of a stack X itself: X, X_scale_inv, and in some files X_weight_scale.
  if (suffix.starts_with(kWeight)) tensor = checkpoint_.find(fmt::format("{}{}", name_, suffix.substr(kWeight.size())));
  if (tensor == nullptr && suffix == "weight_scale") tensor = checkpoint_.find(fmt::format("{}_{}", name_, suffix));
  return tensor;
}

std::string Module::tensor_name(std::string_view suffix) const {
  const bool bare = part_.count > 0 && suffix.starts_with(kWeight) &&
                    checkpoint_.find(fmt::format("{}.{}", name_, kWeight)) == nullptr;
  return bare ? fmt::format("{}{}", name_, suffix.substr(kWeight.size())) : fmt::format("{}.{}", name_, suffix);
}

const TensorView* Module::peek(std::string_view suffix) const {
  const TensorView* const tensor = find(suffix);
  if (tensor == nullptr || part_.count == 0) return tensor;
  if (const auto known = parts_.find(suffix); known != parts_.end()) return &known->second;
  TensorView part = *tensor;
  if (tensor->elements() == 1) {  // of the whole stack
    part.shape.clear();
    return &parts_.emplace(suffix, std::move(part)).first->second;
  }
  if (tensor->shape.empty() || tensor->shape[0] != part_.count)
    fail_tensor(*tensor, fmt::format("wrong shape (expected a first dimension of {}, found {})", part_.count,
                                     tensor->shape_text()));
  part.shape.erase(part.shape.begin());
  const size_t bytes = tensor->bytes.size() / size_t(part_.count);
  part.bytes = tensor->bytes.subspan(size_t(part_.index) * bytes, bytes);
  return &parts_.emplace(suffix, std::move(part)).first->second;
}

const TensorView& Module::take(std::string_view suffix) {
  const TensorView* const tensor = peek(suffix);
  if (tensor == nullptr) {
    std::vector<std::string_view> others;
    const std::string prefix = name_ + ".";
    for (const TensorView& other : checkpoint_.tensors()) {
      if (other.name.starts_with(prefix)) others.push_back(std::string_view(other.name).substr(prefix.size()));
    }
    fail(ErrorKind::kModel, fmt::format("{}: tensor {} is missing", checkpoint_.location().name, tensor_name(suffix)),
         others.empty()
             ? ""
             : fmt::format("the module has {}: is a tensor of its quantization missing?", fmt::join(others, ", ")));
  }
  taken_.push_back(tensor->name);
  return *tensor;
}

const TensorView& Module::take(std::string_view suffix, std::initializer_list<Dtype> types,
                               const std::vector<int64_t>& shape) {
  const TensorView& tensor = take(suffix);
  if (std::find(types.begin(), types.end(), tensor.dtype) == types.end()) {
    std::vector<std::string_view> names;
    for (const Dtype type : types) names.push_back(dtype_name(type));
    fail_tensor(tensor,
                fmt::format("wrong type (expected {}, found {})", fmt::join(names, " or "), dtype_name(tensor.dtype)));
  }
  check_shape(tensor, shape);
  return tensor;
}

void Module::require(std::string_view suffix) const {
  if (has(suffix)) return;
  fail(ErrorKind::kModel,
       fmt::format("{}: tensor {} is missing, config.json declares it", checkpoint_.location().name,
                   tensor_name(suffix)),
       std::string(kTrustTensors));
}

void Module::require_declared(const ScaleGrid& scale) const {
  if (config_.zero_points) require("weight_zero_point");
  if (config_.activation_order && scale.cols > 1) require("weight_g_idx");
}

void Module::ignore(std::string_view suffix, std::string_view reason) {
  const TensorView* const tensor = find(suffix);  // whatever shape it has
  if (tensor == nullptr) return;
  taken_.push_back(tensor->name);
  if (!reason.empty()) ignored_.push_back({tensor->name, reason});
}

std::string_view Module::described_type() const { return config_.type_of(fmt::format("{}.weight", name_)); }

ScaleGrid Module::take_zero_points(std::string_view suffix, const ScaleGrid& scale) {
  ScaleGrid grid = take_grid(suffix, GridKind::kZeroPoints);
  if (grid.rows != scale.rows || grid.cols != scale.cols) {
    const TensorView& tensor = *peek(suffix);
    fail_tensor(tensor, fmt::format("not the shape of its scale (expected {}x{} groups, found {})", scale.rows,
                                    scale.cols, tensor.shape_text()));
  }
  return grid;
}

ScaleGrid Module::transposed_groups(const TensorView& scales) const {
  if (scales.shape.size() != 2 || scales.shape[1] != rows_ || scales.shape[0] < 1)
    fail_tensor(scales, fmt::format("wrong shape (expected [groups, {}], found {})", rows_, scales.shape_text()));
  ScaleGrid grid = grid_over(scales, make_grid(rows_, cols_, 1, group_columns(scales, scales.shape[0])));
  grid.row_pitch = scale_bytes(grid.type);
  grid.col_pitch = rows_ * grid.row_pitch;
  return grid;
}

int64_t Module::group_columns(const TensorView& scales, int64_t groups) const {
  if (groups == 1) return cols_;
  int64_t found = 0;
  for (const auto& [group_rows, group_cols] : config_.groups) {
    if (group_rows != 1 || group_cols >= cols_ || (cols_ + group_cols - 1) / group_cols != groups) continue;
    if (found == 0 || cols_ % group_cols == 0) found = group_cols;
  }
  if (found == 0 && groups > 0 && cols_ % groups == 0) found = cols_ / groups;
  if (found == 0)
    fail_tensor(scales, fmt::format("its shape {} has {} groups, which are none of the {} columns of a row",
                                    scales.shape_text(), groups, cols_));
  return found;
}

Weight Module::codes_over(const TensorView& source, Codes codes) const {
  Weight weight;
  weight.name = name_;
  weight.rows = rows_;
  weight.cols = cols_;
  weight.codes = codes;
  weight.data = source.bytes;
  weight.row_bytes = cols_ * code_bytes(codes);
  weight.tensor = fmt::format("{}: tensor {}", source.file, source.name);
  return weight;
}

Weight Module::take_codes(std::string_view suffix, Codes codes) {
  const TensorView& tensor = take(suffix);
  const bool is_vector = rows_ == 1 && tensor.shape == std::vector<int64_t>{cols_};
  if (!is_vector) check_shape(tensor, {rows_, cols_});
  Weight weight = codes_over(tensor, codes);
  if (tensor.dtype == Dtype::kF8E4M3Fnuz || tensor.dtype == Dtype::kF8E5M2Fnuz)
    weight.repack = widen_fnuz(weight, tensor.dtype);
  return weight;
}

Weight Module::take_transposed_codes(std::string_view suffix, Codes codes) {
  const TensorView& tensor = take(suffix);
  if (code_bytes(codes) != 1)
    fail_tensor(tensor, fmt::format("transposed {} codes are not supported", dtype_name(tensor.dtype)));
  check_shape(tensor, {cols_, rows_});
  Weight weight = codes_over(tensor, codes);
  weight.repack = make_transposing_repack(weight.data.data(), rows_);
  return weight;
}

Weight Module::take_byte_codes(std::string_view suffix) {
  if (!has(suffix)) take(suffix);  // says that it is missing
  const TensorView& tensor = *peek(suffix);
  const auto codes = byte_codes(tensor);
  if (!codes)
    fail_tensor(tensor,
                fmt::format("wrong type (expected I8, F8_E4M3 or F8_E5M2, found {})", dtype_name(tensor.dtype)));
  return take_codes(suffix, *codes);
}

ScaleGrid Module::take_grid(std::string_view suffix, GridKind kind) {
  if (!has(suffix)) take(suffix);  // says that it is missing
  const TensorView& tensor = *peek(suffix);
  // (rows, columns) of the grid; a vector counts rows.
  const auto& shape = tensor.shape;
  int64_t r = 1, c = 1;
  if (shape.size() == 1) {
    r = shape[0];
  } else if (shape.size() == 2) {
    r = shape[0];
    c = shape[1];
  } else if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) {  // ModelOpt's blocks
    r = shape[0];
    c = shape[2];
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
  if (candidates.empty() && part_.count > 0 && r == 1 && c == cols_) add(rows_, 1);  // of a stack that is transposed
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
    if (shape.size() < 4 && r == rows_ && cols_ % c == 0 && c < cols_) add(1, cols_ / c);
    if (candidates.empty()) add(128, 128);
    if (candidates.empty() && rows_ % r == 0 && cols_ % c == 0 && c < cols_) add(rows_ / r, cols_ / c);
  }
  if (candidates.empty()) {
    std::string declared;
    for (const auto& [group_rows, group_cols] : config_.groups)
      declared += fmt::format(" {}x{}", group_rows, group_cols);
    fail_tensor(tensor, fmt::format("its shape {} is not a grid of blocks over [{}, {}]{}", tensor.shape_text(), rows_,
                                    cols_, declared.empty() ? "" : fmt::format(" (declared:{})", declared)));
  }
  return take_grid(suffix, candidates[0].first, candidates[0].second, kind);
}

ScaleGrid Module::take_grid(std::string_view suffix, int64_t group_rows, int64_t group_cols, GridKind kind) {
  const TensorView& tensor = take(suffix);
  const ScaleGrid shape = make_grid(rows_, cols_, group_rows, group_cols);
  if (tensor.elements() != shape.rows * shape.cols) {
    fail_tensor(tensor, fmt::format("wrong shape (expected {}x{} groups, found {})", shape.rows, shape.cols,
                                    tensor.shape_text()));
  }
  return grid_over(tensor, shape, kind == GridKind::kZeroPoints);
}

ScaleGrid grid_over(const TensorView& tensor, ScaleGrid shape, bool zero_points) {
  shape.type = scale_type(tensor, zero_points);
  shape.data = tensor.bytes.data();
  shape.col_pitch = scale_bytes(shape.type);
  shape.row_pitch = shape.cols * shape.col_pitch;
  shape.tensor = fmt::format("{}: tensor {}", tensor.file, tensor.name);
  return shape;
}

std::optional<Codes> byte_codes(const TensorView& tensor) {
  if (tensor.dtype == Dtype::kI8) return Codes::kI8;
  if (tensor.dtype == Dtype::kF8E4M3) return Codes::kE4M3;
  if (tensor.dtype == Dtype::kF8E5M2) return Codes::kE5M2;
  if (tensor.dtype == Dtype::kF8E4M3Fnuz || tensor.dtype == Dtype::kF8E5M2Fnuz) return Codes::kBf16;
  return {};
}

void change_at_load(Weight& weight, std::function<void(Weight&)> change) {
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [before = weight.repack, change = std::move(change)](Weight& w) {
    if (before != nullptr) before->prepare(w);
    change(w);
  };
  if (weight.repack != nullptr) repack->rows = weight.repack->rows;
  weight.repack = std::move(repack);
}

void drop_zeros_at_load(Weight& weight) {
  change_at_load(weight, [](Weight& w) {
    if (all_zero(w.zero_point)) w.zero_point = {};
  });
}

Binder::Binder(const Checkpoint& checkpoint, bool trust_tensors)
    : checkpoint_(checkpoint), config_(QuantConfig::read(checkpoint.config(), checkpoint.files(), trust_tensors)) {
  if (config_.method != "compressed-tensors") return;
  // Its writer leaves out zero points of a module that are all zero, and orders that were never set
  // (BaseQuantizationCompressor): where others are there, those that are not say that.
  const auto any = [&](std::string_view end) {
    return std::ranges::any_of(checkpoint.tensors(),
                               [&](const TensorView& tensor) { return tensor.name.ends_with(end); });
  };
  config_.zero_points = config_.zero_points && !any(".weight_zero_point");
  config_.activation_order = config_.activation_order && !any(".weight_g_idx");
}

bool Binder::has_matrix(const std::string& module_name) const {
  if (has_tensor(inner_module(checkpoint_, module_name) + ".weight")) return true;
  const Module module(checkpoint_, config_, module_name, 0, 0);
  return std::any_of(formats().begin(), formats().end(),
                     [&](const Format& format) { return format.detect != nullptr && format.detect(module); });
}

std::optional<Vector> Binder::bias(const std::string& module_name, int64_t rows, int64_t cols) {
  Module module(checkpoint_, config_, inner_module(checkpoint_, module_name), rows, cols);
  for (const Format& format : formats()) {
    if (format.bias == nullptr || !format.detect(module)) continue;
    auto bias = format.bias(module);
    if (!bias) continue;
    note(module);
    return bias;
  }
  const std::string tensor = module.name() + ".bias";
  if (!has_tensor(tensor)) return {};
  return vector(tensor, rows);
}

std::optional<Vector> Binder::input_scale(const std::string& module, int64_t cols) {
  for (const std::string_view suffix : {"div.mul_scale", "pre_quant_scale", "_weight_act_pre_scale"}) {
    const std::string tensor = fmt::format("{}.{}", module, suffix);
    if (has_tensor(tensor)) return vector(tensor, cols);
  }
  return {};
}

void Binder::note(const Module& module) {
  consumed_.insert(module.taken().begin(), module.taken().end());
  ignored_.insert(ignored_.end(), module.ignored().begin(), module.ignored().end());
}

bool Binder::has_stack(const std::string& module) const {
  return has_matrix(module) || has_tensor(module) || has_tensor(module + "_blocks") || has_tensor(module + "_scales");
}

bool Binder::has_stack_of(const std::string& module, const std::vector<int64_t>& shape) const {
  const TensorView* tensor = checkpoint_.find(fmt::format("{}.{}", module, kWeight));
  if (tensor == nullptr) tensor = checkpoint_.find(module);
  return tensor != nullptr && tensor->shape == shape;
}

Weight Binder::matrix(const std::string& name, int64_t rows, int64_t cols) {
  Module module(checkpoint_, config_, inner_module(checkpoint_, name), rows, cols);
  Weight weight = bind(module, name);
  weight.name = name;
  return weight;
}

std::vector<Weight> Binder::stack(const std::string& name, int64_t count, int64_t rows, int64_t cols) {
  std::vector<Weight> out;
  for (int64_t i = 0; i < count; ++i) {
    Module module(checkpoint_, config_, name, rows, cols, {i, count});
    out.push_back(bind(module, fmt::format("{}[{}]", name, i)));
    out.back().name = bindings_.back().module;
  }
  return out;
}

Weight Binder::bind(Module& module, const std::string& name) {
  for (const Format& format : formats()) {
    if (format.detect == nullptr || !format.detect(module)) continue;
    config_.check_kind(module.name());
    Weight weight = format.bind(module);
    note(module);
    std::vector<std::string> tensors = module.taken();
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    Binding& binding = bindings_.emplace_back(Binding{name, format.name, {}, std::move(tensors)});
    if (format.kind != nullptr) binding.kind = format.kind(module);
    const bool shared = format.bind == kFp8Format.bind || format.bind == kScaledFormat.bind;  // by many methods
    if (const DeclaredMethod* declared = find_declared_method(config_.method); shared && declared && declared->common)
      binding.format = declared->name;
    return weight;
  }
  for (const UnsupportedLayout& row : unsupported_layouts()) {
    if (const TensorView* tensor = module.peek(row.suffix)) {
      fail_tensor(*tensor, fmt::format("the {} layout is not supported", row.name), std::string(kOtherCheckpoint));
    }
  }
  const TensorView& weight = module.take("weight");
  if (byte_codes(weight)) {
    fail_tensor(weight,
                fmt::format("{} codes without their scale (expected {} or {})", dtype_name(weight.dtype),
                            module.tensor_name("weight_scale"), module.tensor_name("weight_scale_inv")),
                "without it the model would write garbage; is a shard missing?");
  }
  fail_tensor(weight, fmt::format("weights of type {} are not supported", dtype_name(weight.dtype)));
}

Vector Binder::vector(const std::string& name, int64_t n, int64_t cols) {
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor == nullptr)
    fail(ErrorKind::kModel, fmt::format("{}: tensor {} is missing", checkpoint_.location().name, name));
  consumed_.insert(name);
  std::vector<int64_t> shape = tensor->shape;
  if (cols > 1) std::erase(shape, 1);
  if (shape.empty()) shape = {1};
  const bool of_heads = shape.size() == 2 && shape[0] > 0 && n % shape[0] == 0 && shape[1] == n / shape[0];
  if (shape != std::vector<int64_t>{n} && (!of_heads || (cols > 1 && shape[1] != cols))) {
    fail_tensor(*tensor, fmt::format("wrong shape (expected [{}], found {})",
                                     cols > 1 ? fmt::format("{}, {}", n / cols, cols) : fmt::format("{}", n),
                                     tensor->shape_text()));
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

std::vector<Binder::Ignored> Binder::finish(std::span<const std::string> prefixes, std::span<const UnusedPart> unused,
                                            std::string_view family) const {
  std::vector<Ignored> ignored = ignored_;
  const auto under = [](std::span<const std::string> list, const std::string& name) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (consumed_.contains(tensor.name)) continue;
    const auto row = std::find_if(std::begin(kIgnorable), std::end(kIgnorable),
                                  [&](const Ignorable& candidate) { return tensor.name.ends_with(candidate.suffix); });
    if (row != std::end(kIgnorable)) {
      ignored.push_back({tensor.name, row->reason});
      continue;
    }
    const auto part = std::find_if(unused.begin(), unused.end(),
                                   [&](const UnusedPart& candidate) { return candidate.is_in(tensor.name); });
    if (part != unused.end()) {
      ignored.push_back({tensor.name, part->reason});
      continue;
    }
    // Other parts of a checkpoint (vision, layers that draft) may be quantized as they like.
    if (!under(prefixes, tensor.name)) {
      ignored.push_back({tensor.name, "not part of the language model"});
      continue;
    }
    for (const UnsupportedLayout& layout : unsupported_layouts()) {
      if (tensor.name.ends_with(fmt::format(".{}", layout.suffix)))
        fail_tensor(tensor, fmt::format("the {} layout is not supported", layout.name), std::string(kOtherCheckpoint));
    }
    if (looks_like_quantization(tensor.name)) {
      fail_tensor(tensor, "a quantization parameter that nothing here understands",
                  "to read the weights without it would give wrong text");
    }
    fail_tensor(tensor, fmt::format("not part of a {} model as its configuration describes it", family));
  }
  return ignored;
}

}  // namespace qgen
