// A sequence's scores do not depend on those that run beside it, whatever a model is made of.
#include "tests/together.h"

#include "cpu/isa/targets.h"

namespace qgen::test {
namespace {

TEST_CASE("cpu: several sequences of every kind of model come out as each alone, bit by bit") {
  for (const char* golden : kMixedGoldens) {
    const auto plan = load_plan(source_folder() / "tests/golden" / golden);
    for (const cpu::IsaTarget* target : cpu::targets()) {
      if (!target->supported()) continue;
      INFO(std::string(golden), " ", std::string(target->name));
      check_together(*plan, [&](const Plan& p, EngineOptions options) {
        const EngineRow& row = find_engine(std::string("cpu:") + target->name, options);
        return row.make_engine(p, options);
      });
    }
  }
}

TEST_CASE("cpu: a sequence whose keys or values overflow the cache ends alone") {
  for (const cpu::IsaTarget* target : cpu::targets()) {
    if (!target->supported()) continue;
    INFO(std::string(target->name));
    check_overflow([&](const Plan& plan, EngineOptions options) {
      const EngineRow& row = find_engine(std::string("cpu:") + target->name, options);
      return row.make_engine(plan, options);
    });
  }
}

}  // namespace
}  // namespace qgen::test
