// Pages of the cache: rings of windows, shares of pools, and sizes that overflow.
#include "engine/cache_pages.h"

#include "tests/support.h"

namespace qgen::test {
namespace {

Plan plan_with(std::vector<State> states) {
  Plan plan;
  plan.states = std::move(states);
  return plan;
}

TEST_CASE("states that keep the same tokens share pages; windows keep a ring of them") {
  const Plan plan =
      plan_with({{State::Kind::kKv, 2, 8, 8, 0}, {State::Kind::kKv, 2, 8, 8, 100}, {State::Kind::kKv, 2, 8, 8, 0}});
  const CacheLayout layout(plan, {.context = 8192, .sequences = 3, .batch = 512});
  REQUIRE(layout.groups().size() == 2);
  CHECK(layout.group_of(0) == layout.group_of(2));
  CHECK(layout.groups()[0].ring == 32);
  CHECK(layout.groups()[0].pages == 96);
  // The window, what may be cut back behind it, a batch, and the page that is begun.
  CHECK(layout.groups()[1].ring == (100 + kWindowSlack + 512 + kPageTokens - 1) / kPageTokens + 1);
  CHECK(layout.pages_for(layout.groups()[0], 257) == 2);
  CHECK(layout.pages_for(layout.groups()[1], 8192) == layout.groups()[1].ring);
}

TEST_CASE("a page is free again when its last sequence lets it go") {
  PagePool pool(2);
  const int32_t first = pool.take();
  pool.share(first);
  pool.release(first);
  CHECK(pool.free() == 1);
  pool.release(first);
  CHECK(pool.free() == 2);
  CHECK(pool.take() == first);
}

TEST_CASE("a cache whose size overflows is a memory error") {
  const Plan plan = plan_with(std::vector<State>(4096, {State::Kind::kKv, 1 << 20, 1 << 20, 1 << 20, 0}));
  ErrorKind kind = ErrorKind::kRuntime;
  const std::string message =
      error_of([&] { CacheLayout(plan, {.context = int64_t{1} << 31, .sequences = 1025}); }, &kind);
  CHECK(message == "key-value cache: its size overflows");
  CHECK(kind == ErrorKind::kMemory);
}

}  // namespace
}  // namespace qgen::test
