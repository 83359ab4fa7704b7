#include "kernels/layer_runner.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/rounding.h"

namespace qgen::QGEN_BACKEND {
namespace {

constexpr int64_t kGroup = 128;       // columns that 8-bit floats share a scale for
constexpr int64_t kPieceRows = 16;    // of weights written out: a multiple of this, but for the last
constexpr int64_t kMostRows = 32768;  // that copy_as_halves() takes at once: a grid has 65535 at most

bool alike(const Matrix& a, const Matrix& b) {
  return a.kind == b.kind && grid_kind(a) == grid_kind(b) && a.half_scales == b.half_scales;
}

// The largest power of two that keeps numbers up to `peak` below 2^15, so that F16 holds them.
float f16_factor(float peak) {
  if (!(peak > 0) || !std::isfinite(peak)) return 1;
  return std::exp2(std::clamp(std::floor(std::log2(32768 / peak)), -60.0f, 60.0f));
}

// |rms_norm(x)| is at most the root of its columns.
float input_factor(const LayerInput& input) { return f16_factor(std::sqrt(float(input.cols)) * input.norm_peak); }

// What kernels that prepare inputs are told of them.
template <typename Args>
void set_input(Args& args, const LayerInput& input, int tokens) {
  args.x = input.x;
  args.up = input.up;
  args.x_stride = input.stride;
  args.norm = input.norm;
  args.norm_eps = input.norm_eps;
  args.cols = input.cols;
  args.tokens = tokens;
}

}  // namespace

void LayerRunner::lay_out(DeviceLayout& layout, int64_t tokens, int64_t widest, int64_t residual,
                          Activations activations) {
  activations_ = activations;
  tokens = round_up(tokens, kGemmTokens);
  floats_ = layout.take<float>(tokens * round_up(residual, kPad));
  if (activations == Activations::kF32) return;
  halves_.values = layout.take<uint16_t>(tokens * round_up(widest, kPad));
  halves_.factor = layout.take<float>(tokens);
  const bool eight = activations == Activations::k8Bit, copies = tokens >= gemm_limits().fewest_tokens;
  if (eight) group_scale_ = layout.take<float>(tokens * (round_up(widest, kGroup) / kGroup));
  if (copies) {
    copy_halves_ = std::max(gemm_limits().copy_bytes / 2, gemm_limits().copy_rows * round_up(widest, kPad));
    copy_ = layout.take<uint16_t>(copy_halves_);
  }
  if (eight || copies) workspace_ = layout.take<std::byte>(gemm_limits().workspace_bytes);
}

void LayerRunner::start(Device& device) {
  if (workspace_ != nullptr) gemm_.emplace(device, workspace_);
}

void LayerRunner::prepare(Stream& stream, Form form, const LayerInput& input, int tokens) {
  if (prepared_ == form) return;
  prepared_ = form;
  if (form == Form::kF16 || form == Form::kF16Ranged || form == Form::kBf16) {
    halves_.stride = round_up(input.cols, kPad);
    HalveArgs args;
    set_input(args, input, tokens);
    args.bf16 = form == Form::kBf16;
    args.range = form == Form::kF16Ranged ? input_factor(input) : 0;
    args.out = halves_;
    halve(stream, args);
    return;
  }
  QuantizeArgs args;
  set_input(args, input, tokens);
  args.e4m3 = form != Form::kI8;
  args.grouped = form == Form::kE4M3Groups;
  args.codes = reinterpret_cast<uint8_t*>(halves_.values);
  args.stride = round_up(input.cols, kGroup);
  args.scale = args.grouped ? group_scale_ : halves_.factor;
  args.scale_stride = round_up(tokens, kGemmTokens);
  quantize(stream, args);
}

bool LayerRunner::takes_8_bits(const Matrix& m) {
  if (!gemm_ || activations_ != Activations::k8Bit) return false;
  std::optional<Dense> d = eight_bits(m, m.cols, kMostFew + 1);
  if (!d) return false;
  d->args.y = floats_;
  d->args.y_stride = round_up(m.rows, kPad);
  return gemm_->can(d->args);
}

// Weights whose scales can stay outside of a sum of codes, and blocks of 128 x 128.
std::optional<LayerRunner::Dense> LayerRunner::eight_bits(const Matrix& m, int cols, int tokens) const {
  const bool blocks = m.kind == Codes::kE4M3 && m.group_rows == kGroup && m.group_cols == kGroup &&
                      m.tile_cols % 4 == 0 && m.cols % kGroup == 0 && m.rows % 16 == 0;
  const bool rows = grid_kind(m) == GridKind::kRow && m.offset == nullptr;
  if (m.column_order != nullptr || m.scale == nullptr || m.nan_codes) return {};
  if (!(m.kind == Codes::kE4M3 && (blocks || rows)) && !(m.kind == Codes::kI8 && rows)) return {};
  Dense d;
  d.args.kind = m.kind == Codes::kI8 ? GemmKind::kI8 : blocks ? GemmKind::kE4M3Blocks : GemmKind::kE4M3;
  d.form = m.kind == Codes::kI8 ? Form::kI8 : blocks ? Form::kE4M3Groups : Form::kE4M3;
  d.row_scale = !blocks;
  d.args.w = m.codes;
  d.args.x = halves_.values;
  d.args.rows = m.rows;
  d.args.cols = int(m.row_bytes);
  d.args.tokens = int(round_up(tokens, kGemmTokens));
  d.args.w_stride = m.row_bytes;
  d.args.x_stride = round_up(cols, kGroup);
  if (blocks) {
    d.args.w_scale = m.scale;
    d.args.x_scale = group_scale_;
    d.args.w_scale_stride = m.tile_cols;
  }
  return d;
}

// Weights of 16 bits as they are, those of 8 bits written out as F16.
std::optional<LayerRunner::Dense> LayerRunner::halves(const Matrix& m, const LayerInput& input, int tokens) const {
  if (tokens < gemm_limits().fewest_tokens || copy_ == nullptr) return {};
  Dense d;
  d.args.x = halves_.values;
  d.args.x_stride = round_up(input.cols, kPad);
  d.args.tokens = tokens;
  d.form = input.norm != nullptr && input.norm_peak > 0 ? Form::kF16Ranged : Form::kF16;
  if (d.form == Form::kF16Ranged) d.args.factor = 1 / input_factor(input);
  if (code_bytes(m.kind) == 2 && m.scale == nullptr && m.offset == nullptr && m.column_order == nullptr) {
    if (m.kind == Codes::kBf16) {
      d.args.kind = GemmKind::kBf16;
      d.form = Form::kBf16;
      d.args.factor = 1;
    }
    d.args.w = m.codes;
    d.args.rows = m.rows;
    d.args.cols = int(m.row_bytes / 2);
    d.args.w_stride = m.row_bytes / 2;
    return d;
  }
  if (code_bytes(m.kind) != 1 || m.nan_codes) return {};
  d.copied = true;
  d.args.factor /= f16_factor(m.largest);
  d.args.w = copy_;
  d.args.w_stride = round_up(m.cols, kPad);
  d.args.cols = int(d.args.w_stride);
  // In pieces of the same size.
  const int64_t fit = std::min(kMostRows, copy_halves_ / d.args.w_stride / kPieceRows * kPieceRows);
  const int64_t pieces = (m.rows + fit - 1) / fit;
  d.args.rows = int(std::min({round_up((m.rows + pieces - 1) / pieces, kPieceRows), fit, int64_t{m.rows}}));
  return d;
}

std::optional<LayerRunner::Dense> LayerRunner::dense(const Matrix& m, const LayerInput& input, float* y,
                                                     int64_t y_stride, int tokens, bool add) {
  if (!gemm_ || tokens <= kMostFew) return {};
  const auto can = [&](std::optional<Dense>& d) {
    if (!d) return false;
    d->args.y = add ? floats_ : y;
    d->args.y_stride = add ? round_up(m.rows, kPad) : y_stride;
    GemmArgs last = d->args;  // of a copy, the rows that are left over
    last.rows = m.rows % d->args.rows;
    return gemm_->can(d->args) && (last.rows == 0 || gemm_->can(last));
  };
  if (activations_ == Activations::k8Bit) {
    if (std::optional<Dense> d = eight_bits(m, input.cols, tokens); can(d)) return d;
  }
  std::optional<Dense> d = halves(m, input, tokens);
  return can(d) ? d : std::nullopt;
}

bool LayerRunner::run_dense(Stream& stream, const Dense& d, const Matrix& m, float* y, int64_t y_stride, int tokens,
                            bool add) {
  for (int first = 0; first < m.rows; first += d.args.rows) {
    GemmArgs args = d.args;
    args.rows = std::min(d.args.rows, m.rows - first);
    args.y = static_cast<float*>(d.args.y) + first;
    if (d.copied) copy_as_halves(stream, {m, first, args.rows, f16_factor(m.largest), copy_, args.w_stride});
    if (!gemm_->multiply(args)) return false;
  }
  const bool token_scale = d.form == Form::kF16 || d.form == Form::kI8 || d.form == Form::kE4M3;
  if (!add && !token_scale && m.bias == nullptr) return true;
  FinishArgs args;
  args.raw = d.args.y;
  args.raw_stride = d.args.y_stride;
  args.integers = d.args.kind == GemmKind::kI8;
  args.token_scale = token_scale ? halves_.factor : nullptr;
  args.w = m;
  args.row_scale = d.row_scale;
  args.y = y;
  args.y_stride = y_stride;
  args.add = add;
  args.tokens = tokens;
  finish(stream, args);
  return true;
}

void LayerRunner::run_few(Stream& stream, std::span<const Matrix> layers, const LayerInput& input, float* y,
                          int64_t y_stride, int tokens, Result result) {
  for (int first = 0; first < tokens; first += kFewTokens) {
    LinearArgs args;
    args.parts = int(layers.size());
    std::copy(layers.begin(), layers.end(), args.part);
    args.x = input.x + first * input.stride;
    args.x_stride = input.stride;
    args.norm = input.norm;
    args.norm_eps = input.norm_eps;
    args.y = y + first * y_stride;
    args.y_stride = y_stride;
    args.result = result;
    args.tokens = std::min(kFewTokens, tokens - first);
    multiply_few(stream, args);
  }
}

void LayerRunner::run_any(Stream& stream, const Matrix& m, const LayerInput& input, float* y, int64_t y_stride,
                          int tokens, bool add) {
  if (input.norm != nullptr && !normalized_)
    normalize(stream, {input.x, input.norm, floats_, input.stride, input.norm_eps, input.cols, tokens});
  normalized_ = true;
  const float* const x = input.norm != nullptr ? floats_ : input.x;
  for (int first = 0; first < tokens; first += kFewTokens) {
    LinearArgs args;
    args.part[0] = m;
    args.x = x + first * input.stride;
    args.x_stride = input.stride;
    args.y = y + first * y_stride;
    args.y_stride = y_stride;
    args.result = add ? Result::kAdd : Result::kStore;
    args.tokens = std::min(kFewTokens, tokens - first);
    multiply_any(stream, args);
  }
}

void LayerRunner::run(Stream& stream, std::span<const Matrix> layers, const LayerInput& input, float* y,
                      int64_t y_stride, int tokens, bool add) {
  prepared_ = Form::kNone;
  normalized_ = false;
  run_more(stream, layers, input, y, y_stride, tokens, add);
}

void LayerRunner::run_more(Stream& stream, std::span<const Matrix> layers, LayerInput input, float* y, int64_t y_stride,
                           int tokens, bool add) {
  const bool few = tokens <= kMostFew;
  const auto tiles = [&](const Matrix& m) { return !few && streams(m) && m.column_order == nullptr; };
  std::array<std::optional<Dense>, kMostLayers> products;
  bool gates = input.up != nullptr;  // whether what reads the inputs can do silu(x) * up by itself
  float* result = y;
  for (size_t i = 0; i < layers.size(); result += layers[i++].rows) {
    products[i] = dense(layers[i], input, result, y_stride, tokens, add);
    gates = gates && (products[i] || tiles(layers[i]));
  }
  if (input.up != nullptr && !gates) {
    silu_mul(stream, input.x, input.up, input.stride, input.cols, tokens);
    input.up = nullptr;
  }
  for (size_t i = 0; i < layers.size();) {
    const Matrix& m = layers[i];
    size_t next = i + 1;
    if (few && streams(m)) {
      while (next < layers.size() && next - i < std::size(LinearArgs().part) && alike(layers[next], m)) ++next;
      run_few(stream, layers.subspan(i, next - i), input, y, y_stride, tokens, add ? Result::kAdd : Result::kStore);
    } else if (products[i]) {
      prepare(stream, products[i]->form, input, tokens);
      // The library says no from now on.
      if (!run_dense(stream, *products[i], m, y, y_stride, tokens, add))
        return run_more(stream, layers.subspan(i), input, y, y_stride, tokens, add);
    } else if (tiles(m)) {
      prepare(stream, m.kind == Codes::kBf16 ? Form::kBf16 : Form::kF16, input, tokens);
      multiply_many(stream, {m, halves_, y, y_stride, add, tokens});
    } else {
      run_any(stream, m, input, y, y_stride, tokens, add);
    }
    for (; i < next; ++i) y += layers[i].rows;
  }
}

bool LayerRunner::run_gated(Stream& stream, const Matrix& gate, const Matrix& up, const LayerInput& input,
                            float* gate_out, float* up_out, int64_t stride, int tokens) {
  const Matrix both[] = {gate, up};
  if (tokens <= kMostFew && streams(gate) && alike(gate, up) && gate.column_order == up.column_order) {
    run_few(stream, both, input, gate_out, stride, tokens, Result::kSiluMul);
    return true;
  }
  run(stream, {both, 1}, input, gate_out, stride, tokens);
  run_more(stream, {both + 1, 1}, input, up_out, stride, tokens, false);
  return false;
}

}  // namespace qgen::QGEN_BACKEND
