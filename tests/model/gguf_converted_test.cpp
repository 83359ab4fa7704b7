// GGUF files that llama.cpp's own converter wrote give the logits of transformers on the same models
// (tools/gguf_converted_oracle.py).
#include <cmath>

#include "checkpoint/safetensors.h"
#include "model/families/table.h"
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
  CHECK(files == 56);
}

// A file of the folder in which one text stands in the place of another of the same length.
fs::path changed(const TemporaryFolder& folder, const char* name, const std::string& from, const std::string& to) {
  std::string bytes = read_file(source_folder() / "tests/golden-gguf" / name);
  REQUIRE(from.size() == to.size());
  REQUIRE(contains(bytes, from));
  bytes.replace(bytes.find(from), from.size(), to);
  return folder.write(name, bytes);
}

TEST_CASE("gguf: a temperature of Mistral 4 is read with YaRN, and refused without") {
  const TemporaryFolder folder;
  // Keys of the same length and type: beta is 0.1 then.
  const fs::path model = changed(folder, "mistral4.gguf", "rope.scaling.yarn_beta_slow", "attention.temperature_scale");
  int attentions = 0;
  const auto plan = load_plan(model);
  const Description description = describe(plan->checkpoint.config());
  for (const BlockSpec& block : description.layers.front()) {
    if (const auto* latent = std::get_if<LatentSpec>(&block.mixer)) {
      CHECK(latent->temperature_beta == doctest::Approx(0.1));
      CHECK(latent->temperature_interval == 8);
      ++attentions;
    }
  }
  CHECK(attentions == 1);
  std::string bytes = read_file(model);
  const std::string yarn = std::string("\x04\0\0\0\0\0\0\0", 8) + "yarn";
  REQUIRE(contains(bytes, yarn));
  bytes.replace(bytes.find(yarn) + 8, 4, "none");
  const fs::path without = folder.write("none.gguf", bytes);
  CHECK(contains(error_of([&] { load_plan(without); }), "mistral4.attention.temperature_scale: 0.1"));
}

TEST_CASE("gguf: how many keys an indexer chooses limits the context") {
  for (const char* name : {"deepseek_v32.gguf", "glm_moe_dsa.gguf"})
    CHECK(load_plan(source_folder() / "tests/golden-gguf" / name)->model.context_limit.tokens == 512);
}

TEST_CASE("gguf: experts that a family does not have are refused") {
  const TemporaryFolder folder;
  const auto error_with = [&](const char* name, const std::string& key, char from, char to) {
    const std::string type("\x04\0\0\0", 4);  // an unsigned integer
    return error_of([&] { load_plan(changed(folder, name, key + type + from, key + type + to)); });
  };
  CHECK(contains(error_with("deepseek_v32.gguf", "deepseek32.expert_gating_func", 2, 1),
                 "1 is not supported (expected 2)"));
  CHECK(contains(error_with("hunyuan_moe.gguf", "hunyuan-moe.expert_shared_feed_forward_length", 40, 80),
                 "80 is not supported (expected 40)"));
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
    load_plan(changed(folder, "nemotron_h.gguf", "nemotron_h_moe.ssm.conv_kernel", "nemotron_h_moe.moe_latent_size"));
  });
  INFO(latent);
  CHECK(contains(latent, "blk.1.ffn_latent_down"));
}

TEST_CASE("gguf: keys of Gemma 4 that are missing, or say what llama.cpp would not compute") {
  const TemporaryFolder folder;
  const auto error = [&](const char* name, const std::string& from, const std::string& to) {
    return error_of([&] { load_plan(changed(folder, name, from, to)); });
  };
  const auto u32 = [](const std::string& key, char value) {
    return key + std::string("\x04\0\0\0", 4) + std::string{value, 0, 0, 0};
  };
  const auto number = [&](const std::string& key, char from, char to) {
    return error("gemma4.gguf", u32("gemma4." + key, from), u32("gemma4." + key, to));
  };
  const auto without = [&](const std::string& key) {
    std::string other = key;
    other.back() = '#';
    return error("gemma4.gguf", key, other);
  };
  CHECK(contains(number("attention.sliding_window", 6, 0), "key gemma4.attention.sliding_window"));
  CHECK(contains(without("gemma4.attention.key_length_swa"), "key gemma4.attention.key_length_swa: missing"));
  CHECK(contains(without("gemma4.attention.sliding_window_pattern"), "sliding_window_pattern: missing"));
  CHECK(contains(without("rope_freqs.weight"), "tensor rope_freqs.weight is missing"));
  CHECK(contains(number("rope.dimension_count_swa", 12, 6),
                 "rope.dimension_count_swa: not supported (expected 12, the length of a key, found 6)"));
  CHECK(contains(number("rope.dimension_count", 16, 8), "rope.dimension_count: not supported (expected 16"));
  CHECK(contains(number("attention.value_length", 16, 8), "attention.value_length: not supported (expected 16"));
  CHECK(
      contains(number("attention.value_length_swa", 12, 8), "attention.value_length_swa: not supported (expected 12"));
  // An array of two flags, U64 2 of type 7: the last layer gets a window.
  const std::string pattern = "sliding_window_pattern" + std::string("\x09\0\0\0\x07\0\0\0\x02\0\0\0\0\0\0\0", 16);
  CHECK(contains(error("gemma4.gguf", pattern + std::string("\1\0", 2), pattern + std::string("\1\1", 2)),
                 "a last layer with a window is not supported"));
  // Widths 40, 40, 80, 80: the third layer shares its keys, the second does not.
  const auto widths = [](char second, char third) {
    return std::string{40, 0, 0, 0, second, 0, 0, 0, third, 0, 0, 0, 80, 0, 0, 0};
  };
  CHECK(contains(error("gemma4_small.gguf", widths(40, 80), widths(80, 80)),
                 "feed_forward_length: element 1 is not supported (expected 40, found 80)"));
  CHECK(contains(error("gemma4_small.gguf", widths(40, 80), widths(40, 40)), "element 2 is not supported"));
  CHECK(contains(error("gemma4_small.gguf", widths(40, 80), widths(0, 80)), "element 1: 0 is out of range"));
  CHECK(contains(error("gemma4_small.gguf", u32("gemma4.block_count", 4), u32("gemma4.block_count", 3)), "expected 3"));
}

}  // namespace qgen::test
