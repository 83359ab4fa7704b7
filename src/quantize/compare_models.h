// Two checkpoints of one model, in any two formats, matrix by matrix.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "model/plan.h"
#include "quantize/job.h"

namespace qgen::quantize {

// How close the matrices of `plan` are to those of `reference`, for all that are quantized in one of them or differ:
// matched by the steps that use them. The weights are repacked and freed one
// after the other. `told`: after each, of so many. A model Error where the two are not of one shape.
std::vector<Comparison> compare_models(Plan& plan, Plan& reference,
                                       const std::function<void(size_t done, size_t all)>& told = {});

}  // namespace qgen::quantize
