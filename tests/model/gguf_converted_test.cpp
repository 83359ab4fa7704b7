// GGUF files that llama.cpp's own converter wrote give the logits of transformers on the same models
// (tools/gguf_converted_oracle.py).
#include <cmath>

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
  CHECK(files == 25);
}

// A file of the folder in which one text stands in the place of another of the same length.
fs::path changed(const TemporaryFolder& folder, const char* name, const std::string& from, const std::string& to) {
  std::string bytes = read_file(source_folder() / "tests/golden-gguf" / name);
  REQUIRE(from.size() == to.size());
  REQUIRE(contains(bytes, from));
  bytes.replace(bytes.find(from), from.size(), to);
  return folder.write(name, bytes);
}

TEST_CASE("gguf: what an absent or empty key of a hybrid means") {
  const TemporaryFolder folder;
  // Scores of Granite without a factor of their own are scaled by the length of a head, 8.
  const auto granite = load_plan(
      changed(folder, "granite_hybrid.gguf", "granitehybrid.attention.scale", "granitehybrid.attention.other"));
  int attentions = 0;
  for (const Step& step : granite->steps) {
    if (const auto* attend = std::get_if<AttendStep>(&step.op)) {
      CHECK(attend->scale == doctest::Approx(1 / std::sqrt(8.0)));
      ++attentions;
    }
  }
  CHECK(attentions == 1);
  // No groups.
  const std::string count = "nemotron_h_moe.expert_group_count" + std::string("\x04\0\0\0", 4);
  const auto with = [&](char groups) { return count + std::string{groups, 0, 0, 0}; };
  CHECK(load_plan(changed(folder, "nemotron_h.gguf", with(1), with(0)))->steps.size() > 0);
  const std::string latent = error_of([&] {
    load_plan(changed(folder, "nemotron_h.gguf", "nemotron_h_moe.ssm.group_count", "nemotron_h_moe.moe_latent_size"));
  });
  CHECK(contains(latent, "experts between two projections of a latent are not supported"));
}

}  // namespace qgen::test
