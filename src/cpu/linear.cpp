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
    if (kernels_.few.form == Form::kWords) kernels_.rows = kernels_.few;
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

StepInput::StepInput(Layers layers, int64_t max_tokens, int workers)
    : max_tokens_(max_tokens),
      workers_(workers),
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
  const int64_t most = std::max(max_tokens_, workers_);
  values_ = arena.take<float>(most * stride_);  // zeros, and so they stay beyond the columns
  for (Slot& slot : slots_) {
    if (slot.ordered) slot.in_order = arena.take<float>(most * stride_);
    // Some kernels want a form of one token only.
    const auto rows_of = [&](Form form) { return slot.rows_of(form, max_tokens_, workers_); };
    const int64_t words = rows_of(Form::kWords), planes = rows_of(Form::kPlanes), bytes = rows_of(Form::kBytes);
    const int64_t bf16 = rows_of(Form::kBf16), pairs = rows_of(Form::kBf16Pair);
    if (words > 0) slot.words = arena.take<int16_t>(words * stride_);
    if (words + planes > 0) slot.word_scale = arena.take<float>(std::max(words, planes));
    if (planes + bytes > 0) slot.high = arena.take<int8_t>(std::max(planes, bytes) * stride_);
    if (planes > 0) {
      slot.low = arena.take<int8_t>(planes * stride_);
      slot.high_sums = arena.take<int32_t>(workers_ * slot.tiles);
      slot.low_sums = arena.take<int32_t>(workers_ * slot.tiles);
    }
    const int64_t groups = stride_ / kBytesGroup;
    if (bytes > 0) slot.byte_scales = arena.take<float>(bytes * groups);
    if (words + planes + bytes > 0) {
      const int64_t of_tiles = planes > 0 ? workers_ * slot.tiles : 0;
      slot.starts = arena.take<int32_t>(std::max(of_tiles, std::max(words, bytes) * groups));
    }
    if (bf16 + pairs > 0) slot.bf16_high = arena.take<uint16_t>(std::max(bf16, pairs) * stride_);
    if (pairs > 0) slot.bf16_low = arena.take<uint16_t>(pairs * stride_);
    if (slot.offsets) slot.sums = arena.take<float>(most * slot.tiles);
  }
}

void StepInput::prepare(const Body& body, Layers layers, int64_t row, int64_t tokens) {
  for (const Slot& slot : slots_) {
    const LinearKernel& layer = layers[slot.layer];
    const int64_t at = row * stride_, first_tile = row * slot.tiles, first_group = row * (stride_ / kBytesGroup);
    const auto tile_sums = [&](const auto& x, auto* sums) {
      for (int64_t tile = 0; tile < slot.tiles; ++tile) {
        const int64_t end = std::min((tile + 1) * slot.group_cols, cols_);
        decltype(x[0] + int64_t{0}) sum = 0;  // of integers exact
        for (int64_t k = tile * slot.group_cols; k < end; ++k) sum += x[k];
        sums[first_tile + tile] = static_cast<std::remove_pointer_t<decltype(sums)>>(sum);
      }
    };
    const float* x = values_ + at;
    if (slot.ordered) {
      float* in_order = slot.in_order + at;
      for (int64_t k = 0; k < cols_; ++k) in_order[k] = x[layer.column_order()[k]];
      x = in_order;
    }
    switch (layer.form(tokens)) {
      case Form::kF32:
        if (slot.offsets) tile_sums(x, slot.sums);
        break;
      case Form::kWords:
        body.to_words(x, stride_, slot.words + at, slot.word_scale + row,
                      tokens > 1 ? slot.starts + first_group : nullptr);
        if (slot.offsets) tile_sums(slot.words + at, slot.sums);
        break;
      case Form::kPlanes:
        body.to_planes(x, stride_, slot.high + at, slot.low + at, slot.word_scale + row);
        if (tokens > 1) {
          if (slot.offsets) tile_sums(Planes{slot.high + at, slot.low + at}, slot.sums);
          break;
        }
        tile_sums(slot.high + at, slot.high_sums);
        tile_sums(slot.low + at, slot.low_sums);
        if (slot.group_cols > kShortTile) break;
        for (int64_t i = first_tile; i < first_tile + slot.tiles; ++i)
          slot.starts[i] = -128 * (256 * slot.high_sums[i] + slot.low_sums[i]);
        break;
      case Form::kBytes:
        body.to_bytes(x, stride_, slot.high + at, slot.byte_scales + first_group, slot.starts + first_group);
        break;
      case Form::kBf16: body.to_bf16(x, stride_, slot.bf16_high + at, nullptr); break;
      case Form::kBf16Pair: body.to_bf16(x, stride_, slot.bf16_high + at, slot.bf16_low + at); break;
    }
  }
}

Input StepInput::view(Layers layers, size_t index, int64_t tokens, int64_t first) const {
  const Slot& slot = slots_[slot_of_layer_[index]];
  const auto from_row = [&](auto* rows, int64_t stride) { return rows == nullptr ? nullptr : rows + first * stride; };
  Input x{};
  x.form = layers[index].form(tokens);
  x.tokens = tokens;
  x.cols = cols_;
  x.stride = stride_;
  x.f32 = from_row(slot.ordered ? slot.in_order : values_, stride_);
  x.high = from_row(slot.high, stride_);
  x.low = from_row(slot.low, stride_);
  x.words = from_row(slot.words, stride_);
  x.word_scale = from_row(slot.word_scale, 1);
  x.bf16_high = from_row(slot.bf16_high, stride_);
  x.bf16_low = from_row(slot.bf16_low, stride_);
  x.high_sums = from_row(slot.high_sums, slot.tiles);
  x.low_sums = from_row(slot.low_sums, slot.tiles);
  x.sums = from_row(slot.sums, slot.tiles);
  x.byte_scales = from_row(slot.byte_scales, stride_ / kBytesGroup);
  x.starts = from_row(slot.starts, x.form == Form::kPlanes ? slot.tiles : stride_ / kBytesGroup);
  return x;
}

}  // namespace qgen::cpu
