// EXAONE 4: norms behind the branches instead of before them, norms of the heads of q and k; where some layers have a
// window, the others have no rotation. transformers: models/exaone4.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_exaone4(const Json& config) {
  DecoderParts parts = read_decoder(config, "exaone4", {.epsilon = 1e-5});
  parts.attention.q_norm = parts.attention.k_norm = parts.norm;
  // GGUF files of models without windows have no key.
  const int64_t window = is_from_gguf(config) ? 0 : 4096;
  parts.windows = read_windows(config, parts.layers, window, 4);
  const auto own_window = config.find("sliding_window");
  const bool windows = own_window ? !own_window->is_null() : window > 0;
  Description model = finish_decoder(std::move(parts));
  add_post_norms(model, /*instead=*/true);
  for (auto& layer : model.layers) attention_of(layer).rope = windows && attention_of(layer).window == 0 ? -1 : 0;
  return model;
}

}  // namespace qgen
