// What llama.cpp's converter does with tokenizers (conversion/base.py: get_vocab_base(), _create_vocab_sentencepiece();
// gguf-py, vocab.py: SpecialVocab).
#include "quantize/gguf_tokenizer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/config_tokens.h"
#include "base/error.h"
#include "chat/template.h"
#include "model/gguf_model.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tokenizer.h"

namespace qgen::quantize {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

constexpr float kAddedScore = -1000;  // of tokens beside SentencePiece's pieces

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;  // SentencePiece's

  explicit Tokens(int64_t vocab)
      : texts(size_t(vocab)), types(size_t(vocab), kUnused), scores(size_t(vocab), kAddedScore) {}

  // Tokens that the model has no scores for can never come, and are left out.
  void set(int64_t id, std::string_view text, TokenType type, float score = kAddedScore) {
    if (id < 0 || id >= int64_t(texts.size())) return;
    texts[size_t(id)] = text;
    types[size_t(id)] = type;
    scores[size_t(id)] = score;
  }
  std::optional<int64_t> find(std::string_view text) const {
    const auto found = std::find(texts.begin(), texts.end(), text);
    if (found == texts.end()) return {};
    return found - texts.begin();
  }
  void fill() {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (types[i] == kUnused && texts[i].empty()) texts[i] = fmt::format("[PAD{}]", i);
    }
  }
};

bool is_byte(std::string_view text) { return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>'); }

// "left right" of each merge: in files a text, or a pair whose parts may hold spaces.
std::vector<std::string> read_merges(const Json& model) {
  std::vector<std::string> out;
  for (const Json& merge : model.at("merges").elements()) {
    if (merge.is_string()) {
      out.emplace_back(merge.as_string());
      continue;
    }
    const auto parts = merge.elements();
    if (parts.size() != 2) merge.fail(fmt::format("expected a pair, found {} parts", parts.size()));
    out.push_back(fmt::format("{} {}", parts[0].as_string(), parts[1].as_string()));
  }
  return out;
}

void set_added(const Json& root, Tokens& tokens) {
  const auto added = root.get("added_tokens");
  if (!added) return;
  for (const Json& token : added->elements()) {
    const std::string_view text = token.at("content").as_string();
    const bool special = token.flag_or("special", false);
    tokens.set(token.at("id").as_integer(), text, text == "<unk>" ? kUnknown : special ? kControl : kUserDefined);
  }
}

// What the files beside tokenizer.json say about tokens.
void set_beside(const Tokenizer& tokenizer, Tokens& tokens) {
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    int32_t& type = tokens.types[i];
    const bool special = tokenizer.is_special(TokenId(i));
    if (type == kUnused) {
      const std::string text = tokenizer.piece_of(TokenId(i));
      if (!text.empty()) tokens.set(int64_t(i), text, special ? kControl : kUserDefined);
    } else if (special && type != kUnknown) {
      type = kControl;
    }
  }
}

bool names_step(const std::optional<Json>& step, std::string_view type) {
  if (!step || !step->is_object()) return false;
  if (const auto name = step->get("type"); name && name->as_string() == type) return true;
  for (const char* list : {"normalizers", "pretokenizers"}) {
    if (const auto steps = step->get(list)) {
      for (const Json& inner : steps->elements()) {
        if (names_step(inner, type)) return true;
      }
    }
  }
  return false;
}

// Whether a text gets a space in front, as SentencePiece's dummy prefix does.
bool adds_prefix(const Json& root) {
  if (names_step(root.get("normalizer"), "Prepend")) return true;
  const auto pre = root.get("pre_tokenizer");
  if (!names_step(pre, "Metaspace")) return false;
  const auto scheme = pre->get("prepend_scheme");
  return scheme ? scheme->as_string() != "never" : pre->flag_or("add_prefix_space", true);
}

