// A model where it was found, whatever container it lies in.
#pragma once

#include "checkpoint/checkpoint.h"

namespace qgen {

// The tensors under their Hugging Face names and a config.json: as the folder has them, or made from the keys of a GGUF
// model. Throws a model Error.
Checkpoint open_checkpoint(const ModelLocation& location);
// The configuration and the tokenizer, without the weights.
ModelFiles model_files(const ModelLocation& location);

}  // namespace qgen
