#include "cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "base/numbers.h"

namespace qgen::cpu {
namespace {

// Whether the vectorized integer and bf16 kernels can follow a weight's tiles.
bool fast_kernels_fit(const Weight& weight) {
  if (weight.scale.empty()) return true;
  if (weight.codes != Codes::kI8 && !weight.offset.empty()) return false;
  if (weight.codes == Codes::kBf16) return false;  // they know bf16 weights without scales only
  const Grid& grid = weight.scale;
  const bool aligned = grid.tile_cols == 1 || grid.group_cols % 4 == 0;
  return aligned && std::min(grid.group_cols, weight.cols) <= kMaxIntegerRun;
}

}  // namespace

LinearKernel::LinearKernel(const Linear& linear, const Body& body) {
  const Weight& weight = *linear.weight;
  Codes codes = weight.codes;
  matrix_.codes = reinterpret_cast<const uint8_t*>(weight.data.data());
  matrix_.rows = weight.rows;
  matrix_.cols = weight.cols;
  bool fast = fast_kernels_fit(weight);
  if (codes == Codes::kE4M3 && weight.nan_codes > 0) {
    // Decoders by bit shifts would read the NaN codes as 480; bf16 says NaN.
    widened_.resize(weight.data.size() * 2);
    for (size_t i = 0; i < weight.data.size(); ++i) {
      const uint16_t bits = float_to_bf16(e4m3_to_float(static_cast<uint8_t>(weight.data[i])));
      std::memcpy(widened_.data() + 2 * i, &bits, sizeof bits);
    }
    matrix_.codes = reinterpret_cast<const uint8_t*>(widened_.data());
    codes = Codes::kBf16;
    fast = false;
  }
  matrix_.row_bytes = weight.cols * code_bytes(codes);
  matrix_.decode_scale = codes == Codes::kE4M3 ? 256.0f : 1.0f;
  if (!weight.scale.empty()) {
    matrix_.scales = weight.scale.values.data();
    matrix_.group_rows = weight.scale.group_rows;
    matrix_.group_cols = weight.scale.group_cols;
    matrix_.tile_cols = weight.scale.tile_cols;
  } else {
    matrix_.group_rows = weight.rows;
    matrix_.group_cols = weight.cols;
    matrix_.tile_cols = 1;
  }
  if (!weight.offset.empty()) matrix_.offsets = weight.offset.values.data();
  kernels_ = &(fast ? body.kernels : body.fallback)[static_cast<size_t>(codes)];
  column_order_ = weight.column_order;
  if (linear.bias != nullptr) bias_ = linear.bias->data();
}

void LinearKernel::multiply(const Input& x, int64_t row_begin, int64_t row_end, float* y, int64_t y_stride,
                            void* scratch) const {
  kernels_->at(x.tokens).multiply(matrix_, x, row_begin, row_end, y + row_begin, y_stride, scratch);
  if (bias_ == nullptr) return;
  for (int64_t t = 0; t < x.tokens; ++t) {
    for (int64_t n = row_begin; n < row_end; ++n) y[t * y_stride + n] += bias_[n];
  }
}

bool StepInput::Slot::fits(const LinearKernel& other) const {
  const Matrix& matrix = other.matrix();
  return kernels == &other.kernels() && group_cols == matrix.group_cols && tiles == matrix.tile_cols &&
         offsets == (matrix.offsets != nullptr) && !ordered && other.column_order().empty();
}

std::vector<StepInput::Slot> StepInput::make_slots(Layers layers, std::vector<size_t>& slot_of_layer) {
  std::vector<Slot> slots;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Matrix& matrix = layers[i].matrix();
    const auto found = std::find_if(slots.begin(), slots.end(), [&](const Slot& slot) { return slot.fits(layers[i]); });
    slot_of_layer.push_back(size_t(found - slots.begin()));
    if (found != slots.end()) continue;
    Slot slot{};
    slot.kernels = &layers[i].kernels();
    slot.group_cols = matrix.group_cols;
    slot.tiles = matrix.tile_cols;
    slot.offsets = matrix.offsets != nullptr;
    slot.ordered = !layers[i].column_order().empty();
    slot.layer = i;
    slots.push_back(slot);
  }
  return slots;
}

StepInput::StepInput(Layers layers, int64_t max_tokens)
    : max_tokens_(max_tokens),
      cols_(layers.front().cols()),
      stride_(padded_cols(cols_)),
      slots_(make_slots(layers, slot_of_layer_)) {}