void write_tokens(GgufKeys& keys, std::string_view model, std::string_view pre, const Tokens& tokens, bool scores) {
  keys.text("tokenizer.ggml.model", model);
  keys.text("tokenizer.ggml.pre", pre);
  keys.texts("tokenizer.ggml.tokens", tokens.texts);
  if (scores) keys.reals("tokenizer.ggml.scores", tokens.scores);
  keys.integers("tokenizer.ggml.token_type", tokens.types);
}

// Pieces whose scores are lost: the order of merges says the same, since SentencePiece merges what becomes the piece
// with the best score.
void set_scores(const Json& model, const std::vector<std::string>& merges, Tokens& tokens) {
  std::map<std::string, size_t, std::less<>> first;  // merge that makes a piece
  for (size_t i = 0; i < merges.size(); ++i) {
    std::string piece = merges[i];
    std::erase(piece, ' ');
    first.try_emplace(std::move(piece), i);
  }
  for (const auto& [text, id] : model.at("vocab").members()) {
    const auto found = first.find(text);
    const bool byte = is_byte(text);
    const auto rank = float(found != first.end() ? found->second : merges.size());
    tokens.set(id.as_integer(), text, byte ? kByte : kNormal, byte ? 0 : -rank);
  }
}

// Tokens of Gemma 4 that are no text for people and still shown: who reads channels and calls of tools needs them.
// Source: llama.cpp, conversion/gemma.py, Gemma4Model.set_vocab().
constexpr std::string_view kShown[] = {"<|channel>",       "<channel|>",       "<|tool_call>", "<tool_call|>",
                                       "<|tool_response>", "<tool_response|>", "<|\"|>"};

Tokens from_tokenizer_json(GgufKeys& keys, std::string_view architecture, const ModelFiles& files,
                           const Tokenizer& tokenizer, int64_t vocab) {
  const std::string text = files.read("tokenizer.json"), subject = files.subject("tokenizer.json");
  const auto document = JsonDocument::parse(text, subject);
  const Json root = document->root(), model = root.at("model");
  const auto type = model.get("type");
  if (type && type->as_string() != "BPE")
    type->fail(fmt::format("'{}' has no place in a GGUF file", type->as_string()), "expected BPE");
  Tokens tokens(vocab);
  const std::vector<std::string> merges = read_merges(model);
  const bool byte_level = names_step(root.get("pre_tokenizer"), "ByteLevel");
  if (byte_level) {
    const auto pre = gguf_pre_tokenizer_name(root);
    if (!pre) {
      root.at("pre_tokenizer")
          .fail("llama.cpp has no name for how this tokenizer splits words",
                "other formats keep the tokenizer's own files: --to fp8-channel, --to int8");
    }
    for (const auto& [piece, id] : model.at("vocab").members()) tokens.set(id.as_integer(), piece, kNormal);
    set_added(root, tokens);
    set_beside(tokenizer, tokens);
    tokens.fill();
    write_tokens(keys, "gpt2", *pre, tokens, false);
    keys.texts("tokenizer.ggml.merges", merges);
    return tokens;
  }
  if (!model.flag_or("byte_fallback", false))
    model.fail("a tokenizer that spells no bytes has no place in a GGUF file",
               "expected byte-level BPE, or byte_fallback");
  set_scores(model, merges, tokens);
  set_added(root, tokens);
  set_beside(tokenizer, tokens);
  tokens.fill();
  if (architecture == "gemma4") {
    for (size_t i = 0; i < tokens.texts.size(); ++i) {
      if (std::ranges::count(kShown, tokens.texts[i]) > 0) tokens.types[i] = kUserDefined;
    }
    write_tokens(keys, "gemma4", "gemma4", tokens, true);
    keys.texts("tokenizer.ggml.merges", merges);
    keys.flag("tokenizer.ggml.add_space_prefix", false);
    return tokens;
  }
  write_tokens(keys, "llama", "default", tokens, true);
  keys.flag("tokenizer.ggml.add_space_prefix", adds_prefix(root));
  return tokens;
}

