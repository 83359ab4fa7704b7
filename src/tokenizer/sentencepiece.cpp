// tokenizer.model: its pieces become one of our models, normalized and merged as SentencePiece does it.
#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/config_tokens.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/loaders.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/sentencepiece_model.h"

namespace qgen::tokenizer {
namespace {

constexpr std::string_view kVisibleSpace = "\xE2\x96\x81";

// Each way to cut a piece in two looks at all its bytes. Pieces have some 16 characters; a quarter of a million of them
// stay far below this.
constexpr size_t kMostCutBytes = size_t{1} << 33;

bool can_be_text(PieceType type) {
  return type == PieceType::kNormal || type == PieceType::kUserDefined || type == PieceType::kUnused;
}

Vocabulary make_vocabulary(const SpmModel& spm) {
  Vocabulary vocabulary;
  vocabulary.reserve(spm.pieces.size(), 0);
  for (size_t i = 0; i < spm.pieces.size(); ++i) vocabulary.add(spm.pieces[i].text, TokenId(i));
  return vocabulary;
}

std::optional<TokenId> unknown_of(const SpmModel& spm) {
  for (size_t i = 0; i < spm.pieces.size(); ++i) {
    if (spm.pieces[i].type == PieceType::kUnknown) return TokenId(i);
  }
  return {};
}

// SentencePiece merges any two neighbours that spell a piece together, the best score first. So every way to
// cut a piece in two is a merge, and its rank is that of the piece's score. Single characters take part even
// where they are no pieces themselves.
Model make_bpe(const SpmModel& spm, const std::string& subject) {
  Vocabulary vocabulary = make_vocabulary(spm);
  const auto type_of = [&](TokenId id) { return spm.pieces[id].type; };
  std::vector<TokenId> by_score;
  for (size_t i = 0; i < spm.pieces.size(); ++i) {
    if (can_be_text(spm.pieces[i].type) && vocabulary.find(spm.pieces[i].text) == TokenId(i))
      by_score.push_back(TokenId(i));
  }
  std::stable_sort(by_score.begin(), by_score.end(),
                   [&](TokenId a, TokenId b) { return spm.pieces[a].score > spm.pieces[b].score; });
  Vocabulary pseudo;
  TokenId next_pseudo = TokenId(spm.pieces.size());
  const auto part_id = [&](std::string_view text) -> TokenId {
    const TokenId id = vocabulary.find(text);
    if (id >= 0 && can_be_text(type_of(id))) return type_of(id) == PieceType::kUserDefined ? -1 : id;
    if (char_at(text).length != text.size()) return -1;
    const TokenId known = pseudo.find(text);
    if (known >= 0) return known;
    pseudo.add(text, next_pseudo);
    return next_pseudo++;
  };
  MergeTable merges;
  merges.reserve(spm.pieces.size() * 2);
  uint32_t rank = 0;
  size_t work = 0;
  for (size_t i = 0; i < by_score.size(); ++i) {
    const SpmPiece& piece = spm.pieces[by_score[i]];
    if (i > 0 && piece.score != spm.pieces[by_score[i - 1]].score) ++rank;
    work += piece.text.size() * piece.text.size();
    if (work > kMostCutBytes)
      fail(ErrorKind::kModel, fmt::format("{}: pieces that are too long ({} bytes)", subject, piece.text.size()));
    for (size_t at = 1; at < piece.text.size(); ++at) {
      if (is_continuation(piece.text[at])) continue;
      const TokenId left = part_id(piece.text.substr(0, at));
      const TokenId right = left < 0 ? -1 : part_id(piece.text.substr(at));
      if (right >= 0) merges.add(left, right, {rank, by_score[i]});
    }
  }
  BpeOptions options;
  if (const auto unknown = unknown_of(spm)) options.unknown = spm.pieces[*unknown].text;
  options.fuse_unknown = true;
  options.byte_fallback = spm.byte_fallback;
  for (size_t i = 0; i < spm.pieces.size(); ++i) {
    const SpmPiece& piece = spm.pieces[i];
    if (piece.type == PieceType::kUserDefined && !piece.text.empty()) options.frozen.emplace_back(piece.text);
    if (piece.type == PieceType::kUnused) options.unused.push_back(TokenId(i));
    if (!can_be_text(piece.type)) options.unreachable.push_back(TokenId(i));
  }
  return Bpe(std::move(vocabulary), std::move(merges), std::move(options), std::move(pseudo));
}

Model make_unigram(const SpmModel& spm) {
  UnigramOptions options;
  options.unknown = unknown_of(spm);
  options.byte_fallback = spm.byte_fallback;
  options.single_precision = true;
  options.unreachable.resize(spm.pieces.size());
  float lowest = std::numeric_limits<float>::max(), highest = std::numeric_limits<float>::lowest();
  for (const SpmPiece& piece : spm.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    lowest = std::min(lowest, piece.score);
    highest = std::max(highest, piece.score);
  }
  options.lowest_score = lowest;
  std::vector<double> scores;
  for (size_t i = 0; i < spm.pieces.size(); ++i) {
    const SpmPiece& piece = spm.pieces[i];
    options.unreachable[i] = piece.type != PieceType::kNormal && piece.type != PieceType::kUserDefined;
    // User-defined pieces win over whatever they could be cut into.
    scores.push_back(piece.type == PieceType::kUserDefined ? float(piece.text.size()) * highest - 0.1f : piece.score);
  }
  return Unigram(make_vocabulary(spm), std::move(scores), std::move(options));
}

// ChatGLM2 and ChatGLM3 keep the tokens that begin a text, and those of roles, in their own program: behind the pieces,
// in this order (tokenization_chatglm.py, SPTokenizer). Gives the ids that every text begins with.
std::vector<TokenId> add_chatglm_tokens(TokenId pieces, AddedTokens& added) {
  std::vector<TokenId> begin;
  for (const char* content :
       {"[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"}) {
    AddedToken token;
    token.content = content;
    token.special = true;
    token.single_word = token.content == "sop" || token.content == "eop";  // beginnings of words otherwise
    TokenId id = added.id_of(content);
    if (id < 0) {
      id = pieces;
      added.add_with_id(token, id);
    }
    ++pieces;
    if (token.content == "[gMASK]" || token.content == "sop") begin.push_back(id);
  }
  return begin;
}

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const ModelFiles& files) {
  return parse_sentencepiece(files.read("tokenizer.model"), files.subject("tokenizer.model"),
                             read_config_tokens(files));
}

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& subject,
                                               const ConfigTokens& config) {
  const SpmModel spm = read_spm(bytes, subject);
  if (spm.model_type != 1 && spm.model_type != 2) {
    fail(ErrorKind::kModel, fmt::format("{}: model type {} is not supported (expected 1 for unigram or 2 for BPE)",
                                        subject, spm.model_type));
  }
  Stages stages(spm.model_type == 2 ? make_bpe(spm, subject) : make_unigram(spm));

  NormalizeSentencePiece normalizer;
  normalizer.map = Charsmap(spm.charsmap, subject);
  normalizer.add_dummy_prefix = spm.add_dummy_prefix;
  normalizer.remove_extra_whitespaces = spm.remove_extra_whitespaces;
  normalizer.escape_whitespaces = spm.escape_whitespaces;
  normalizer.suffix_space = spm.whitespace_as_suffix;
  normalizer.only_first_prefix = config.legacy.has_value() && !*config.legacy;
  for (size_t i = 0; i < spm.pieces.size(); ++i) {
    if (spm.pieces[i].type == PieceType::kUserDefined) normalizer.verbatim.add(spm.pieces[i].text, TokenId(i));
  }
  normalizer.verbatim.complete();
  stages.normalizers.emplace_back(std::move(normalizer));

  Pattern visible;
  visible.text = kVisibleSpace;
  stages.decoders.emplace_back(DecodeReplace{std::move(visible), " "});
  stages.decoders.emplace_back(DecodeByteFallback());
  stages.decoders.emplace_back(DecodeFuse());
  if (spm.add_dummy_prefix)
    stages.decoders.emplace_back(
        DecodeStrip{" ", spm.whitespace_as_suffix ? 0u : 1u, spm.whitespace_as_suffix ? 1u : 0u});

  stages.added.add_all(config, stages.vocabulary());
  std::optional<TokenId> bos = id_of_name(config, "bos_token", stages.added, stages.vocabulary());
  std::optional<TokenId> eos = id_of_name(config, "eos_token", stages.added, stages.vocabulary());
  for (size_t i = 0; i < spm.pieces.size(); ++i) {
    const SpmPiece& piece = spm.pieces[i];
    if (piece.type != PieceType::kControl && piece.type != PieceType::kUnknown) continue;
    AddedToken token;
    token.content = piece.text;
    token.special = true;
    if (stages.added.find(TokenId(i)) == nullptr) {
      stages.added.add_with_id(token, TokenId(i));
    }
    if (!bos && piece.text == "<s>") bos = TokenId(i);
    if (!eos && piece.text == "</s>") eos = TokenId(i);
  }
  const bool bos_by_default = config.tokenizer_class.empty() ||
                              config.tokenizer_class.find("Llama") != std::string::npos ||
                              config.tokenizer_class.find("Gemma") != std::string::npos;
  PostTemplate around;
  if (config.tokenizer_class == "ChatGLMTokenizer") {
    around.items.push_back({false, add_chatglm_tokens(TokenId(spm.pieces.size()), stages.added)});
  }
  if (bos && config.add_bos_token.value_or(bos_by_default)) around.items.push_back({false, {*bos}});
  around.items.push_back({true, {}});
  if (eos && config.add_eos_token.value_or(false)) around.items.push_back({false, {*eos}});
  if (around.items.size() > 1) stages.post_processors.emplace_back(std::move(around));
  return std::make_unique<Pipeline>(std::move(stages));
}

}  // namespace qgen::tokenizer