bool StepInput::serves(Layers layers) const {
  std::vector<size_t> slot_of_layer;
  const std::vector<Slot> slots = make_slots(layers, slot_of_layer);
  if (layers.front().cols() != cols_ || slot_of_layer != slot_of_layer_) return false;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& a = slots[i];
    const Slot& b = slots_[i];
    if (a.kernels != b.kernels || a.group_cols != b.group_cols || a.tiles != b.tiles || a.offsets != b.offsets ||
        a.ordered != b.ordered) {
      return false;
    }
  }
  return true;
}

void StepInput::lay_out(Arena& arena) {
  values_ = arena.take<float>(max_tokens_ * stride_);
  for (Slot& slot : slots_) {
    if (slot.ordered) slot.in_order = arena.take<float>(max_tokens_ * stride_);
    const auto wants = [&](Form form) {
      return slot.kernels->one.form == form || slot.kernels->few.form == form || slot.kernels->many.form == form;
    };
    if (wants(Form::kPlanes)) {
      slot.high = arena.take<int8_t>(max_tokens_ * stride_);
      slot.low = arena.take<int8_t>(max_tokens_ * stride_);
      slot.plane_scale = arena.take<float>(max_tokens_);
      slot.high_sums = arena.take<int32_t>(max_tokens_ * slot.tiles);
      slot.low_sums = arena.take<int32_t>(max_tokens_ * slot.tiles);
    }
    // Pairs are for one token.
    if (wants(Form::kBf16) || wants(Form::kBf16Pair))
      slot.bf16_high = arena.take<uint16_t>((wants(Form::kBf16) ? max_tokens_ : 1) * stride_);
    if (wants(Form::kBf16Pair)) slot.bf16_low = arena.take<uint16_t>(stride_);
    if (slot.offsets) slot.sums = arena.take<float>(max_tokens_ * slot.tiles);
  }
}

void StepInput::prepare(const Body& body, Layers layers, int64_t token, int64_t tokens) {
  float* values = row(token);
  std::fill(values + cols_, values + stride_, 0.0f);
  for (const Slot& slot : slots_) {
    const LinearKernel& layer = layers[slot.layer];
    const auto tile_sums = [&](const auto* x, auto* sums) {
      for (int64_t tile = 0; tile < slot.tiles; ++tile) {
        const int64_t end = std::min((tile + 1) * slot.group_cols, cols_);
        std::remove_pointer_t<decltype(sums)> sum = 0;
        for (int64_t k = tile * slot.group_cols; k < end; ++k) sum += x[k];
        sums[token * slot.tiles + tile] = sum;
      }
    };
    const float* x = values;
    if (slot.ordered) {
      float* in_order = slot.in_order + token * stride_;
      for (int64_t k = 0; k < cols_; ++k) in_order[k] = values[layer.column_order()[k]];
      std::fill(in_order + cols_, in_order + stride_, 0.0f);
      x = in_order;
    }
    switch (layer.form(tokens)) {
      case Form::kF32:
        if (slot.offsets) tile_sums(x, slot.sums);
        break;
      case Form::kPlanes:
        body.to_planes(x, cols_, stride_, slot.high + token * stride_, slot.low + token * stride_,
                       slot.plane_scale + token);
        tile_sums(slot.high + token * stride_, slot.high_sums);
        tile_sums(slot.low + token * stride_, slot.low_sums);
        break;
      case Form::kBf16: body.to_bf16(x, cols_, stride_, slot.bf16_high + token * stride_, nullptr); break;
      case Form::kBf16Pair: body.to_bf16(x, cols_, stride_, slot.bf16_high, slot.bf16_low); break;
    }
  }
}

Input StepInput::view(Layers layers, size_t index, int64_t tokens) const {
  const Slot& slot = slots_[slot_of_layer_[index]];
  Input x{};
  x.form = layers[index].form(tokens);
  x.tokens = tokens;
  x.cols = cols_;
  x.stride = stride_;
  x.f32 = slot.ordered ? slot.in_order : values_;
  x.high = slot.high;
  x.low = slot.low;
  x.plane_scale = slot.plane_scale;
  x.bf16_high = slot.bf16_high;
  x.bf16_low = slot.bf16_low;
  x.high_sums = slot.high_sums;
  x.low_sums = slot.low_sums;
  x.sums = slot.sums;
  return x;
}

}  // namespace qgen::cpu
