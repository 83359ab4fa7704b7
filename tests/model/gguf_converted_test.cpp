// GGUF files that llama.cpp's own converter wrote give the logits of transformers on the same models
// (tools/gguf_converted_oracle.py).
#include "checkpoint/safetensors.h"
#include "tests/support.h"

namespace qgen::test {

TEST_CASE("gguf: files of llama.cpp's converter, family by family") {
  const fs::path folder = source_folder() / "tests/golden-gguf";
  const FileMap file(folder / "expected.safetensors");
  const auto expected = parse_safetensors(file.bytes(), "expected.safetensors").tensors;
  const auto find = [&](const std::string& name) -> const TensorView& {
    for (const TensorView& tensor : expected) {
      if (tensor.name == name) return tensor;
    }
    FAIL("no tensor " << name);
    return expected.front();
  };
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const TensorView& ids_tensor = find(name + ".ids");
    std::vector<TokenId> ids(size_t(ids_tensor.elements()));
    std::memcpy(ids.data(), ids_tensor.bytes.data(), ids_tensor.bytes.size());
    const std::vector<float> logits = tensor_values(find(name + ".logits"));
    auto plan = load_plan(entry.path());
    CHECK(normwise_error(reference_logits(*plan, ids, int64_t(ids.size())), logits) < 1e-5);
    ++files;
  }
  CHECK(files == 22);
}

}  // namespace qgen::test
