// Qwen2 and Qwen2.5: Llama with biases on q, k and v, and a sliding window on the last layers where
// use_sliding_window asks for it. transformers: models/qwen2.
#include <fmt/format.h>

#include "model/families/table.h"

namespace qgen {
namespace {

std::vector<int64_t> read_windows(const Json& config, int64_t layers) {
  std::vector<int64_t> windows(layers, 0);
  const auto use = config.get("use_sliding_window");
  if (!use || !use->as_bool()) return windows;
  int64_t window = 4096;
  if (const auto value = config.find("sliding_window")) {
    if (value->is_null()) return windows;
    window = value->as_integer(1);
  }
  if (const auto types = config.get("layer_types")) {
    const auto list = types->elements();
    if (int64_t(list.size()) != layers) types->fail(fmt::format("expected {} entries, found {}", layers, list.size()));
    for (int64_t i = 0; i < layers; ++i) {
      const std::string_view type = list[i].as_string();
      if (type == "sliding_attention") {
        windows[i] = window;
      } else if (type != "full_attention") {
        list[i].fail(fmt::format("'{}' is not supported", type), "supported: full_attention, sliding_attention");
      }
    }
    return windows;
  }
  int64_t first = 28;
  if (const auto value = config.get("max_window_layers")) first = value->as_integer(0);
  for (int64_t i = first; i < layers; ++i) windows[i] = window;
  return windows;
}

}  // namespace

Description describe_qwen2(const Json& config) {
  Description model = describe_decoder(config, "qwen2");
  model.qkv_bias = true;
  if (!config.find("max_position_embeddings")) {
    model.context = 32768;
    model.rope = read_rope(config, model.context);
  }
  model.window = read_windows(config, model.layers);
  return model;
}

}  // namespace qgen
