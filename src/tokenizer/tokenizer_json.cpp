// tokenizer.json, read as `tokenizers` reads it: each stage by its own reader, the model here. Truncation
// and padding are not for us.
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/loaders.h"
#include "tokenizer/model_json.h"
#include "tokenizer/pipeline.h"

namespace qgen::tokenizer {

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& subject,
                                                const ConfigTokens& config) {
  const MatchTime limited(text.size());  // of normalizers on added tokens
  const auto document = JsonDocument::parse(text, subject);
  const Json root = document->root();
  if (const auto version = root.get("version"); version && version->as_string() != "1.0") {
    version->fail(fmt::format("'{}' is not supported (expected 1.0)", version->as_string()));
  }
  Stages stages(read_model(root.at("model")));
  if (const auto json = root.get("normalizer")) stages.normalizers = read_normalizers(*json);
  if (const auto json = root.get("pre_tokenizer")) stages.pre_tokenizers = read_pre_tokenizers(*json);
  if (const auto json = root.get("post_processor")) stages.post_processors = read_post_processors(*json);
  if (const auto json = root.get("decoder")) {
    stages.decoders = read_decoders(*json);
  } else {
    stages.decoders.emplace_back(DecodeJoin());
  }
  if (const auto json = root.get("added_tokens")) stages.added.add(read_added_tokens(*json), stages.vocabulary());
  stages.added.add_beside(config, stages.vocabulary());
  return std::make_unique<Pipeline>(std::move(stages));
}

std::unique_ptr<Tokenizer> load_tokenizer_json(const ModelFiles& files) {
  return parse_tokenizer_json(files.read("tokenizer.json"), files.subject("tokenizer.json"), read_config_tokens(files));
}

}  // namespace qgen::tokenizer
