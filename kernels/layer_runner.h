// Runs linear layers: chooses the kernel for a weight and a number of tokens, and prepares the input that it takes.
#pragma once

#include <optional>
#include <span>

#include "engine/engine.h"
#include "kernels/device_layout.h"
#include "kernels/gemm.h"
#include "kernels/steps.h"

namespace qgen::QGEN_BACKEND {

// What layers read: x, or rms_norm(x) * norm, or silu(x) * up.
struct LayerInput {
  float* x = nullptr;  // (tokens, stride)
  int64_t stride = 0;
  int cols = 0;
  const float* norm = nullptr;
  float norm_eps = 0;
  float norm_peak = 0;        // no |norm| is larger; 0: unknown
  const float* up = nullptr;  // (tokens, stride)
};

class LayerRunner {
 public:
  // Up to this many tokens go through the kernel that streams, kFewTokens at once; more in tiles or through Gemm.
  static constexpr int kMostFew = 2 * kFewTokens;
  static constexpr int kMostLayers = 4;

  // For calls of up to `tokens`. `widest`: columns of the widest input; `residual`: of the widest that is normalized,
  // or rows of the widest layer whose result is added. What run() writes has room for round_up(tokens, kGemmTokens).
  void lay_out(DeviceLayout& layout, int64_t tokens, int64_t widest, int64_t residual, Activations activations);
  // Once that is real memory. Without it there is no Gemm.
  void start(Device& device);

  // y = W x for up to kMostLayers of one input, whose rows lie one after the other in y; or y += W x for one.
  void run(Stream& stream, std::span<const Matrix> layers, const LayerInput& input, float* y, int64_t y_stride,
           int tokens, bool add = false);
  // gate = silu(Wg x) * (Wu x) where one kernel can do it. Else gate = Wg x, up = Wu x, and false.
  bool run_gated(Stream& stream, const Matrix& gate, const Matrix& up, const LayerInput& input, float* gate_out,
                 float* up_out, int64_t stride, int tokens);

  // Whether inputs of such a layer's many tokens can be 8 bits wide.
  bool takes_8_bits(const Matrix& m);
  // The library behind Gemm, "" while it has not been wanted and where it is missing.
  std::string library() const { return gemm_ ? gemm_->library() : ""; }

 private:
  // As what inputs have been prepared.
  enum class Form : uint8_t {
    kNone,
    kF16,        // each token times a factor of its own
    kF16Ranged,  // all times one factor
    kBf16,
    kI8,          // a scale for every token
    kE4M3,        // the same
    kE4M3Groups,  // a scale for every 128 columns
  };
  // A layer as a product of Gemm.
  struct Dense {
    GemmArgs args;
    Form form = Form::kNone;
    bool copied = false;     // the weights are written out first, args.rows at once
    bool row_scale = false;  // finish() applies the scale of the weight's rows
  };
  std::optional<Dense> dense(const Matrix& m, const LayerInput& input, float* y, int64_t y_stride, int tokens,
                             bool add);
  std::optional<Dense> eight_bits(const Matrix& m, int cols, int tokens) const;
  std::optional<Dense> halves(const Matrix& m, const LayerInput& input, int tokens) const;
  // run() of an input that may have been prepared.
  void run_more(Stream& stream, std::span<const Matrix> layers, LayerInput input, float* y, int64_t y_stride,
                int tokens, bool add);
  // False where the library failed; y may hold anything then, but for what is added to.
  bool run_dense(Stream& stream, const Dense& d, const Matrix& m, float* y, int64_t y_stride, int tokens, bool add);
  void run_few(Stream& stream, std::span<const Matrix> layers, const LayerInput& input, float* y, int64_t y_stride,
               int tokens, Result result);
  void run_any(Stream& stream, const Matrix& m, const LayerInput& input, float* y, int64_t y_stride, int tokens,
               bool add);
  void prepare(Stream& stream, Form form, const LayerInput& input, int tokens);
  bool streams(const Matrix& m) const { return activations_ != Activations::kF32 && grid_kind(m) != GridKind::kAny; }

  Activations activations_ = Activations::kF32;
  float* floats_ = nullptr;       // (tokens, residual up to a multiple of kPad)
  HalfRows halves_;               // (tokens, widest up to the same); of 8-bit codes too
  float* group_scale_ = nullptr;  // (ceil(widest / 128), tokens)
  int64_t copy_halves_ = 0;       // that copy_ holds
  uint16_t* copy_ = nullptr;      // weights written out
  std::byte* workspace_ = nullptr;
  std::optional<Gemm> gemm_;
  Form prepared_ = Form::kNone;  // of the input under way; kNone also where nothing has been
  bool normalized_ = false;      // and floats_ has it
};

}  // namespace qgen::QGEN_BACKEND
