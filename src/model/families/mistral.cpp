// Mistral: Llama with a sliding window on every layer where the configuration gives one.
// transformers: models/mistral, whose defaults for an absent window and context are kept.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_mistral(const Json& config) {
  DecoderParts parts = read_decoder(config, "mistral", {.context = 131072});
  int64_t window = 4096;
  if (const auto value = config.find("sliding_window")) window = value->is_null() ? 0 : value->as_integer(1);
  parts.windows.assign(size_t(parts.layers), window);
  return finish_decoder(std::move(parts));
}

}  // namespace qgen
