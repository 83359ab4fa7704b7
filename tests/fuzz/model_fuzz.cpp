// Any config.json with any header of a safetensors file, and data that fits it: the binder, the planner and the
// reference engine refuse it, or run it.
#include <algorithm>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/tiny_model.h"

namespace {

constexpr int64_t kMostData = 1 << 17;

// The bytes of data that a header asks for; more than kMostData for one that is no header.
int64_t data_bytes(std::string_view header) {
  int64_t most = 0;
  const auto document = qgen::JsonDocument::parse(header, "header");
  for (const auto& [name, entry] : document->root().members()) {
    if (name == "__metadata__") continue;
    const auto offsets = entry.at("data_offsets").elements();
    if (offsets.size() != 2) return kMostData + 1;
    most = std::max(most, offsets[1].as_integer(0));
  }
  return most;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = qgen::fuzz::parts_of(qgen::fuzz::text_of(data, size), 2);
  if (parts.size() < 2) return 0;
  const qgen::fuzz::MemoryLimit limit(size + kMostData, 64, 16 << 20);
  qgen::fuzz::expect_error(qgen::fuzz::kRunErrors, [&] {
    const int64_t bytes = data_bytes(parts[1]);
    if (bytes > kMostData) return;
    // Small numbers in most types, and now and then an odd one.
    std::string file(8, '\0');
    const uint64_t header = parts[1].size();
    for (int i = 0; i < 8; ++i) file[size_t(i)] = char(header >> 8 * i);
    file += parts[1];
    for (int64_t i = 0; i < bytes; ++i) file += i % 2 == 0 ? char(i * 37) : i % 997 == 1 ? '\xFF' : '\x3C';
    qgen::Safetensors parsed =
        qgen::parse_safetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "model.safetensors");
    auto config = qgen::JsonDocument::parse(parts[0], "config.json");
    qgen::fuzz::run_reference(qgen::Checkpoint::assemble({"fuzz", "fuzz", {}, {}}, qgen::ModelFiles("fuzz", {}),
                                                         std::move(config), std::move(parsed.tensors)));
  });
  return 0;
}
