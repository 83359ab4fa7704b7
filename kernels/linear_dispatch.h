// Linear layers on the device: chooses the kernels for a weight and a number of tokens, and prepares the input that
// they take.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "engine/options.h"
#include "kernels/device_layout.h"
#include "kernels/launches.h"
#include "kernels/library_gemm.h"

namespace qgen::QGEN_BACKEND {

// What linear layers read: rows of tokens, normalized first.
struct LinearInput {
  const float* x = nullptr;  // (tokens, stride)
  int64_t stride = 0;
  int cols = 0;
  bool zeros_behind = true;  // what lies behind `cols`, up to a multiple of kPad, is zero
  DeviceNorm norm;
  float norm_peak = 0;                // no |element of the norm's weight| is larger; 0: unknown
  const float* token_gate = nullptr;  // as GemvArgs has it
  int64_t token_gate_stride = 0;
  // (tokens, padded cols) or null: inputs are x * activation(gate), as a call that left its gate made them.
  const float* gate = nullptr;
  Activation activation = Activation::kNone;
};
// model/step.h, Projection, with its weights on the device.
struct DeviceProjection {
  Matrix weight;
  std::optional<Matrix> gate;
  Epilogue epilogue;
  float* y = nullptr;  // (tokens, y_stride)
  int64_t y_stride = 0;
};
// The sizes that scratch memory is laid out for.
struct LinearSizes {
  int64_t tokens = 0;           // at most
  int64_t widest = 0;           // input
  int64_t normalized = 0;       // floats of inputs that are normalized or gathered: rounded tokens * padded cols
  int64_t gates = 0;            // floats of gates: rounded tokens * padded rows
  int64_t added = 0;            // floats of products that are added to a row
  bool many_sequences = false;  // more than kGemvTokens may run together
};

class LinearDispatch {
 public:
  // Up to this many tokens go through gemv(), kGemvTokens at once, or split_gemm(); more through gemm() or LibraryGemm.
  static constexpr int kMostGemvTokens = 2 * kGemvTokens;
  static bool are_few(int tokens, Kernels choice) {
    return choice == Kernels::kGenerate || (choice == Kernels::kByCount && tokens <= kMostGemvTokens);
  }

  void lay_out(DeviceLayout& layout, const LinearSizes& sizes, Activations activations);
  // Once there is memory. Without this call there is no LibraryGemm.
  void start(Device& device);

  // What was left to a call that never came, as where a batch ends with an error, is dropped.
  void forget_left() {
    left_gate_.reset();
    left_rounded_.reset();
  }

  // All projections of one input. Outputs have room for round_up(tokens, kLibraryGemmTokens). `beside`: of calls that
  // can_run_beside(). `leave_gate`: what comes next is the call that alone reads the result, and takes_gate(); it then
  // does what the gate of the last projection asks for where this call need not.
  void run(Stream& stream, std::span<const DeviceProjection> projections, LinearInput input, int tokens,
           Kernels choice = Kernels::kByCount, Beside beside = {}, bool leave_gate = false);
  // The input of a call as gemv() takes it: normalized by a kernel where gemv() cannot, or where its rows are not
  // aligned.
  LinearInput input_of_gemv(Stream& stream, const LinearInput& input, int tokens);
  // Whether all launches of such a call are gemv(), one for each group of projections, which run side by side.
  bool can_run_beside(std::span<const DeviceProjection> projections, const LinearInput& input, int tokens,
                      Kernels choice) const;
  // Whether the products of a weight for so few tokens can be multiplied by a gate of each token (GemvArgs).
  bool takes_token_gate(const DeviceProjection& projection, const LinearInput& input, int tokens, Kernels choice) const;

  // Whether such a call rounds all its inputs in a pass of their own, which can multiply them by gates.
  bool takes_gate(std::span<const DeviceProjection> projections, const LinearInput& input, int tokens,
                  Kernels choice) const;

  // To what such a call only rounds its inputs. What makes them may do so as it writes them, where numbers of that kind
  // hold them without a factor, to the rows of leave_rounded(); the call behind that takes these as its inputs at `x`.
  Rounded takes_rounded(std::span<const DeviceProjection> projections, const LinearInput& input, int tokens,
                        Kernels choice) const;
  Fp16Rows leave_rounded(const LinearInput& input, Rounded to);

  // Whether inputs of such a layer's many tokens can be 8 bits wide.
  bool takes_8_bits(const Matrix& m);
  // The library behind LibraryGemm, "" while it has not been wanted and where it is missing.
  std::string library() const { return gemm_ ? gemm_->library() : ""; }
  // That it has multiplied.
  int64_t library_products() const { return library_products_; }

