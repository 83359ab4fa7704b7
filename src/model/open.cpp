#include "model/open.h"

#include "model/gguf_model.h"
#include "model/mistral_files.h"

namespace qgen {

Checkpoint open_checkpoint(const ModelLocation& location, bool headers_only) {
  if (location.gguf_files.empty()) {
    auto config = mistral_config(location);
    return Checkpoint::open(location, config != nullptr ? std::move(config) : read_config(location), headers_only);
  }
  const auto gguf = GgufModel::open(location.gguf_files, headers_only);
  ModelFiles files = GgufModel::files(gguf);
  auto config = JsonDocument::parse(gguf->config_json(), files.subject("config.json"));
  return Checkpoint::assemble(location, std::move(files), std::move(config), gguf->tensors(), gguf->incomplete());
}

ModelFiles model_files(const ModelLocation& location) {
  if (location.gguf_files.empty()) return ModelFiles(location.folder);
  return GgufModel::files(GgufModel::open(location.gguf_files));
}

}  // namespace qgen
