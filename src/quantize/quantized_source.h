// A quantized checkpoint as a source: what its method moved out of the matrices is undone, so that they and the vectors
// beside them are those of an unquantized model.
#pragma once

#include "model/plan.h"
#include "quantize/source.h"

namespace qgen::quantize {

// Adds the matrices of source.checkpoint and what is copied. Multipliers of inputs go into the columns of the matrices
// behind them, smoothed norms into columns and biases, a method's bias becomes X.bias. A model Error where a run would
// refuse the checkpoint, or an unquantized model of its family cannot say what it computes.
void add_quantized(Source& source);

// The plan of the model that the matrices and vectors of a quantized source are of; without their values.
std::unique_ptr<Plan> plan_of(const Source& source);

}  // namespace qgen::quantize
