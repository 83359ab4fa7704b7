#include <doctest/doctest.h>

#include "engine/engine.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("a context beyond what a model can see at all is refused") {
  struct Limited {
    const char* golden;
    int64_t tokens;
    const char* reason;
  };
  for (const Limited& limited : {Limited{"gpt2-bf16", 40, "the model's table of positions"},
                                 {"glm_moe_dsa-bf16", 512, "choosing among more keys is not supported"},
                                 {"deepseek_v32-bf16", 512, "choosing among more keys is not supported"}}) {
    INFO(limited.golden);
    const auto plan = load_plan(source_folder() / "tests/golden" / limited.golden);
    CHECK(plan->model.context <= limited.tokens);
    CHECK(error_of([&] { make_engine(*plan, "reference", limited.tokens); }).empty());
    ErrorKind kind{};
    const std::string error = error_of([&] { make_engine(*plan, "reference", limited.tokens + 1); }, &kind);
    CHECK(kind == ErrorKind::kUsage);
    CHECK(contains(error, limited.reason));
    CHECK(contains(error, "expected at most " + std::to_string(limited.tokens) + " tokens"));
  }
}

TEST_CASE("the tensors of an indexer are listed as unused") {
  const auto plan = load_plan(source_folder() / "tests/golden/glm_moe_dsa-fp8");
  size_t parts = 0;
  for (const auto& ignored : plan->ignored) parts += contains(ignored.tensor, ".indexer.") ? 1 : 0;
  CHECK(parts == 2 * 7);  // wq_b and wk with scales, k_norm with its bias, weights_proj, of two layers
}

}  // namespace
}  // namespace qgen::test
