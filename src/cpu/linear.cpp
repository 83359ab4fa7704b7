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

// The 16-bit integers that two planes are.
struct Planes {
  const int8_t* high;
  const int8_t* low;
  int operator[](int64_t k) const { return 256 * high[k] + low[k]; }
};

}  // namespace

LinearKernel::LinearKernel(const Linear& linear, const Body& body, Activations activations) {
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
  const bool blocks = weight.layout == Layout::kQ8_0Blocks;
  matrix_.row_bytes = blocks ? weight.row_bytes() : weight.cols * code_bytes(codes);
  if (weight.paired_heads > 0) matrix_.paired_head = weight.rows / weight.paired_heads;
  matrix_.decode_scale = codes == Codes::kE4M3 ? 256.0f : 1.0f;
  if (!weight.scale.empty()) {
    if (blocks) {
      matrix_.block_scales = true;
      matrix_.codes += kQ8_0BlockBytes - kQ8_0BlockElements;
    } else {
      matrix_.scales = weight.scale.values.data();
    }
    matrix_.group_rows = weight.scale.group_rows;
    matrix_.group_cols = weight.scale.group_cols;
    matrix_.tile_cols = weight.scale.tile_cols;
  } else {
    matrix_.group_rows = weight.rows;
    matrix_.group_cols = weight.cols;
    matrix_.tile_cols = 1;
  }
  matrix_.tile_bytes = blocks ? kQ8_0BlockBytes : matrix_.group_cols * code_bytes(codes);
  if (!weight.offset.empty()) matrix_.offsets = weight.offset.values.data();
  fast = fast && activations != Activations::kF32;
  kernels_ = (fast ? body.kernels : body.fallback)[static_cast<size_t>(codes)];
  if (fast && codes == Codes::kI8 && matrix_.group_cols == kWordGroup && matrix_.offsets == nullptr &&
      body.int8_groups.multiply != nullptr) {
    kernels_.one = body.int8_groups;
  }
  // One token is bound by memory: there 8 bits would cost precision and gain nothing.
  if (fast && activations == Activations::k8Bit && codes == Codes::kI8 && body.int8_bytes.multiply != nullptr &&
      (matrix_.tile_cols == 1 || matrix_.group_cols % kBytesGroup == 0)) {
    kernels_.few = kernels_.many = body.int8_bytes;
  }
  column_order_ = weight.column_order;
  if (linear.bias != nullptr) bias_ = linear.bias->data();
}

void LinearKernel::multiply(const Input& x, int64_t row_begin, int64_t row_end, float* y, int64_t y_stride,
                            void* scratch) const {
  kernels_.at(x.tokens).multiply(matrix_, x, row_begin, row_end, y + row_begin, y_stride, scratch);
  if (bias_ == nullptr) return;
  for (int64_t t = 0; t < x.tokens; ++t) {
    for (int64_t n = row_begin; n < row_end; ++n) y[t * y_stride + n] += bias_[n];
  }
}

bool StepInput::Slot::agrees(const Slot& other) const {
  return kernels == other.kernels && group_cols == other.group_cols && tiles == other.tiles &&
         offsets == other.offsets && ordered == other.ordered;
}

StepInput::Slot StepInput::make_slot(const LinearKernel& layer, size_t index) {
  const Matrix& matrix = layer.matrix();
  Slot slot{};
  slot.kernels = layer.kernels();
  slot.group_cols = matrix.group_cols;
  slot.tiles = matrix.tile_cols;
  slot.offsets = matrix.offsets != nullptr;
  slot.ordered = !layer.column_order().empty();
  slot.layer = index;
  return slot;
}

std::vector<StepInput::Slot> StepInput::make_slots(Layers layers, std::vector<size_t>& slot_of_layer) {
  std::vector<Slot> slots;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Slot slot = make_slot(layers[i], i);
    const auto found = std::find_if(slots.begin(), slots.end(),
                                    [&](const Slot& other) { return !slot.ordered && slot.agrees(other); });
    slot_of_layer.push_back(size_t(found - slots.begin()));
    if (found == slots.end()) slots.push_back(slot);
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
  return std::equal(slots.begin(), slots.end(), slots_.begin(), slots_.end(),
                    [](const Slot& a, const Slot& b) { return a.agrees(b); });
}

