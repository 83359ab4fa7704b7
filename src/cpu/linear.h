// Linear layers on the CPU: a weight with the kernels that suit it, and the forms of its input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/arena.h"
#include "cpu/isa/kernels.h"
#include "engine/engine.h"
#include "model/plan.h"
#include "quant/storage.h"

namespace qgen::cpu {

// At least 31 zeros follow a row, so that the last vector of a tile may reach beyond it.
inline int64_t padded_cols(int64_t cols) { return (cols + 31 + kInputPad - 1) / kInputPad * kInputPad; }

// A linear layer ready to run.
class LinearKernel {
 public:
  LinearKernel(const Linear& linear, const Body& body, Activations activations);
  LinearKernel(LinearKernel&&) = default;  // no copies: codes may point into widened_

  const Matrix& matrix() const { return matrix_; }
  int64_t rows() const { return matrix_.rows; }
  int64_t cols() const { return matrix_.cols; }
  const float* bias() const { return bias_; }
  std::span<const int32_t> column_order() const { return column_order_; }
  const CodeKernels& kernels() const { return kernels_; }
  Form form(int64_t tokens) const { return kernels_.at(tokens).form; }

  size_t widened_bytes() const { return widened_.size(); }

  // y[t * y_stride + n] for rows [row_begin, row_end): W x + bias, where y points to row 0.
  void multiply(const Input& x, int64_t row_begin, int64_t row_end, float* y, int64_t y_stride, void* scratch) const;

 private:
  Matrix matrix_{};
  const float* bias_ = nullptr;
  CodeKernels kernels_{};
  std::span<const int32_t> column_order_;
  std::vector<std::byte> widened_;  // bf16 codes, where fp8 codes held NaN that fast decoders would misread
};

// The layers of one step; they read the same activations.
using Layers = std::span<const LinearKernel>;

// The activations that enter a step, (tokens, cols) in f32, and the forms its layers want of them. Steps whose
// layers want the same share one.
class StepInput {
 public:
  // One token may be prepared by each of `workers` in a row of its own.
  StepInput(Layers layers, int64_t max_tokens, int workers = 1);
  // Whether this object serves `layers` as it served those it was made for.
  bool serves(Layers layers) const;
  void lay_out(Arena& arena);

  float* row(int64_t token) { return values_ + token * stride_; }
  int64_t stride() const { return stride_; }
  // After `row`, of `tokens`, has been written: makes every form that `layers` want of it.
  void prepare(const Body& body, Layers layers, int64_t row, int64_t tokens);
  // What `layers[index]` multiplies, in the rows from `first` on.
  Input view(Layers layers, size_t index, int64_t tokens, int64_t first = 0) const;

 private:
  // One way a layer wants the input. Layers that agree share a slot; a column order is a slot's own.
  struct Slot {
    CodeKernels kernels;
    int64_t group_cols, tiles;
    bool offsets, ordered;
    size_t layer;  // of the step's layers, the first that uses it
    float* in_order = nullptr;
    int8_t* high = nullptr;
    int8_t* low = nullptr;
    int16_t* words = nullptr;
    float* word_scale = nullptr;
    uint16_t* bf16_high = nullptr;
    uint16_t* bf16_low = nullptr;
    int32_t* high_sums = nullptr;
    int32_t* low_sums = nullptr;
    float* sums = nullptr;
    float* byte_scales = nullptr;
    int32_t* starts = nullptr;

    // Whether the other wants the same.
    bool agrees(const Slot& other) const;
    // How many rows of `form` are held at once, of at most `most` tokens, or of one by each worker.
    int64_t rows_of(Form form, int64_t most, int64_t workers) const {
      const int64_t rows = kernels.many.form == form   ? most
                           : kernels.few.form == form  ? std::min(most, kManyTokens - 1)
                           : kernels.rows.form == form ? std::min(most, kUnpackedTokens)
                                                       : 0;
      return kernels.one.form == form ? std::max(rows, workers) : rows;
    }
  };
  static Slot make_slot(const LinearKernel& layer, size_t index);
  static std::vector<Slot> make_slots(Layers layers, std::vector<size_t>& slot_of_layer);

  int64_t max_tokens_, workers_;
  int64_t cols_;
  int64_t stride_;
  std::vector<size_t> slot_of_layer_;
  std::vector<Slot> slots_;
  float* values_ = nullptr;
};

}  // namespace qgen::cpu
