#include "quantize/selection.h"

#include <doctest/doctest.h>

#include "quantize/recipe.h"

namespace qgen::quantize {
namespace {

std::string_view reason_of(const std::string& name) {
  Recipe recipe;
  recipe.format = Format::kInt8;
  const Candidate matrix{name, 256, 256};
  return reasons_to_keep({&matrix, 1}, {}, recipe).front();
}

TEST_CASE("tables, routers and heads of all families stay as they are") {
  for (const char* name : {"model.embed_tokens", "model.embed_tokens_per_layer", "backbone.embeddings",
                           "transformer.embedding.word_embeddings", "transformer.wte"}) {
    INFO(name);
    CHECK(reason_of(name) == "embedding");
  }
  for (const char* name :
       {"model.layers.0.mlp.gate", "model.layers.0.block_sparse_moe.gate", "backbone.layers.1.mixer.gate",
        "model.layers.0.router.proj", "language_model.model.layers.0.feed_forward.router"}) {
    INFO(name);
    CHECK(reason_of(name) == "router or gate");
  }
  CHECK(reason_of("model.per_layer_model_projection") == "sensitive to rounding");
  CHECK(reason_of("language_model.lm_head") == "output head");
}

TEST_CASE("matrices of linear layers and experts are chosen") {
  for (const char* name : {"model.layers.0.self_attn.q_proj", "backbone.layers.0.mixer.in_proj",
                           "backbone.layers.1.mixer.experts.3.up_proj", "model.layers.0.experts.2.down_proj",
                           "model.layers.0.per_layer_projection"}) {
    INFO(name);
    CHECK(reason_of(name) == "");
  }
}

}  // namespace
}  // namespace qgen::quantize
