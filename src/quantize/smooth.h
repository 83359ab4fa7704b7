// Moves the size of a layer's inputs into its weights (SmoothQuant: Xiao et al. 2023, "SmoothQuant: Accurate and
// Efficient Post-Training Quantization for Large Language Models", equation 4), so that inputs in 8 bits lose less.
// With X the largest magnitude of an input column, W that of the weights it meets,
//
//   s = X^alpha / W^(1 - alpha)
//
// divides the column in the norm before the layer and multiplies it in the weights: the model computes the same.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quantize/source.h"
#include "quantize/statistics.h"

namespace qgen::quantize {

// Smooths what stands behind a norm of its own in the checkpoint: norms that only linear layers read, all of whose
// matrices are in the source, one of them at least quantized (`reasons` as of reasons_to_keep()). The norms change in
// source.copied, the matrices get column multipliers. Reads the weights. Columns of zeros stay. A model Error where the
// source is quantized itself, a usage Error where the maxima ask for absurd factors.
struct Smoothed {
  int64_t norms = 0;           // that changed
  int64_t without_maxima = 0;  // that did not, because the statistics have none behind them
};
Smoothed smooth(Source& source, std::span<const std::string_view> reasons, const InputStatistics& statistics,
                double alpha);

}  // namespace qgen::quantize
