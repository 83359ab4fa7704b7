// Runs linear layers: chooses the kernel for a weight and a number of tokens, and prepares the input that it takes.
#pragma once

#include <span>

#include "kernels/device_layout.h"
#include "kernels/steps.h"

namespace qgen::QGEN_BACKEND {

// What layers read: x, or rms_norm(x) * norm, or silu(x) * up.
struct LayerInput {
  float* x = nullptr;  // (tokens, stride)
  int64_t stride = 0;
  int cols = 0;
  const float* norm = nullptr;
  float norm_eps = 0;
  const float* up = nullptr;  // (tokens, stride)
};

class LayerRunner {
 public:
  // Up to this many tokens go through the kernel that streams, kFewTokens at once; more in tiles.
  static constexpr int kMostFew = 2 * kFewTokens;

  // `exact`: everything as floats. `widest`: columns of the widest input.
  void lay_out(DeviceLayout& layout, int64_t tokens, int64_t widest, bool exact);

  // y = W x for layers of one input, whose rows lie one after the other in y; or y += W x for one.
  void run(Stream& stream, std::span<const Matrix> layers, LayerInput input, float* y, int64_t y_stride, int tokens,
           bool add = false);
  // gate = silu(Wg x) * (Wu x) where one kernel can do it. Else gate = Wg x, up = Wu x, and false.
  bool run_gated(Stream& stream, const Matrix& gate, const Matrix& up, const LayerInput& input, float* gate_out,
                 float* up_out, int64_t stride, int tokens);

 private:
  void run_few(Stream& stream, std::span<const Matrix> layers, const LayerInput& input, float* y, int64_t y_stride,
               int tokens, Result result);
  bool streams(const Matrix& m) const { return !exact_ && grid_kind(m) != GridKind::kAny; }

  bool exact_ = false;
  float* floats_ = nullptr;  // (tokens, widest up to a multiple of kPad)
  HalfRows halves_;          // the same
};

}  // namespace qgen::QGEN_BACKEND
