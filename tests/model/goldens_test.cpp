// What the goldens cover: every family by two methods, every method by some checkpoint of its producer's layout.
#include <map>
#include <set>

#include "model/families/table.h"
#include "quant/formats.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

struct Coverage {
  std::map<std::string, std::set<std::string>> methods_of_family;
  std::set<std::string, std::less<>> methods;
};

Coverage coverage_of(const std::vector<fs::path>& folders) {
  Coverage out;
  for (const fs::path& folder : folders) {
    const auto plan = make_plan(open_checkpoint(locate_model(folder.string()), true));
    const Family* const family = find_family(plan->checkpoint.config());
    REQUIRE(family != nullptr);
    out.methods_of_family[std::string(family->name)].insert(plan->method());
    for (const Binder::Binding& binding : plan->bindings) out.methods.emplace(binding.format);
  }
  return out;
}

std::vector<fs::path> own_folders() {
  std::vector<fs::path> out;
  for (const fs::path& folder : golden_folders()) {
    if (folder.parent_path() == source_folder() / "tests/golden") out.push_back(folder);
  }
  return out;
}

TEST_CASE("every family has goldens by two methods") {
  const Coverage coverage = coverage_of(own_folders());
  for (const Family& family : families()) {
    INFO(std::string(family.name));
    const auto found = coverage.methods_of_family.find(std::string(family.name));
    REQUIRE(found != coverage.methods_of_family.end());
    CHECK(found->second.size() >= 2);
  }
}

// Their producers write the shared fixtures; without these, tests/engine/rewritten_test.cpp and the tests of tests/quant
// write such tensors themselves.
constexpr std::string_view kElsewhere[] = {"msmodelslim", "quark", "torchao", "quanto", "modelopt"};

TEST_CASE("every method has a golden, or a fixture of its producer") {
  std::set<std::string, std::less<>> found = coverage_of(own_folders()).methods;
  if (!shared_folder().empty()) {
    const auto all = coverage_of(golden_folders()).methods;
    found.insert(all.begin(), all.end());
  }
  for (const Format& format : formats()) {
    if (format.detect == nullptr) continue;
    const bool elsewhere = std::ranges::find(kElsewhere, format.name) != std::end(kElsewhere);
    INFO(std::string(format.name));
    CHECK((found.contains(format.name) || (elsewhere && shared_folder().empty())));
  }
}

}  // namespace
}  // namespace qgen::test
