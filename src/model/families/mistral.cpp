// Mistral: Llama with a sliding window where the configuration gives one, on every layer or, in Ministral 8B, on those
// that it names. transformers: models/mistral and models/ministral, whose defaults for absent keys are kept.
// Ministral 3 and Devstral 2: no window, YaRN, and queries that grow with their position. transformers:
// models/ministral3.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_mistral(const Json& config) {
  DecoderDefaults defaults{.kv_heads = 8, .context = 131072};
  allow_class_sizes(config, defaults, 14336);
  DecoderParts parts = read_decoder(config, "mistral", defaults);
  int64_t window = 4096;
  if (const auto value = config.find("sliding_window")) window = value->is_null() ? 0 : value->as_integer(1);
  const auto types = config.get("layer_types");
  parts.windows = types && window > 0 ? read_layer_windows(*types, parts.layers, window)
                                      : std::vector<int64_t>(size_t(parts.layers), window);
  return finish_decoder(std::move(parts));
}

Description describe_ministral3(const Json& config) {
  DecoderParts parts =
      read_decoder(config, "ministral3", {.kv_heads = 8, .head_dim = 128, .context = 262144, .epsilon = 1e-5});
  parts.windows = read_windows(config, parts.layers, 0, 0);
  auto rope = config.get("rope_parameters");
  if (!rope) rope = config.get("rope_scaling");
  if (const auto beta = rope ? rope->get("llama_4_scaling_beta") : std::nullopt) {
    parts.attention.temperature_beta = beta->as_number();
    if (!(parts.attention.temperature_beta >= 0 && parts.attention.temperature_beta <= 1e6))
      beta->fail(fmt::format("{} is out of range (expected 0 to 1e6)", parts.attention.temperature_beta));
    parts.attention.temperature_interval = rope->at("original_max_position_embeddings").as_integer(1, kMaxContext);
  }
  return finish_decoder(std::move(parts));
}

}  // namespace qgen
