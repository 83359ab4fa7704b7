// SmolLM3: Llama without rotation on every fourth layer. transformers: models/smollm3.
#include <fmt/format.h>

#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {
namespace {

// Of each layer, whether it rotates: no_rope_layers says 1 where it does.
std::vector<bool> read_rotated(const Json& config, int64_t layers) {
  std::vector<bool> out;
  if (const auto list = config.get("no_rope_layers")) {
    for (const Json& value : list->elements()) out.push_back(value.as_integer(0, 1) == 1);
    if (int64_t(out.size()) != layers) list->fail(fmt::format("expected {} entries, found {}", layers, out.size()));
    return out;
  }
  const auto interval = config.get("no_rope_layer_interval");
  const int64_t every = interval ? interval->as_integer(1, kMaxLayers) : 4;
  for (int64_t i = 0; i < layers; ++i) out.push_back((i + 1) % every != 0);
  return out;
}

}  // namespace

Description describe_smollm3(const Json& config) {
  DecoderParts parts = read_decoder(config, "smollm3", {.kv_heads = 4, .context = 32768, .rope_theta = 2e6});
  read_biases(config, parts);
  const std::vector<bool> rotated = read_rotated(config, parts.layers);
  const auto window = config.get("sliding_window");
  if (config.flag_or("use_sliding_window", false) && window) {
    const int64_t size = window->as_integer(1, kMaxContext);
    if (const auto types = config.get("layer_types")) {
      parts.windows = read_layer_windows(*types, parts.layers, size);
    } else {
      for (size_t i = 0; i < rotated.size(); ++i) parts.windows[i] = rotated[i] ? 0 : size;
    }
  }
  Description model = finish_decoder(std::move(parts));
  for (size_t i = 0; i < rotated.size(); ++i) attention_of(model.layers[i]).rope = rotated[i] ? 0 : -1;
  if (!model.tied_head) model.tied_head = true;
  return model;
}

}  // namespace qgen
