// What is not supported is refused by name, before anything is computed.
#include "engine/engine_table.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

TEST_CASE("unsupported methods and families are model errors that name the file") {
  const SharedFixtures fixtures = shared_fixtures();
  if (fixtures.unsupported.empty()) MESSAGE("skipped: the shared fixtures, which are not there (QGEN_SHARED)");
  for (const fs::path& folder : fixtures.unsupported) {
    INFO(folder.string());
    ErrorKind kind = ErrorKind::kRuntime;
    const fs::path model = fs::exists(folder / "config.json") ? folder : folder / "model";
    const std::string message = error_of([&] { load_plan(model); }, &kind);
    CHECK(kind == ErrorKind::kModel);
    CHECK(message.find(folder.filename().string()) != message.npos);
  }
}

}  // namespace
}  // namespace qgen::test
