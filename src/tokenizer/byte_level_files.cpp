// vocab.json and merges.txt: byte-level BPE as GPT-2 has it.
#include <fmt/format.h>

#include "base/config_tokens.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/loaders.h"
#include "tokenizer/model_json.h"
#include "tokenizer/pipeline.h"

namespace qgen::tokenizer {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";
// Qwen2Tokenizer has this in its code, not in its files.
constexpr std::string_view kQwen2Words =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";

}  // namespace

std::unique_ptr<Tokenizer> load_vocab_and_merges(const ModelFiles& files) {
  const auto document = JsonDocument::parse(files.read("vocab.json"), files.subject("vocab.json"));
  Vocabulary vocabulary = read_vocabulary(document->root());
  MergeReader merges(vocabulary, "", "merges.txt");
  const std::string text = files.read("merges.txt");
  if (!is_utf8(text)) fail(ErrorKind::kModel, "merges.txt: not valid UTF-8");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) merges.add(line);
    at = end + 1;
  }

  ConfigTokens config = read_config_tokens(files);
  const bool is_qwen2 = config.tokenizer_class.starts_with("Qwen2");
  Stages stages(Bpe(std::move(vocabulary), merges.take(), {}));
  if (is_qwen2) stages.normalizers.emplace_back(UnicodeForm::kNfc);
  if (is_qwen2) {
    Pattern words;
    words.regex.emplace(kQwen2Words);
    stages.pre_tokenizers.emplace_back(SplitPattern{std::move(words), SplitBehavior::kIsolated, false});
  }
  stages.pre_tokenizers.emplace_back(
      SplitByteLevel{config.add_prefix_space.value_or(false), !is_qwen2, true, byte_level_regex()});
  stages.decoders.emplace_back(DecodeByteLevel());
  if (config.specials.empty() && config.tokens.empty() && stages.vocabulary().find(kEndOfText) >= 0) {
    AddedToken end;
    end.content = kEndOfText;
    end.special = true;
    config.specials[end.content] = end;
  }
  stages.added.add_all(config, stages.vocabulary());
  const auto bos = id_of_name(config, "bos_token", stages.added, stages.vocabulary());
  if (config.add_bos_token.value_or(false) && bos) {
    stages.post_processors.emplace_back(PostTemplate{{{false, {*bos}}, {true, {}}}, false});
  }
  return std::make_unique<Pipeline>(std::move(stages));
}

}  // namespace qgen::tokenizer
