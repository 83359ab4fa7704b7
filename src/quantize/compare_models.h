// Two checkpoints of one model, in any two formats, matrix by matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/plan.h"
#include "quantize/job.h"

namespace qgen::quantize {

// How close the matrices of `plan` are to those of `reference`, for all that are quantized in one of them or differ:
// matched by the steps that use them. The weights are repacked and freed one after the other. `told`: after each, of so
// many. A model Error where the two are not of one shape. Rows of q and k that are laid out for another rotation are
// found.
std::vector<Comparison> compare_models(Plan& plan, Plan& reference,
                                       const std::function<void(size_t done, size_t all)>& told = {});

// A vector (of a norm, a bias, of sinks) that differs by more than the rounding of the types it is stored in. One that
// only one of the two has counts unless it is all zeros.
struct VectorDifference {
  std::string name;
  int64_t size = 0;
  double largest_error = 0;
};
// Those of two plans with the same steps; none of others, where something was moved between vectors and matrices.
std::vector<VectorDifference> compare_vectors(const Plan& plan, const Plan& reference);

// The first step in which two plans compute something else, whatever their weights are: "layer 3: attend"; "" where
// they compute the same.
std::string different_step(const Plan& plan, const Plan& reference);
// The same of a plan that is yet to be made; where that cannot be, why.
std::string different_step(const std::function<std::unique_ptr<Plan>()>& make, const Plan& reference);

}  // namespace qgen::quantize
