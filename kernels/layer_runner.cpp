#include "kernels/layer_runner.h"

#include <algorithm>

#include "base/rounding.h"

namespace qgen::QGEN_BACKEND {
namespace {

bool alike(const Matrix& a, const Matrix& b) {
  return a.kind == b.kind && grid_kind(a) == grid_kind(b) && a.half_scales == b.half_scales;
}

}  // namespace

void LayerRunner::lay_out(DeviceLayout& layout, int64_t tokens, int64_t widest, bool exact) {
  exact_ = exact;
  floats_ = layout.take<float>(tokens * round_up(widest, kPad));
  halves_.values = layout.take<uint16_t>(tokens * round_up(widest, kPad));
  halves_.factor = layout.take<float>(tokens);
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

void LayerRunner::run(Stream& stream, std::span<const Matrix> layers, LayerInput input, float* y, int64_t y_stride,
                      int tokens, bool add) {
  const auto halves_well = [&](const Matrix& m) { return streams(m) && m.column_order == nullptr; };
  const bool few = tokens <= kMostFew;
  if (input.up != nullptr && (few || !std::all_of(layers.begin(), layers.end(), halves_well))) {
    silu_mul(stream, input.x, input.up, input.stride, input.cols, tokens);
    input.up = nullptr;
  }
  // What of `input` has been prepared so far.
  bool normalized = false;
  int halved = 0;  // 1: as F16, 2: as BF16
  for (size_t i = 0; i < layers.size();) {
    const Matrix& m = layers[i];
    size_t next = i + 1;
    if (few && streams(m)) {
      while (next < layers.size() && alike(layers[next], m)) ++next;
      run_few(stream, layers.subspan(i, next - i), input, y, y_stride, tokens, add ? Result::kAdd : Result::kStore);
    } else if (halves_well(m)) {
      const int wanted = m.kind == Codes::kBf16 ? 2 : 1;
      halves_.stride = round_up(input.cols, kPad);
      if (halved != wanted) {
        halve(stream,
              {input.x, input.up, input.stride, input.norm, input.norm_eps, input.cols, tokens, wanted == 2, halves_});
        halved = wanted;
      }
      multiply_many(stream, {m, halves_, y, y_stride, add, tokens});
    } else {
      const float* x = input.x;
      if (input.norm != nullptr) {
        if (!normalized)
          normalize(stream, {input.x, input.norm, floats_, input.stride, input.norm_eps, input.cols, tokens});
        normalized = true;
        x = floats_;
      }
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
  run(stream, {both + 1, 1}, input, up_out, stride, tokens);
  return false;
}

}  // namespace qgen::QGEN_BACKEND