Tokens from_sentencepiece(GgufKeys& keys, const ModelFiles& files, int64_t vocab) {
  const std::string bytes = files.read("tokenizer.model"), subject = files.subject("tokenizer.model");
  const tokenizer::SpmModel spm = tokenizer::read_spm(bytes, subject);
  constexpr int64_t kBpe = 2;
  if (spm.model_type != kBpe) {
    fail(ErrorKind::kModel, fmt::format("{}: model type {} is not supported in a GGUF file (expected {}, BPE)", subject,
                                        spm.model_type, kBpe));
  }
  Tokens tokens(vocab);
  for (size_t i = 0; i < spm.pieces.size(); ++i)
    tokens.set(int64_t(i), spm.pieces[i].text, TokenType(spm.pieces[i].type), spm.pieces[i].score);
  for (const auto& [id, token] : read_config_tokens(files).tokens) {
    const bool known = int64_t(id) < vocab && tokens.types[size_t(id)] != kUnused;
    if (!known) tokens.set(id, token.content, token.special ? kControl : kUserDefined);
  }
  tokens.fill();
  write_tokens(keys, "llama", "default", tokens, true);
  keys.flag("tokenizer.ggml.add_space_prefix", spm.add_dummy_prefix);
  if (!spm.charsmap.empty()) keys.bytes("tokenizer.ggml.precompiled_charsmap", spm.charsmap);
  return tokens;
}

// Tokens with a part: those of tokenizer_config.json, else of config.json.
void write_roles(GgufKeys& keys, const ModelFiles& files, const Json& config, const Tokenizer& tokenizer,
                 const Tokens& tokens) {
  const SpecialTokens names = read_config_tokens(files).names;
  std::map<std::string_view, int64_t> ids;
  for (const auto& [ours, theirs] : {std::pair("bos", "bos"), {"eos", "eos"}, {"unk", "unknown"}, {"pad", "padding"}}) {
    std::optional<int64_t> id;
    if (const auto name = names.find(fmt::format("{}_token", ours)); name != names.end())
      id = tokens.find(name->second);
    const auto value = config.get(fmt::format("{}_token_id", ours));
    if (!id && value && value->is_integer()) id = value->as_integer();
    if (!id && value && value->is_array() && value->count() > 0) id = value->elements().front().as_integer();
    if (!id || *id < 0 || *id >= int64_t(tokens.texts.size())) continue;
    ids[ours] = *id;
    keys.number(fmt::format("tokenizer.ggml.{}_token_id", theirs), *id);
  }
  const std::vector<TokenId> framed = tokenizer.encode("a").ids;
  keys.flag("tokenizer.ggml.add_bos_token", ids.contains("bos") && int64_t(framed.front()) == ids["bos"]);
  keys.flag("tokenizer.ggml.add_eos_token", ids.contains("eos") && int64_t(framed.back()) == ids["eos"]);
}

}  // namespace

void add_tokenizer(GgufKeys& keys, std::string_view architecture, const ModelFiles& files, const Json& config,
                   int64_t vocab) {
  if (!Tokenizer::exists(files)) {
    keys.text("tokenizer.ggml.model", "none");
    return;
  }
  const bool json = files.has("tokenizer.json");
  if (!json && !files.has("tokenizer.model")) {
    fail(ErrorKind::kModel, fmt::format("{}: this kind of tokenizer has no place in a GGUF file", files.place()),
         "expected tokenizer.json or tokenizer.model");
  }
  const auto tokenizer = Tokenizer::load(files);
  const Tokens tokens = files.has("tokenizer.model")
                            ? from_sentencepiece(keys, files, vocab)
                            : from_tokenizer_json(keys, architecture, files, *tokenizer, vocab);
  write_roles(keys, files, config, *tokenizer, tokens);
  if (const auto chat = ChatTemplate::load(files)) keys.text("tokenizer.chat_template", chat->source());
}

}  // namespace qgen::quantize
