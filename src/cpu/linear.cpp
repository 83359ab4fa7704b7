#include "cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "base/numbers.h"

namespace qgen::cpu {
namespace {

// Whether the vectorized integer and bf16 kernels can follow a weight's scale groups.
bool fast_kernels_fit(const Weight& weight) {
  if (weight.scale.empty()) return true;
  if (weight.codes != Codes::kI8 && weight.has_offsets()) return false;
  if (weight.codes == Codes::kBf16) return false;  // they know bf16 weights without scales only
  const ScaleGrid& grid = weight.scale;
  const bool aligned = grid.cols == 1 || grid.group_cols % 4 == 0;
  return aligned && std::min(grid.group_cols, weight.cols) <= kMaxIntegerRun;
}

bool is_float(ScaleType type) { return type == ScaleType::kF32 || type == ScaleType::kF16 || type == ScaleType::kBf16; }

// Grids of few values are copied as floats: kernels then read them without a conversion. Those of groups along the rows
// or down the columns stay as they are, since their bytes count; the latter as floats side by side.
bool is_copied(const ScaleGrid& grid) {
  if (grid.empty()) return false;
  if (grid.row_period > 0)
    return !(is_float(grid.type) && grid.col_pitch == scale_bytes(grid.type) && grid.factor == 1);
  return grid.group_rows > 1 || grid.cols == 1;
}

// Grids whose rows are columns of a tensor are copied as they are, so that a row's values lie side by side.
bool is_transposed(const ScaleGrid& grid) {
  return !grid.empty() && !is_copied(grid) && !grid.two_levels() && grid.col_pitch != scale_bytes(grid.type) &&
         grid.row_pitch == scale_bytes(grid.type);
}
size_t transposed_bytes(const Weight& weight) {
  size_t bytes = 0;
  for (const ScaleGrid* grid : {&weight.scale, &weight.zero_point, &weight.minimum})
    bytes += is_transposed(*grid) ? size_t(weight.rows * grid->cols * scale_bytes(grid->type)) : 0;
  return bytes;
}

// Whether IsaTarget::int8_groups takes them.
bool has_short_groups(const Weight& weight) {
  if (weight.scale.empty() || weight.scale.cols == 1) return false;
  if (weight.in_blocks()) return weight.scale.group_cols == kInt16Group;
  const int64_t cols = weight.scale.group_cols;
  return cols == 16 || cols == 32 || cols == 64 || cols == 128;
}

size_t copied_values(const Weight& weight) {
  size_t count = 0;
  for (const ScaleGrid* grid : {&weight.scale, &weight.zero_point, &weight.minimum})
    count += is_copied(*grid) ? size_t(grid->rows * grid->cols) : 0;
  return count;
}

// The 16-bit integers that two digits are.
struct HiLo {
  const int8_t* high;
  const int8_t* low;
  int operator[](int64_t k) const { return 256 * high[k] + low[k]; }
};

}  // namespace

bool has_exponent_scales(const Weight& weight) {
  const ScaleGrid& grid = weight.scale;
  if (weight.codes != Codes::kE4M3 || grid.empty() || grid.type != ScaleType::kE8M0 || grid.two_levels() ||
      grid.factor != 1)
    return false;
  constexpr uint8_t kLeast = 127 - 117, kMost = 127 + 119;  // codes have exponents of -9 to 8
  for (int64_t n = 0; n < weight.rows; ++n) {
    const std::byte* const row = grid.data + grid.row_of(n) * grid.row_pitch;
    for (int64_t g = 0; g < grid.cols; ++g) {
      // Eight that are 64 to 191, as nearly all are: their upper two bits differ.
      constexpr uint64_t kUpper = 0x8080808080808080;
      uint64_t eight = 0;
      if (grid.col_pitch == 1 && g + 8 <= grid.cols) std::memcpy(&eight, row + g, sizeof eight);
      if (((eight ^ eight << 1) & kUpper) == kUpper) {
        g += 7;
        continue;
      }
      const uint8_t power = uint8_t(row[g * grid.col_pitch]);
      if (power >= kLeast && power <= kMost) continue;
      const int64_t begin = g * grid.group_cols, end = std::min(begin + grid.group_cols, weight.cols);
      const auto codes = weight.data.subspan(size_t(n * weight.row_bytes + begin), size_t(end - begin));
      const bool zero =
          std::ranges::all_of(codes, [](std::byte code) { return (code & std::byte{0x7F}) == std::byte{0}; });
      if (power > kMost || !zero) return false;
    }
  }
  return true;
}

LinearKernel::LinearKernel(const Weight& weight, const IsaTarget& target, Activations activations) {
  Codes codes = weight.codes;
  matrix_.codes = reinterpret_cast<const uint8_t*>(weight.data.data()) + weight.block_offset;
  matrix_.rows = weight.rows;
  matrix_.cols = weight.cols;
  matrix_.row_bytes = weight.row_bytes;
  bool fast = fast_kernels_fit(weight);
  if (codes == Codes::kE4M3 && weight.nan_codes > 0) {
    // Decoders by bit shifts would read the NaN codes as 480; bf16 has a NaN.
    widened_.resize(weight.data.size() * 2);
    for (size_t i = 0; i < weight.data.size(); ++i) {
      const uint16_t bits = float_to_bf16(e4m3_to_float(static_cast<uint8_t>(weight.data[i])));
      std::memcpy(widened_.data() + 2 * i, &bits, sizeof bits);
    }
    matrix_.codes = reinterpret_cast<const uint8_t*>(widened_.data());
    codes = Codes::kBf16;
    matrix_.row_bytes = weight.cols * code_bytes(codes);
    fast = false;
  }
  matrix_.decode_scale = codes == Codes::kE4M3 ? 256.0f : 1.0f;
  matrix_.in_blocks = weight.in_blocks();
  matrix_.group_rows = weight.scale.empty() ? weight.rows : weight.scale.group_rows;
  matrix_.group_cols = weight.scale.empty() ? weight.cols : weight.scale.group_cols;
  matrix_.grid_cols = weight.scale.empty() ? 1 : weight.scale.cols;
  matrix_.row_origin = weight.scale.empty() ? 0 : weight.scale.row_origin;
  matrix_.row_period = weight.scale.row_period;
  matrix_.group_bytes = weight.in_blocks() ? weight.block_bytes : matrix_.group_cols * code_bytes(codes);
  copied_bytes_ = copied_values(weight) * sizeof(float) + transposed_bytes(weight) + widened_.size();
  matrix_.code_shift = float(weight.code_shift);
  matrix_.has_offsets = weight.has_offsets();
  fast = fast && activations != Activations::kF32;
  kernels_ = (fast ? target.kernels : target.fallback)[static_cast<size_t>(codes)];
  if (fast && codes == Codes::kI8 && has_short_groups(weight) && target.int8_groups.multiply != nullptr)
    kernels_.gemv = target.int8_groups;
  // One token is bound by memory: there 8 bits would cost precision and gain nothing. Scales of rows multiply sums in
  // the end, to which no minimum can be added.
  if (fast && activations == Activations::k8Bit && codes == Codes::kI8 && target.int8_inputs.multiply != nullptr &&
      (matrix_.grid_cols == 1 ? weight.minimum.empty() : matrix_.group_cols % kInt8Group == 0)) {
    constexpr int64_t kRowTokens = 6;  // more are faster in panels of int8 than in rows of int16
    kernels_.row_tokens = std::min(kernels_.row_tokens, kRowTokens);
    kernels_.gemm_small = kernels_.gemm = target.int8_inputs;
    kernels_.generate = {};
  }
  column_order_ = weight.column_order;
  ordered_ = weight.ordered;
  if (matrix_.row_period > 0) {  // their kernels take care of offsets, and of inputs as they are
    kernels_ = target.column_groups;
    matrix_.grid_cols = 1;
    matrix_.has_offsets = false;
  }
}

void LinearKernel::load(const Weight& weight) {
  matrix_.exponent_scales = kernels_.generated().form == Form::kBf16Pair && has_exponent_scales(weight);
  grid_values_.reserve(copied_values(weight));  // grids point into these
  transposed_values_.reserve(transposed_bytes(weight));
  matrix_.scales = grid_of(weight.scale);
  matrix_.zero_points = grid_of(weight.zero_point);
  matrix_.minimums = grid_of(weight.minimum);
}

Grid LinearKernel::grid_of(const ScaleGrid& grid) {
  if (grid.empty()) return {};
  Grid out{};
  if (is_transposed(grid)) {
    const int64_t bytes = scale_bytes(grid.type), pitch = grid.cols * bytes, first = grid.row_origin;
    const size_t begin = transposed_values_.size();
    transposed_values_.resize(begin + size_t(matrix_.rows * pitch));
    std::byte* const values = transposed_values_.data() + begin;
    // In squares, which the first cache holds.
    constexpr int64_t kSide = 64;
    for (int64_t top = 0; top < matrix_.rows; top += kSide) {
      const int64_t bottom = std::min(top + kSide, matrix_.rows);
      for (int64_t c = 0; c < grid.cols; ++c) {
        const std::byte* const from = grid.data + first * grid.row_pitch + c * grid.col_pitch;
        for (int64_t r = top; r < bottom; ++r)
          std::memcpy(values + r * pitch + c * bytes, from + r * grid.row_pitch, size_t(bytes));
      }
    }
    out.data = reinterpret_cast<const uint8_t*>(values) - first * pitch;  // kernels count rows from the tensor's first
    out.row_pitch = pitch;
    out.col_pitch = bytes;
    out.type = static_cast<GridType>(grid.type);
    out.factor = float(grid.factor);
    return out;
  }
  if (!is_copied(grid)) {
    out.data = reinterpret_cast<const uint8_t*>(grid.data);
    out.row_pitch = grid.row_pitch;
    out.col_pitch = grid.col_pitch;
    out.type = static_cast<GridType>(grid.type);
    out.factor = float(grid.factor);
    if (!grid.two_levels()) return out;
    out.super = reinterpret_cast<const uint8_t*>(grid.super.data);
    out.super_row_pitch = grid.super.row_pitch;
    out.super_type = static_cast<GridType>(grid.super.type);
    out.super_shift = uint8_t(grid.super.shift);
    return out;
  }
  const size_t first = grid_values_.size();
  for (int64_t r = 0; r < grid.rows; ++r) {
    for (int64_t c = 0; c < grid.cols; ++c) grid_values_.push_back(grid.value(r, c));
  }
  out.data = reinterpret_cast<const uint8_t*>(grid_values_.data() + first);
  out.row_pitch = grid.cols * int64_t(sizeof(float));
  out.col_pitch = sizeof(float);
  out.type = GridType::kF32;
  out.factor = 1;
  return out;
}

bool InputForms::Slot::agrees(const Slot& other) const {
  return kernels == other.kernels && group_cols == other.group_cols && grid_cols == other.grid_cols &&
         offsets == other.offsets && !ordered && !other.ordered;
}

bool InputForms::Slot::wants(Form form) const {
  return kernels.gemv.form == form || kernels.gemm_small.form == form || kernels.gemm.form == form ||
         kernels.generated().form == form || (kernels.gemm_rows.multiply != nullptr && kernels.gemm_rows.form == form);
}

InputForms::InputForms(std::span<const LinearKernel* const> layers, int64_t tokens, int workers, Order order)
    : rows_(std::max<int64_t>(tokens, workers)),
      workers_(workers),
      cols_(layers.front()->cols()),
      stride_(padded_cols(cols_)),
      layers_(layers.begin(), layers.end()) {
  for (const LinearKernel* layer : layers_) {
    const Matrix& matrix = layer->matrix();
    const bool ordered = order == Order::kLayers && layer->ordered();
    const Slot slot{layer, layer->kernels(), matrix.group_cols, matrix.grid_cols, layer->has_offsets(), ordered};
    const auto found =
        std::find_if(slots_.begin(), slots_.end(), [&](const Slot& other) { return other.agrees(slot); });
    slot_of_layer_.push_back(size_t(found - slots_.begin()));
    if (found == slots_.end()) slots_.push_back(slot);
  }
}

void InputForms::lay_out(Arena& arena) {
  values_ = arena.take<float>(rows_ * stride_);
  const int64_t groups = stride_ / kInt8Group;
  for (Slot& slot : slots_) {
    const bool hi_lo = slot.wants(Form::kInt8HiLo), int16 = slot.wants(Form::kInt16), int8 = slot.wants(Form::kInt8);
    const bool pairs = slot.wants(Form::kBf16Pair);
    if (slot.ordered) slot.in_order = arena.take<float>(rows_ * stride_);
    if (int16) slot.int16s = arena.take<int16_t>(rows_ * stride_);
    if (int16 || hi_lo) slot.int16_scale = arena.take<float>(rows_);
    if (hi_lo || int8) slot.high = arena.take<int8_t>(rows_ * stride_);
    if (hi_lo) {
      slot.low = arena.take<int8_t>(rows_ * stride_);
      slot.high_sums = arena.take<int32_t>(workers_ * slot.grid_cols);
      slot.low_sums = arena.take<int32_t>(workers_ * slot.grid_cols);
    }
    if (int8) slot.int8_scales = arena.take<float>(rows_ * groups);
    if (int16 || hi_lo || int8)
      slot.starts =
          arena.take<int32_t>(std::max(hi_lo ? workers_ * slot.grid_cols : 0, int16 || int8 ? rows_ * groups : 0));
    if (pairs || slot.wants(Form::kBf16)) slot.bf16_high = arena.take<uint16_t>(rows_ * stride_);
    if (pairs) slot.bf16_low = arena.take<uint16_t>(rows_ * stride_);
    if (slot.offsets) slot.sums = arena.take<float>(rows_ * slot.grid_cols);
  }
}

void InputForms::prepare(const IsaTarget& target, const float* x, int64_t index, int64_t tokens, const Choice& choice) {
  if (x == row(index)) std::fill(row(index) + cols_, row(index) + stride_, 0.0f);
  for (const Slot& slot : slots_) prepare_slot(slot, target, x, index, tokens, choice);
}

// Sums of x over the scale groups: of integers exact.
template <typename Value>
void InputForms::sum_groups(const Slot& slot, const Value& x, float* sums) const {
  for (int64_t g = 0; g < slot.grid_cols; ++g) {
    const int64_t end = std::min((g + 1) * slot.group_cols, cols_);
    decltype(x[0] + int64_t{0}) sum = 0;
    for (int64_t k = g * slot.group_cols; k < end; ++k) sum += x[k];
    sums[g] = static_cast<float>(sum);
  }
}

void InputForms::prepare_slot(const Slot& slot, const IsaTarget& target, const float* x, int64_t index, int64_t tokens,
                              const Choice& choice) const {
  const int64_t at = index * stride_, first_group = index * slot.grid_cols, first_int8 = index * (stride_ / kInt8Group);
  if (slot.ordered) {
    float* in_order = slot.in_order + at;
    for (int64_t k = 0; k < cols_; ++k) in_order[k] = x[slot.layer->column_order()[size_t(k)]];
    std::fill(in_order + cols_, in_order + stride_, 0.0f);
    x = in_order;
  }
  float* const sums = slot.offsets ? slot.sums + first_group : nullptr;
  switch (slot.layer->kernel(tokens, choice).form) {
    case Form::kF32:
      if (sums != nullptr) sum_groups(slot, x, sums);
      break;
    case Form::kInt16:
      target.to_int16(x, stride_, slot.int16s + at, slot.int16_scale + index,
                      tokens > 1 || choice.kernels != Kernels::kByCount ? slot.starts + first_int8 : nullptr);
      if (sums != nullptr) sum_groups(slot, slot.int16s + at, sums);
      break;
    case Form::kInt8HiLo: {
      int8_t *const high = slot.high + at, *const low = slot.low + at;
      target.to_int8_hi_lo(x, stride_, high, low, slot.int16_scale + index);
      if (tokens > 1 || choice.kernels != Kernels::kByCount) {
        if (sums != nullptr) sum_groups(slot, HiLo{high, low}, sums);
        break;
      }
      for (int64_t g = 0; g < slot.grid_cols; ++g) {
        int32_t high_sum = 0, low_sum = 0;
        for (int64_t k = g * slot.group_cols; k < std::min((g + 1) * slot.group_cols, cols_); ++k) {
          high_sum += high[k];
          low_sum += low[k];
        }
        slot.high_sums[first_group + g] = high_sum;
        slot.low_sums[first_group + g] = low_sum;
        if (slot.group_cols <= kShortGroup) slot.starts[first_group + g] = -128 * (256 * high_sum + low_sum);
      }
      break;
    }
    case Form::kInt8:
      target.to_int8(x, stride_, slot.high + at, slot.int8_scales + first_int8, slot.starts + first_int8);
      break;
    case Form::kBf16: target.to_bf16(x, stride_, slot.bf16_high + at, nullptr); break;
    case Form::kBf16Pair: target.to_bf16(x, stride_, slot.bf16_high + at, slot.bf16_low + at); break;
  }
}

Input InputForms::view(size_t layer, const float* x, int64_t tokens, const Choice& choice, int64_t first) const {
  const Slot& slot = slots_[slot_of_layer_[layer]];
  const auto from_row = [&](auto* rows, int64_t stride) { return rows == nullptr ? nullptr : rows + first * stride; };
  Input out{};
  out.form = layers_[layer]->kernel(tokens, choice).form;
  out.tokens = tokens;
  out.cols = cols_;
  out.stride = stride_;
  out.f32 = slot.ordered ? slot.in_order + first * stride_ : x;
  out.high = from_row(slot.high, stride_);
  out.low = from_row(slot.low, stride_);
  out.int16s = from_row(slot.int16s, stride_);
  out.int16_scale = from_row(slot.int16_scale, 1);
  out.bf16_high = from_row(slot.bf16_high, stride_);
  out.bf16_low = from_row(slot.bf16_low, stride_);
  out.high_sums = from_row(slot.high_sums, slot.grid_cols);
  out.low_sums = from_row(slot.low_sums, slot.grid_cols);
  out.sums = from_row(slot.sums, slot.grid_cols);
  out.int8_scales = from_row(slot.int8_scales, stride_ / kInt8Group);
  out.starts = from_row(slot.starts, out.form == Form::kInt8HiLo ? slot.grid_cols : stride_ / kInt8Group);
  return out;
}

}  // namespace qgen::cpu
