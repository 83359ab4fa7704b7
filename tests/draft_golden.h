// Checkpoints with a layer that drafts tokens, and what it guesses (tools/draft_oracle.py).
#pragma once

#include <cstring>

#include "tests/support.h"

namespace qgen::test {

struct DraftGolden {
  fs::path folder;
  std::vector<TokenId> ids;
  std::vector<float> logits;         // (ids, vocab), of the model
  std::vector<float> first, second;  // (ids - 1, vocab): of the guess behind ids [0, t + 2), and of the next one

  static DraftGolden read(const fs::path& folder) {
    DraftGolden out;
    out.folder = folder;
    const auto document = JsonDocument::parse(read_file(folder / "expected/expected.json"), "expected.json");
    for (const Json& id : document->root().at("ids").elements()) out.ids.push_back(TokenId(id.as_integer()));
    const fs::path path = folder / "expected/draft.safetensors";
    const FileMap file(path);
    for (const TensorView& tensor : parse_safetensors(file.bytes(), path.string()).tensors) {
      std::vector<float>& values = tensor.name == "logits"  ? out.logits
                                   : tensor.name == "first" ? out.first
                                                            : out.second;
      values.resize(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    }
    return out;
  }
  static std::vector<DraftGolden> all() {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(source_folder() / "tests/golden-draft"))
      if (entry.is_directory()) folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end());
    std::vector<DraftGolden> out;
    for (const fs::path& folder : folders) out.push_back(read(folder));
    return out;
  }
  std::span<const float> row(const std::vector<float>& rows, size_t t) const {
    const size_t vocab = logits.size() / ids.size();
    return std::span(rows).subspan(t * vocab, vocab);
  }
};

// The guesses behind each beginning of the text, which comes in calls of different lengths: within `limit` of what is
// expected, and drafting leaves the model's own scores as they are.
inline void check_drafts(Engine& engine, const DraftGolden& golden, double limit) {
  INFO(golden.folder.filename().string());
  Sequence sequence(engine, int64_t(golden.ids.size()) + 4);
  CHECK(sequence.draft(0, golden.ids[0], 2).empty());  // there is nothing before the first token
  std::vector<float> logits, first, second;
  for (size_t position = 0, count = 1; position + 1 < golden.ids.size(); position += count, count = count % 4 + 1) {
    count = std::min(count, golden.ids.size() - 1 - position);
    sequence.run(std::span(golden.ids).subspan(position, count),
                 [&](int64_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
    const size_t end = position + count;
    std::vector<std::vector<float>> guessed;
    const auto tokens = engine.draft(sequence.id(), int64_t(end), golden.ids[end], 2, [&](const Scores& scores) {
      guessed.emplace_back(scores.all().begin(), scores.all().end());
    });
    INFO("behind token ", end);
    REQUIRE(tokens.size() == 2);
    REQUIRE(guessed.size() == 2);
    const std::span<const float> expected = golden.row(golden.first, end - 1);
    CHECK(tokens[0] == std::max_element(expected.begin(), expected.end()) - expected.begin());
    CHECK(normwise_error(guessed[0], expected) < limit);
    CHECK(normwise_error(guessed[1], golden.row(golden.second, end - 1)) < limit);
  }
  CHECK(normwise_error(logits, std::span(golden.logits).first(logits.size())) < limit);
}

}  // namespace qgen::test
