// Any bytes as the parts of a GGUF model, or as a whole one: refused, or a model that the reference engine runs.
#include "model/gguf_model.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/tiny_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 256, 32 << 20);
  const auto inputs = qgen::fuzz::parts_of(qgen::fuzz::text_of(data, size), 4);
  qgen::fuzz::expect_error(qgen::fuzz::kRunErrors, [&] {
    std::vector<qgen::Gguf> parts;
    for (const std::string_view input : inputs) {
      parts.push_back(qgen::Gguf::parse({reinterpret_cast<const std::byte*>(input.data()), input.size()}, "fuzz",
                                        parts.empty() ? 32 : parts.front().alignment()));
    }
    const auto model = std::make_shared<const qgen::GgufModel>(qgen::GgufParts(std::move(parts)));
    auto config = qgen::JsonDocument::parse(model->config_json(), "config.json");
    qgen::fuzz::run_reference(qgen::Checkpoint::assemble(
        {"fuzz", "fuzz", {}, {"fuzz.gguf"}}, qgen::GgufModel::files(model), std::move(config), model->tensors()));
  });
  return 0;
}
