// Experts that the files have in stacks, as matrices of their own: so 8-bit checkpoints have them, and servers read
// them.
#pragma once

#include <set>
#include <string>

#include "model/description.h"
#include "quantize/source.h"

namespace qgen::quantize {

// The mixture of a branch, also where a network is beside it; null: none.
const MixtureSpec* mixture_of(const BlockSpec& block);

// Fills in where the values of a matrix are: in the file where they are plain, else in its weight.
void set_weight(SourceMatrix& matrix, Weight weight);

// Adds to source.matrices those of the model's stacks of experts, gates and ups apart, under the names that its family
// has for single ones; gives the names of the tensors that they come from. Stacks stay what they are where a family has
// no such names or, but for source.stacks == kApart, its experts have biases. `quantized`: the type of matrices whose
// weights are codes.
std::set<std::string> add_stacked_experts(Source& source, Dtype quantized);

}  // namespace qgen::quantize
