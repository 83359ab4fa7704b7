// Sessions: what of a text is computed, and when.
#include "generate/session.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("a session computes only what is new") {
  const auto plan = load_plan(source_folder() / "models/stories260K-FP8");
  EngineOptions options{.context = 64};
  const auto engine = find_engine("reference", options).make_engine(*plan, options);
  Session session(*engine, 64);
  const std::vector<TokenId> first = {1, 10, 20, 30}, second = {1, 10, 21, 31, 41};
  session.sync(first);
  session.append(40);
  CHECK(session.tokens().size() == 5);
  const std::span<const float> logits = session.sync(second);
  const std::vector<float> got(logits.begin(), logits.end());
  CHECK(session.tokens().size() == 5);
  auto fresh = make_engine(*plan, "reference", 64);
  const std::span<const float> expected = fresh->prefill(second);
  CHECK(std::equal(got.begin(), got.end(), expected.begin()));
  // The same text again runs its last token once more, for the scores.
  session.sync(second);
  CHECK(session.tokens().size() == 5);
  CHECK(contains(error_of([&] { session.sync({}); }), "empty"));
}

}  // namespace
}  // namespace qgen::test
