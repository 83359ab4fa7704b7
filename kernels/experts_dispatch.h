// The chosen experts' networks on the device (model/step.h, ExpertsStep): chooses the kernels for the weights and a
// number of tokens, and has the memory that lies between the two products.
#pragma once

#include <span>

#include "engine/options.h"
#include "kernels/device_layout.h"
#include "kernels/launches.h"

namespace qgen::QGEN_BACKEND {

// A layer of experts, with its weights on the device. What lies between its products is ExpertsDispatch's.
struct ExpertsLayer {
  ChosenArgs in;       // but for y
  ExpertsProduct out;  // but for y
  AddChoicesArgs sum;  // but for y
  int experts = 0;
  bool on_tensor_cores = false;  // all weights are alike and has_expert_kernels()
  bool padded_x = false;         // x is aligned and ends in zeros, as multiply_chosen() needs
};
// What memory is laid out for.
struct ExpertsSizes {
  int64_t experts = 0, chosen = 0, cols = 0, width = 0, out_cols = 0;
};

struct HeadsSizes {
  int64_t heads = 0, cols = 0;
};

class ExpertsDispatch {
 public:
  // What is multiplied at once, of many tokens.
  struct Limits {
    int64_t product_floats = 16 << 20;  // more choices are done for some columns of the result after the other
    int64_t head_rows = 16384;          // tokens and heads
    Limits() {}
  };
  // `tokens`: of a call, at most.
  void lay_out(DeviceLayout& layout, std::span<const ExpertsSizes> layers, std::span<const HeadsSizes> heads,
               int64_t tokens, Activations activations, const Limits& limits = {});
  void run(Stream& stream, const ExpertsLayer& layer, int tokens, Kernels choice);
  // Whether run() takes a norm of the input (ChosenArgs) where tokens are few.
  bool takes_norm(const ExpertsLayer& layer) const {
    return runs_on_tensor_cores(layer) && layer.padded_x && layer.in.product.like.cols <= kMostNormedCols;
  }
  // A product of each head with a matrix of its own, which many tokens share as the choices of an expert do. `like`:
  // one of the matrices. `on_tensor_cores`: as ExpertsLayer has it.
  void run_heads(Stream& stream, const HeadLinearArgs& heads, const Matrix& like, bool on_tensor_cores, Kernels choice);

 private:
  bool runs_on_tensor_cores(const ExpertsLayer& layer) const {
    return layer.on_tensor_cores && activations_ != Activations::kF32;
  }
  void run_choices(Stream& stream, const ExpertsLayer& layer, int tokens,
                   void (*multiply)(Stream& stream, const ChosenArgs& args));
  void run_grouped(Stream& stream, const ExpertsLayer& layer, int tokens);

  Activations activations_ = Activations::kF32;
  Limits limits_;
  float* inner_ = nullptr;      // (choices, padded width)
  int64_t product_floats_ = 0;  // that products_ holds
  float* products_ = nullptr;   // (choices, columns of the result), or as many columns as fit
  // Many tokens.
  Fp16Rows x_;                 // (tokens, or tokens and heads at once; padded cols)
  Fp16Rows inner_fp16_;        // (choices, padded width)
  int32_t* choice_ = nullptr;  // see GroupChoicesArgs
  ExpertTile* tile_ = nullptr;
};

}  // namespace qgen::QGEN_BACKEND
