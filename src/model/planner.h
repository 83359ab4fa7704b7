// Turns a description into a plan: binds every weight that it names and lays out rows, states and steps.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/description.h"
#include "model/plan.h"

namespace qgen {

// The plan of a checkpoint, from headers alone. `trust_tensors`: a quant_method that is not known is no error.
// `draft_head`: with its layer that drafts tokens, a usage Error where it has none. Throws a model Error.
std::unique_ptr<Plan> make_plan(Checkpoint checkpoint, bool trust_tensors = false, bool draft_head = false);

// Gives a model the names by which the files know its tensors, where a family has several places for them.
void find_place(Description& model, const std::function<bool(const std::string& tensor)>& has);
// The same where roles may have other names; of all tensors.
void find_other_names(Description& model, const std::set<std::string>& tensors);

// What make_plan() asks a checkpoint for: the (rows, cols) weight of a module, or with no cols a vector by the name of
// its tensor. `has` says which tensors are there, where that is optional (biases, a head of its own).
struct TensorRequest {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stacked = 0;  // so many of them in each tensor; 0: one, without a dimension for it
};
std::vector<TensorRequest> plan_requests(const Description& model, const std::string& name,
                                         const std::function<bool(const std::string& tensor)>& has,
                                         bool draft_head = false);

}  // namespace qgen
