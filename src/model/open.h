// A model where it was found, whatever container it lies in.
#pragma once

#include "checkpoint/checkpoint.h"

namespace qgen {

// The tensors and a config.json: as the folder has it, or made from the keys of a GGUF model. `headers_only`: as for
// Checkpoint::open(). Throws a model Error.
Checkpoint open_checkpoint(const ModelLocation& location, bool headers_only = false);
// The configuration and the tokenizer, without the weights.
ModelFiles model_files(const ModelLocation& location);

}  // namespace qgen
