// Any bytes as statistics of inputs: refused with a usage Error, or shares from 0 to 1 that are written as they are
// read.
#include "quantize/statistics.h"
#include "tests/fuzz/support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 256, 1 << 20);
  qgen::fuzz::expect_error({qgen::ErrorKind::kUsage}, [&] {
    const auto read = qgen::quantize::InputStatistics::parse(qgen::fuzz::text_of(data, size), "stats.json");
    for (const auto& [name, maxima] : read.maxima()) {
      bool mismatch = false;
      std::string_view module = name;
      if (!module.ends_with(".weight")) continue;
      module.remove_suffix(std::string_view(".weight").size());
      for (const float share : read.weights_of(module, int64_t(maxima.size()), mismatch)) {
        if (!(share >= 0 && share <= 1)) std::abort();
      }
      if (mismatch) std::abort();
    }
    const auto again = qgen::quantize::InputStatistics::parse(read.json(), "written");
    if (again.size() != read.size()) std::abort();
  });
  return 0;
}