 private:
  // The numbers that inputs have been converted to.
  enum class Form : uint8_t {
    kNone,
    kF16,        // each token times a factor of its own, of most tokens 1
    kF16Ranged,  // all times one factor
    kBf16,
    kI8,          // a scale for every token
    kE4M3,        // the same
    kE4M3Groups,  // a scale for every 128 columns
  };
  // A layer as a product of LibraryGemm.
  struct LibraryProduct {
    LibraryGemmArgs args;
    Form form = Form::kNone;
    bool copied = false;     // the weights are written out first, args.rows at once
    bool row_scale = false;  // apply_epilogue() applies the scale of the weight's rows
  };
  // Where a product goes.
  struct Target {
    float* y = nullptr;
    int64_t stride = 0;
    Epilogue epilogue;
    const float* gate = nullptr;  // (tokens, padded rows) or null
    bool leave_gate = false;      // to the next call, where nothing else is to be done
  };
  // What a call has left to do: inputs at x are to be multiplied by what an activation makes of gates_.
  struct LeftGate {
    const float* x;
    Activation activation;
  };
  // The same, where they are rounded at x.
  struct LeftRounded {
    const float* x;
    Form form;
  };
  // The step under way.
  struct Call {
    LinearInput input;
    int tokens;
    Kernels choice;
    bool few;  // through gemv() where it takes the weight
    Beside beside;
  };
  // How many projections from the first on go together through gemv(), in one launch for up to kGemvTokens tokens.
  size_t joined_by_gemv(std::span<const DeviceProjection> projections) const;
  std::optional<LibraryProduct> library_product(const Call& call, const Matrix& m, float* y, int64_t y_stride);
  std::optional<LibraryProduct> eight_bit_product(const Matrix& m, int cols, int tokens) const;
  std::optional<LibraryProduct> fp16_product(const Matrix& m, const LinearInput& input, int tokens) const;
  void multiply(Stream& stream, const Call& call, const Matrix& m, const Target& target);
  // By qgen's own kernels.
  void multiply_here(Stream& stream, const Call& call, const Matrix& m, const Target& target);
  // Returns the rows that are done, not all where the library failed: none, but for a product that is added to y.
  int run_library(Stream& stream, const Call& call, const LibraryProduct& d, const Matrix& m, const Target& target);
  std::pair<float*, int64_t> raw_product(const Matrix& m, const Target& target) const;
  size_t run_joined(Stream& stream, const Call& call, std::span<const DeviceProjection> projections);
  bool multiply_by_library(const LibraryGemmArgs& args);
  void run_gemv(Stream& stream, const Call& call, std::span<const DeviceProjection> parts);
  void run_gemv(Stream& stream, const Call& call, GemvArgs args);
  void run_gemv_any(Stream& stream, const Call& call, const Matrix& m, const Target& target);
  void apply(Stream& stream, const Call& call, const float* raw, int64_t raw_stride, int rows, const Target& target);
  void prepare(Stream& stream, Form form, const LinearInput& input, int tokens);
  void prepare_parts(Stream& stream, SplitForm form, const LinearInput& input, int tokens);
  void normalize(Stream& stream, Call& call);
  bool has_mma_kernels(const Matrix& m) const {
    return activations_ != Activations::kF32 && grid_kind(m) != GridKind::kAny;
  }

  Activations activations_ = Activations::kF32;
  float* normalized_ = nullptr;   // (tokens, padded cols)
  float* gates_ = nullptr;        // (tokens, padded rows)
  float* added_ = nullptr;        // the same
  Fp16Rows fp16_;                 // (tokens, widest up to a multiple of kPad); of 8-bit codes too
  SplitGemmArgs split_;           // its memory, for many sequences: (tokens, 2, widest up to a multiple of kPad)
  float* group_scale_ = nullptr;  // (ceil(widest / 128), tokens)
  int64_t copy_elements_ = 0;     // that copy_ holds
  uint16_t* copy_ = nullptr;      // weights written out
  std::byte* workspace_ = nullptr;
  std::optional<LibraryGemm> gemm_;
  int64_t library_products_ = 0;
  std::optional<LeftGate> left_gate_;        // to the next call
  std::optional<LeftRounded> left_rounded_;  // the same
  Form prepared_ = Form::kNone;              // of the input under way; kNone also where nothing has been
  bool factors_are_one_ = false;             // of that, for sure
  std::optional<SplitForm> prepared_parts_;  // the same of split_.parts
  bool is_normalized_ = false;               // normalized_ has it
};

}  // namespace qgen::QGEN_BACKEND
