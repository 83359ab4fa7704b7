// Seed-OSS: Llama with biases on q, k and v and a head_dim of its own. transformers: models/seed_oss.
#include "model/families/common.h"
#include "model/families/table.h"

namespace qgen {

Description describe_seed_oss(const Json& config) {
  DecoderParts parts = read_decoder(config, "seed_oss", {.kv_heads = 8, .head_dim = 128, .context = 524288});
  read_biases(config, parts, /*qkv=*/true);
  parts.attention.out_bias = config.flag_or("attention_out_bias", false);
  Description model = finish_decoder(std::move(parts));
  model.gguf_names = {{Role::kFfnNorm, "blk.#.post_attention_norm"}};
  return model;
}

}  // namespace qgen
