// Mistral's own files: params.json in place of config.json, and consolidated*.safetensors with the names of
// Names::mistral(), whose q and k are rotated in adjacent pairs. Presented as the Hugging Face folder of the same
// model, as GGUF files are.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"

namespace qgen {

// Whether the tensors have Mistral's own names.
bool is_mistral_native(const Checkpoint& checkpoint);

// The config.json that a folder's params.json stands for; null if the folder has a config.json, or neither. A model
// Error for what is not supported.
std::unique_ptr<JsonDocument> mistral_config(const ModelLocation& location);

}  // namespace qgen
