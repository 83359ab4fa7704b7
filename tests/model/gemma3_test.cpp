// Gemma 3 as multimodal checkpoints hold it: its config.json in text_config, its tensors deeper, others beside them.
#include "engine/engine_table.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

std::string with_prefix(std::string header, std::string_view prefix) {
  for (size_t at = 0; (at = header.find("\"model.", at)) != header.npos; at += prefix.size())
    header.replace(at, std::string_view("\"model.").size(), "\"" + std::string(prefix));
  return header;
}

TEST_CASE("Gemma 3: the text part of multimodal files") {
  const Golden golden = Golden::read(source_folder() / "tests/golden/gemma3-fp8");
  const std::string file = read_file(golden.folder / "model.safetensors"),
                    config = read_file(golden.folder / "config.json");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  std::string header = file.substr(8, header_bytes), data = file.substr(8 + header_bytes);
  header.resize(header.rfind('}'));
  header += R"(,"vision_tower.patch.weight":{"dtype":"F32","shape":[1],"data_offsets":[)" +
            std::to_string(data.size()) + "," + std::to_string(data.size() + 4) + "]}}";
  data += std::string(4, '\0');
  // The quantization is said at the top.
  const size_t last_key = config.find("  \"quantization_config\"");
  REQUIRE(last_key != config.npos);
  const std::string text_config = config.substr(0, config.rfind(',', last_key)), quantization = config.substr(last_key);
  for (const std::string_view prefix : {"language_model.model.", "model.language_model."}) {
    INFO(std::string(prefix));
    TemporaryFolder folder;
    folder.write("config.json", R"({"model_type":"gemma3","architectures":["Gemma3ForConditionalGeneration"],)"
                                R"("vision_config":{"hidden_size":8},"text_config":)" +
                                    text_config + "},\n" + quantization);
    folder.write("model.safetensors", safetensors_file(with_prefix(header, prefix), data));
    CHECK(normwise_error(reference_logits(*load_plan(folder.path()), golden.ids, int64_t(golden.ids.size())),
                         golden.logits) < golden.reference_tolerance);
  }
}

}  // namespace
}  // namespace qgen::test
