#include "quantize/selection.h"

#include <doctest/doctest.h>

#include "base/error.h"
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

// The reasons of matrices of these names, all of one size, with these patterns left as they are.
std::vector<std::string_view> reasons_of(const std::vector<std::string>& names, const std::vector<std::string>& keep,
                                         Format format = Format::kInt8) {
  Recipe recipe;
  recipe.format = format;
  std::vector<Candidate> matrices;
  for (const std::string& name : names) matrices.push_back({name, 256, 256});
  return reasons_to_keep(matrices, {keep, {}}, recipe);
}

TEST_CASE("what engines fuse is quantized together or not at all") {
  const std::string_view fused = "fused with one that is kept", kept = "deselected";
  using Reasons = std::vector<std::string_view>;
  CHECK(reasons_of({"l.0.q_a_proj", "l.0.kv_a_proj_with_mqa", "l.0.q_b_proj"}, {"kv_a"}) == Reasons{fused, kept, ""});
  CHECK(reasons_of({"l.0.mlp.experts.0.up_proj", "l.0.mlp.experts.1.down_proj", "l.1.mlp.experts.0.up_proj",
                    "l.0.mlp.shared_experts.up_proj"},
                   {"l.0.mlp.experts.0.up_proj"}) == Reasons{kept, fused, "", ""});
  // A GGUF file has a type for each tensor.
  CHECK(reasons_of({"l.0.q_proj", "l.0.k_proj"}, {"k_proj"}, Format::kQ8_0) == Reasons{"", kept});
}

TEST_CASE("a pattern is a part of a name, or with wildcards all of it; one that fits nothing is an error") {
  const std::vector<Candidate> matrices = {{"model.layers.0.self_attn.q_proj", 64, 64},
                                           {"model.layers.0.mlp.up_proj", 64, 64}};
  const auto error_of = [&](const Selection& selection) -> std::string {
    try {
      check_patterns(matrices, selection);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kUsage);
      return error.message();
    }
    return "";
  };
  for (const char* pattern : {"q_proj", "q_proj.weight", "*.q_proj", "model.layers.?.mlp.*.weight", "layers.0"})
    CHECK(error_of({{pattern}, {}}) == "");
  CHECK(error_of({{"mlp", "q_proj*"}, {}}) == "--keep q_proj*: no matrix has such a name");
  CHECK(error_of({{}, {"layers.1"}}) == "--only layers.1: no matrix has such a name");
}

}  // namespace
}  // namespace qgen::quantize
