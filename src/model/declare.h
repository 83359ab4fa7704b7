// Checkpoints whose weights are not there: what config.json declares, with the true shapes and the declared method,
// for planning before a download and for measuring speed with random weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "model/plan.h"
#include "model/planner.h"

namespace qgen {

// A checkpoint with the tensors that config.json declares (with hf_quant_config.json where ModelOpt left one) and no
// data: zeros, which take no memory. Where the folder has a model.safetensors.index.json, its names decide what is
// there, as with real files: biases, a head of its own, which modules are quantized. Throws a model Error that names
// the declared method that is not supported. `draft_head`: with the layer that drafts tokens, where the family has one.
// `only_plan`: see Checkpoint::blank().
Checkpoint declare_checkpoint(const ModelLocation& location, bool draft_head = false, bool only_plan = false);

// Whether a folder has a config.json but not (all of) its weight files. Weights in a container that is not
// supported count as there: opening them says so.
bool lacks_weights(const ModelLocation& location);

// A sentence if the index says a total size that differs from the declared one by more than 1 %; else "".
std::string declared_size_note(const Checkpoint& declared);

// Fills the weights of a declared checkpoint's plan with random numbers, on all cores: the same numbers for the same
// seed. They have the scale 1 / sqrt(columns), norms are 1 and biases 0, so activations stay of order one.
// `progress`, where given, is told now and then how many bytes are done.
void fill_randomly(Plan& plan, uint64_t seed, const std::function<void(size_t bytes_done)>& progress = {});

}  // namespace qgen
