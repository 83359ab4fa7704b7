// Any bytes as a GGUF file: an Error, or tensors that lie inside the file one after the other, and a model whose texts
// are read like those of a folder.
#include <cstdlib>

#include "base/config_tokens.h"
#include "chat/template.h"
#include "model/families/table.h"
#include "model/gguf_model.h"
#include "tests/fuzz/support.h"
#include "tokenizer/tokenizer.h"

using qgen::fuzz::expect_model_error;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const qgen::fuzz::MemoryLimit limit(size, 1024, 96 << 20);
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  expect_model_error([&] {
    qgen::Gguf parsed = qgen::Gguf::parse(file, "fuzz");
    const std::byte* position = file.data();
    for (const qgen::TensorView& tensor : parsed.tensors()) {
      if (tensor.bytes.data() < position || tensor.bytes.size() > size) std::abort();
      position = tensor.bytes.data() + tensor.bytes.size();
      if (position > file.data() + size) std::abort();
    }
    std::vector<qgen::Gguf> parts;
    parts.push_back(std::move(parsed));
    const auto model = std::make_shared<const qgen::GgufModel>(qgen::GgufParts(std::move(parts)));
    expect_model_error([&] {
      qgen::describe(qgen::JsonDocument::parse(model->config_json(), "config.json")->root());
      model->tensors();
    });
    const qgen::ModelFiles files = qgen::GgufModel::files(model);
    expect_model_error([&] { qgen::ChatTemplate::load(files); });
    expect_model_error([&] { qgen::read_config_tokens(files).names; });
    expect_model_error([&] {
      const auto tokenizer = qgen::Tokenizer::load(files);
      tokenizer->decode(tokenizer->encode("a b 12").ids);
    });
  });
  return 0;
}
