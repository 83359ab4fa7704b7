// config.json as transformers writes it again (tools/resaved_configs.py) describes the same model.
#include "tests/support.h"

namespace qgen::test {

TEST_CASE("families: a config.json that transformers 5 wrote means the same model") {
  const std::string text = read_file(source_folder() / "tests/golden-configs/transformers5.json");
  const auto document = JsonDocument::parse(text, "transformers5.json");
  const auto configs = document->root().members();
  CHECK(configs.size() > 40);
  for (const auto& [name, config] : configs) {
    CAPTURE(std::string(name));
    const Golden golden = Golden::read(source_folder() / "tests/golden" / name);
    TemporaryFolder folder;
    folder.write("config.json", std::string(config.written_in(text)));
    for (const auto& entry : fs::directory_iterator(golden.folder)) {
      const std::string file = entry.path().filename().string();
      if (file.starts_with("model")) fs::copy(entry.path(), folder.path() / file);
    }
    const auto plan = load_plan(folder.path());
    CHECK(normwise_error(reference_logits(*plan, golden.ids, int64_t(golden.ids.size())), golden.logits) <
          golden.reference_tolerance);
  }
}

}  // namespace qgen::test
