// tekken.json, Mistral's own tokenizer: byte-level BPE without a list of merges. Every pair of pieces that make a third
// is merged with the rank of that third, as tiktoken has it. Special tokens have the ids below
// default_num_special_tokens, pieces those after. Source: mistral-common, tokens/tokenizers/tekken.py.
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/loaders.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/text.h"

namespace qgen::tokenizer {
namespace {

constexpr int64_t kMostTokens = 1 << 22;
// Special tokens, each of which may be one that only its number is known of: published files have 1,000.
constexpr int64_t kMostSpecials = 1 << 14;
constexpr size_t kLongestPiece = 1 << 12;  // bytes
// Files before version 7 have these in the code that reads them.
constexpr std::string_view kSpecials[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};
constexpr TokenId kBeginningOfText = 1;

// The special tokens by id; ids that no name is given to are fillers.
std::vector<std::string> read_specials(const Json& root, int64_t count) {
  std::vector<std::string> out;
  for (int64_t id = 0; id < count; ++id) out.push_back(fmt::format("<SPECIAL_{}>", id));
  const auto list = root.get("special_tokens");
  if (!list) {
    for (size_t id = 0; id < std::min(out.size(), std::size(kSpecials)); ++id) out[id] = kSpecials[id];
    return out;
  }
  for (const Json& token : list->elements())
    out[size_t(token.at("rank").as_integer(0, count - 1))] = token.at("token_str").as_string();
  return out;
}

// The bytes of the pieces by rank.
std::vector<std::string> read_pieces(const Json& vocab, int64_t count) {
  std::vector<std::string> out;
  for (const Json& entry : vocab.elements()) {
    if (int64_t(out.size()) == count) break;  // ranks beyond the vocabulary are not used
    const Json rank = entry.at("rank"), bytes = entry.at("token_bytes");
    if (rank.as_integer() != int64_t(out.size())) rank.fail(fmt::format("expected {}: ranks ascend", out.size()));
    auto piece = decode_base64(bytes.as_string());
    if (!piece || piece->empty() || piece->size() > kLongestPiece) bytes.fail("no base64 of a piece");
    out.push_back(std::move(*piece));
  }
  if (int64_t(out.size()) < count) vocab.fail(fmt::format("expected {} pieces, found {}", count, out.size()));
  return out;
}

std::string spelled(std::string_view bytes) {
  std::string out;
  append_byte_level(out, bytes);
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer> load_tekken(const ModelFiles& files) {
  const auto document = JsonDocument::parse(files.read("tekken.json"), files.subject("tekken.json"));
  const Json root = document->root(), config = root.at("config");
  const int64_t specials = config.at("default_num_special_tokens").as_integer(2, kMostSpecials);
  const int64_t tokens = config.at("default_vocab_size").as_integer(specials + 256, kMostTokens);
  const std::vector<std::string> pieces = read_pieces(root.at("vocab"), tokens - specials);
  Vocabulary vocabulary;
  for (size_t rank = 0; rank < pieces.size(); ++rank)
    vocabulary.add(spelled(pieces[rank]), TokenId(specials) + TokenId(rank));
  MergeTable merges;
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    const std::string_view piece = pieces[rank];
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      const TokenId left = vocabulary.find(spelled(piece.substr(0, cut)));
      const TokenId right = left < 0 ? -1 : vocabulary.find(spelled(piece.substr(cut)));
      if (right >= 0) merges.add(left, right, {uint32_t(rank), TokenId(specials) + TokenId(rank)});
    }
  }
  BpeOptions options;
  options.ignore_merges = true;  // a word that is a piece is that piece (tiktoken)
  Stages stages(Bpe(std::move(vocabulary), std::move(merges), std::move(options)));
  Pattern words;
  words.regex.emplace(std::string(config.at("pattern").as_string()));
  stages.pre_tokenizers.emplace_back(SplitPattern{std::move(words), SplitBehavior::kIsolated, false});
  stages.pre_tokenizers.emplace_back(SplitByteLevel{false, false, true, byte_level_regex()});
  stages.decoders.emplace_back(DecodeByteLevel());
  const std::vector<std::string> names = read_specials(root, specials);
  for (size_t id = 0; id < names.size(); ++id) {
    AddedToken token;
    token.content = names[id];
    token.special = true;
    stages.added.add_with_id(std::move(token), TokenId(id));
  }
  stages.post_processors.emplace_back(PostTemplate{{{false, {kBeginningOfText}}, {true, {}}}, false});
  return std::make_unique<Pipeline>(std::move(stages));
}

}  // namespace qgen::tokenizer