void StepInput::lay_out(Arena& arena) {
  values_ = arena.take<float>(max_tokens_ * stride_);
  for (Slot& slot : slots_) {
    if (slot.ordered) slot.in_order = arena.take<float>(max_tokens_ * stride_);
    // Some kernels want planes and pairs of one token only.
    const bool words = slot.wants(Form::kWords), planes = slot.wants(Form::kPlanes), bytes = slot.wants(Form::kBytes);
    const int64_t plane_tokens = slot.tokens_in(Form::kPlanes, max_tokens_);
    const int64_t pair_tokens = slot.tokens_in(Form::kBf16Pair, max_tokens_);
    if (words) slot.words = arena.take<int16_t>(slot.tokens_in(Form::kWords, max_tokens_) * stride_);
    if (words || planes) slot.word_scale = arena.take<float>(max_tokens_);
    if (planes || bytes) slot.high = arena.take<int8_t>((bytes ? max_tokens_ : plane_tokens) * stride_);
    if (planes) {
      slot.low = arena.take<int8_t>(plane_tokens * stride_);
      slot.high_sums = arena.take<int32_t>(slot.tiles);
      slot.low_sums = arena.take<int32_t>(slot.tiles);
    }
    const int64_t groups = stride_ / kBytesGroup;
    if (bytes) slot.byte_scales = arena.take<float>(max_tokens_ * groups);
    if (planes || bytes)
      slot.starts = arena.take<int32_t>(std::max(planes ? slot.tiles : 0, bytes ? max_tokens_ * groups : 0));
    if (slot.wants(Form::kBf16) || slot.wants(Form::kBf16Pair))
      slot.bf16_high = arena.take<uint16_t>((slot.wants(Form::kBf16) ? max_tokens_ : pair_tokens) * stride_);
    if (slot.wants(Form::kBf16Pair)) slot.bf16_low = arena.take<uint16_t>(pair_tokens * stride_);
    if (slot.offsets) slot.sums = arena.take<float>(max_tokens_ * slot.tiles);
  }
}

void StepInput::prepare(const Body& body, Layers layers, int64_t token, int64_t tokens) {
  float* values = row(token);
  std::fill(values + cols_, values + stride_, 0.0f);
  for (const Slot& slot : slots_) {
    const LinearKernel& layer = layers[slot.layer];
    const auto tile_sums = [&](const auto& x, auto* sums) {
      for (int64_t tile = 0; tile < slot.tiles; ++tile) {
        const int64_t end = std::min((tile + 1) * slot.group_cols, cols_);
        decltype(x[0] + int64_t{0}) sum = 0;  // of integers exact
        for (int64_t k = tile * slot.group_cols; k < end; ++k) sum += x[k];
        sums[token * slot.tiles + tile] = static_cast<std::remove_pointer_t<decltype(sums)>>(sum);
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
      case Form::kWords:
        body.to_words(x, stride_, slot.words + token * stride_, slot.word_scale + token);
        if (slot.offsets) tile_sums(slot.words + token * stride_, slot.sums);
        break;
      case Form::kPlanes:
        body.to_planes(x, stride_, slot.high + token * stride_, slot.low + token * stride_, slot.word_scale + token);
        if (tokens > 1) {
          if (slot.offsets) tile_sums(Planes{slot.high + token * stride_, slot.low + token * stride_}, slot.sums);
          break;
        }
        tile_sums(slot.high, slot.high_sums);
        tile_sums(slot.low, slot.low_sums);
        if (slot.group_cols > kShortTile) break;
        for (int64_t i = 0; i < slot.tiles; ++i) slot.starts[i] = -128 * (256 * slot.high_sums[i] + slot.low_sums[i]);
        break;
      case Form::kBytes:
        body.to_bytes(x, stride_, slot.high + token * stride_, slot.byte_scales + token * (stride_ / kBytesGroup),
                      slot.starts + token * (stride_ / kBytesGroup));
        break;
      case Form::kBf16: body.to_bf16(x, stride_, slot.bf16_high + token * stride_, nullptr); break;
      case Form::kBf16Pair:
        body.to_bf16(x, stride_, slot.bf16_high + token * stride_, slot.bf16_low + token * stride_);
        break;
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
  x.words = slot.words;
  x.word_scale = slot.word_scale;
  x.bf16_high = slot.bf16_high;
  x.bf16_low = slot.bf16_low;
  x.high_sums = slot.high_sums;
  x.low_sums = slot.low_sums;
  x.sums = slot.sums;
  x.byte_scales = slot.byte_scales;
  x.starts = slot.starts;
  return x;
}

}  // namespace qgen::cpu
