// Any bytes as config.json and as an index: an Error, or a description within the limits.
#include <cstdlib>

#include "checkpoint/checkpoint.h"
#include "model/families/table.h"
#include "quant/formats.h"
#include "tests/fuzz/support.h"

using qgen::fuzz::expect_model_error;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect_model_error([&] {
    const auto document = qgen::JsonDocument::parse(text, "config.json");
    const qgen::Description model = qgen::describe(document->root());
    if (model.layers < 1 || model.window.size() != size_t(model.layers) || model.heads % model.kv_heads != 0)
      std::abort();
    if (qgen::inverse_frequencies(model.rope, model.head_dim, 100).size() != size_t(model.head_dim / 2)) std::abort();
  });
  expect_model_error([&] { qgen::QuantConfig::read(qgen::JsonDocument::parse(text, "config.json")->root()); });
  expect_model_error([&] {
    for (const auto& path : qgen::parse_index(text, "index.json", "/folder").paths) {
      if (path.parent_path() != "/folder") std::abort();
    }
  });
  return 0;
}
