// Linear layers on the CPU: a weight with the kernels that suit it, and its inputs in the forms that they want.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/arena.h"
#include "cpu/isa/kernels.h"
#include "engine/options.h"
#include "model/step.h"

namespace qgen::cpu {

// At least 31 zeros follow a row, so that the last vector of a register tile may reach beyond it.
inline int64_t padded_cols(int64_t cols) { return (cols + 31 + kInputPad - 1) / kInputPad * kInputPad; }

// Which kernels a product goes through.
struct Choice {
  Choice(Kernels of, int64_t tokens = 0) : kernels(of), all(tokens) {}

  Kernels kernels;
  int64_t all;  // kByCount: the tokens of the batch that those of the product are some of; 0: no more than these
};

// Whether each code of E4M3 that is not zero, times the power of two (E8M0) that is its group's scale, is a normal
// number of bf16. All scales are looked at.
bool has_exponent_scales(const Weight& weight);

// A weight ready to be multiplied.
class LinearKernel {
 public:
  // By what the weight's headers say, and by its NaN codes where they have been counted.
  LinearKernel(const Weight& weight, const IsaTarget& target, Activations activations);
  LinearKernel(LinearKernel&&) = default;  // no copies: codes may point into widened_
  // Once the weight's values are there, before the first product.
  void load(const Weight& weight);

  const Matrix& matrix() const { return matrix_; }
  int64_t rows() const { return matrix_.rows; }
  const uint8_t* codes(int64_t row) const { return matrix_.codes + row * matrix_.row_bytes; }
  int64_t cols() const { return matrix_.cols; }
  bool has_offsets() const { return matrix_.has_offsets; }
  std::span<const int32_t> column_order() const { return column_order_; }
  bool ordered() const { return ordered_; }
  // Whether its scale groups lie down the columns: tasks of one token should then have as many rows as they can,
  // because inputs are multiplied with the scales once a task.
  bool has_column_groups() const { return matrix_.row_period > 0; }
  const CodeKernels& kernels() const { return kernels_; }
  const Kernel& kernel(int64_t tokens, const Choice& choice) const {
    return choice.kernels == Kernels::kPrompt     ? kernels_.gemm
           : choice.kernels == Kernels::kGenerate ? kernels_.generated()
                                                  : kernels_.at(tokens, choice.all);
  }
  // Bytes of codes and grids that are held beside the weight's own.
  size_t copied_bytes() const { return copied_bytes_; }

  // y[t * y_stride + n - row_begin] for rows [row_begin, row_end): W x.
  void multiply(const Input& x, const Choice& choice, int64_t row_begin, int64_t row_end, float* y, int64_t y_stride,
                void* scratch) const {
    kernel(x.tokens, choice).multiply(matrix_, x, row_begin, row_end, y, y_stride, scratch);
  }

 private:
  Grid grid_of(const ScaleGrid& grid);

  Matrix matrix_{};
  CodeKernels kernels_{};
  std::span<const int32_t> column_order_;
  bool ordered_ = false;
  std::vector<std::byte> widened_;            // bf16 codes, where fp8 codes held NaN that fast decoders would misread
  std::vector<float> grid_values_;            // of grids with few values
  std::vector<std::byte> transposed_values_;  // of grids that lie column by column
  size_t copied_bytes_ = 0;
};

// The forms that the layers of one step want of their input. Memory is laid over that of other steps': it holds nothing
// from one step to the next.
class InputForms {
 public:
  // Who puts an input in a layer's activation order: the forms, for each such layer, or the caller.
  enum class Order { kLayers, kCallers };
  // For up to `tokens` tokens; one token may be prepared by each of `workers` in a row of its own.
  InputForms(std::span<const LinearKernel* const> layers, int64_t tokens, int workers, Order order = Order::kLayers);
  void lay_out(Arena& arena);

  int64_t stride() const { return stride_; }
  // A row of floats to write an input into; what lies behind its columns is zero when prepare() is called.
  float* row(int64_t index) const { return values_ + index * stride_; }
  // Makes every form of row `index` that the layers want, from `x` (stride), which is row(index) or lies elsewhere.
  // `tokens` and `choice` are those of the product.
  void prepare(const IsaTarget& target, const float* x, int64_t index, int64_t tokens, const Choice& choice);
  // What layer `layer` multiplies: rows from `first` on, whose floats are at `x`.
  Input view(size_t layer, const float* x, int64_t tokens, const Choice& choice, int64_t first = 0) const;

 private:
  // One way a layer wants the input. Layers that agree share a slot; a column order is a slot's own.
  struct Slot {
    const LinearKernel* layer;  // the first that uses it
    CodeKernels kernels;
    int64_t group_cols, grid_cols;
    bool offsets, ordered;
    float* in_order = nullptr;
    int8_t* high = nullptr;
    int8_t* low = nullptr;
    int16_t* int16s = nullptr;
    float* int16_scale = nullptr;
    uint16_t* bf16_high = nullptr;
    uint16_t* bf16_low = nullptr;
    int32_t* high_sums = nullptr;
    int32_t* low_sums = nullptr;
    float* sums = nullptr;
    float* int8_scales = nullptr;
    int32_t* starts = nullptr;

    bool agrees(const Slot& other) const;
    bool wants(Form form) const;
  };
  template <typename Value>
  void sum_groups(const Slot& slot, const Value& x, float* sums) const;
  void prepare_slot(const Slot& slot, const IsaTarget& target, const float* x, int64_t index, int64_t tokens,
                    const Choice& choice) const;

  int64_t rows_;  // held at once
  int64_t workers_;
  int64_t cols_;
  int64_t stride_;
  std::vector<const LinearKernel*> layers_;
  std::vector<size_t> slot_of_layer_;
  std::vector<Slot> slots_;
  float* values_ = nullptr;
};

}  // namespace qgen::cpu
